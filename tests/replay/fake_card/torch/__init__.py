"""As much of PyTorch as the judge and simple experts touch, on the pretend card. Tensors are places."""

import contextlib
import math
from types import SimpleNamespace

from cuda.bindings import driver

__version__ = "2.11.0"
_SIZES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "uint32": 4, "uint64": 8,
    "complex64": 8, "complex128": 16,
}  # fmt: skip
globals().update({name: name for name in _SIZES})


_users: dict[int, int] = {}


class OutOfMemoryError(RuntimeError):
    pass


class Tensor:
    def __init__(self, shape, dtype, pointer):
        self.shape, self.dtype, self.pointer, self.device = tuple(shape), dtype, pointer, "cuda:0"
        _users[pointer] = _users.get(pointer, 0) + 1

    def __del__(self):
        _users[self.pointer] -= 1
        if not _users[self.pointer]:
            driver.cuMemFree(self.pointer)

    def data_ptr(self):
        return self.pointer

    def is_contiguous(self):
        return True

    def t(self):
        return Tensor(self.shape[::-1], self.dtype, self.pointer)

    def view(self, *shape):
        return Tensor(shape if len(shape) > 1 else self.shape, self.dtype, self.pointer)

    def reshape(self, *shape):
        return Tensor(shape, self.dtype, self.pointer)


def empty(*shape, dtype="float32", device="cuda"):
    shape = shape[0] if shape and isinstance(shape[0], tuple) else shape
    code, pointer = driver.cuMemAlloc(max(1, math.prod(shape) * _SIZES[dtype]))
    if code:
        raise OutOfMemoryError("CUDA out of memory")
    return Tensor(shape, dtype, pointer)


randn = empty


def mm(a, b, out=None):
    driver.sleep_on_stream(2 * a.shape[0] * a.shape[1] * b.shape[1] / 50e6 if out is not None else 100)
    return out


def native_layer_norm(x, shape, weight, bias, eps):
    driver.sleep_on_stream(130)
    rows = math.prod(x.shape) // shape[0]
    return empty(x.shape, dtype=x.dtype), empty(rows), empty(rows)


def as_tensor(given, device=None):
    raise NotImplementedError("outputs are not looked at on the pretend card")


@contextlib.contextmanager
def no_grad():
    yield


class _Stream:
    def __init__(self):
        self.cuda_stream = 7


@contextlib.contextmanager
def _stream(stream):
    yield


class _Graph:
    executable = None

    def replay(self):
        driver.cuGraphLaunch(self.executable, None)


@contextlib.contextmanager
def _graph(graph, stream=None):
    driver.cuStreamBeginCapture(stream, 2)
    yield
    graph.executable = driver.cuStreamEndCapture(stream)[1]


cuda = SimpleNamespace(
    init=lambda: None,
    set_device=lambda n: None,
    synchronize=lambda n=0: None,
    Stream=_Stream,
    stream=_stream,
    CUDAGraph=_Graph,
    graph=_graph,
    memory_reserved=lambda: 1 << 20,
    empty_cache=lambda: None,
    current_stream=lambda n=0: _Stream(),
)
backends = SimpleNamespace(cuda=SimpleNamespace(matmul=SimpleNamespace(allow_tf32=True)))
set_float32_matmul_precision = lambda p: None  # noqa: E731


def compile(*arguments, **options):
    raise RuntimeError("torch.compile is not pretended")
