"""The kernel of naive.cu itself as an expert: the same machine code on torch's tensors, launched on
torch's stream and captured by torch. Against its own plan it shows what the two adapters differ by."""

from functools import cache
from pathlib import Path


def same_kernel(inputs, outputs, sizes, scalars):
    """Launch naive.cu's kernel as its ``solve`` does."""
    import ctypes

    import torch

    from cudahercules.replay.driver import api

    function = _function()
    blocks, threads, size = _launch(sizes)
    tensors = [*inputs.values(), *outputs.values()]
    values = [ctypes.c_uint64(t.data_ptr()) for t in tensors] + [size]
    addresses = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))

    def run():
        stream = api.CUstream(torch.cuda.current_stream().cuda_stream)
        api.cuLaunchKernel(
            function, *blocks, threads, 1, 1, 0, stream, ctypes.addressof(addresses), 0
        )  # fmt: skip

    run.kept = values  # the addresses point into these
    run.versions = {"torch": torch.__version__}
    return run


@cache
def _function():
    """The kernel, loaded once a process from the artifact that the candidate is built from."""
    from cudahercules.build.candidate import load_candidate
    from cudahercules.build.compile import build
    from cudahercules.replay.device import architecture_of
    from cudahercules.replay.driver import api
    from cudahercules.task.load import load_task

    task = load_task(TASK)
    artifact = build(load_candidate(Path(__file__).with_name("naive.cu")), task, architecture_of(0))
    (module,) = artifact.modules
    (name,) = (k.name for k in module.kernels if KERNEL in k.name)
    loaded = api.cuModuleLoadData(artifact.path(module.cubin).read_bytes())
    return api.cuModuleGetFunction(loaded, name.encode())


TASK, KERNEL = "kernel/scale/fp32@general", "twice"


def _launch(sizes):
    """Grid, threads a block, and the kernel's last argument."""
    import ctypes

    vectors = sizes["n"] // 4
    blocks = min(-(-vectors // 256), 65536)
    return (blocks, 1, 1), 256, ctypes.c_int64(vectors)
