"""What is read out of cubins, reports and fatbins."""

from __future__ import annotations

import struct

import pytest
from building import EMPTY, compile_text

from cudahercules.build.artifact import Artifact
from cudahercules.build.elf import BadDeviceCode, fatbin_hash, parse_report, read_cubin

SOURCE = f"""
struct Big {{ char bytes[20000]; }};
struct Odd {{ char c; double d; short s; }};
__device__ double with_content[3] = {{1, 2, 3}};
static __device__ int zero[7];
__constant__ int table[5] = {{1}};
__global__ void __launch_bounds__(96) big(const Big b, int* o, char c, Odd odd) {{
  o[threadIdx.x] = b.bytes[threadIdx.x] + c + odd.d + zero[1];
}}
__global__ void __cluster_dims__(4, 2, 1) cluster(int* o) {{ o[blockIdx.x] = table[o[1]]; }}
__global__ void __block_size__((128, 2, 1)) fixed(int* o) {{ o[0] = 1; }}
__global__ void stack(int* o, int n) {{
  volatile int local[64];
  for (int i = 0; i < n; i++) local[o[i] & 63] = i;
  o[0] = local[n & 63];
}}
template <typename T> __global__ void local_static(T* o) {{
  static __device__ int calls = 5;
  __shared__ double tile[16];
  tile[threadIdx.x] = with_content[o[1]];
  __syncthreads();
  o[0] = atomicAdd(&calls, 1) + tile[3];
}}
__global__ void nothing() {{}}
__device__ int (*chosen)(int);
__device__ __noinline__ int twice(int x) {{ return 2 * x; }}
__global__ void choose() {{ chosen = twice; }}
void use(int* o) {{ local_static<<<1, 1>>>(o); }}
{EMPTY}"""


@pytest.fixture(scope="module")
def module():
    artifact = compile_text(SOURCE, architecture="90a")
    assert isinstance(artifact, Artifact), artifact
    return artifact.modules[0]


@pytest.fixture
def kernel(module):
    return lambda part: next(k for k in module.kernels if part in k.name)


def test_only_kernels_are_kernels(module):
    names = sorted(k.name for k in module.kernels)
    assert len(names) == 7
    assert not any("twice" in n for n in names)


def test_parameters_above_four_kilobytes(kernel):
    assert kernel("3big").parameters == ((0, 20000), (20000, 8), (20008, 1), (20016, 24))


def test_no_parameters(kernel):
    assert kernel("nothing").parameters == ()


def test_threads_and_clusters(kernel):
    assert (kernel("3big").max_threads, kernel("3big").required_threads) == (96, (0, 0, 0))
    assert kernel("cluster").required_cluster == (4, 2, 1)
    assert kernel("cluster").max_threads == 1024
    assert kernel("fixed").required_threads == (128, 2, 1)
    assert kernel("fixed").max_threads == 256


def test_stack_and_shared_memory(kernel):
    assert kernel("5stack").local >= 256
    assert kernel("local_static").static_shared == 128  # without the KB that sm_90 reserves
    assert kernel("nothing").static_shared == 0
    assert kernel("nothing").registers > 0


def test_variables(module):
    found = {s.name: (s.space, s.size) for s in module.symbols}
    assert found["with_content"] == ("global", 24)
    assert found["table"] == ("constant", 20)
    assert found["chosen"] == ("global", 8)
    assert ("global", 28) in found.values()
    calls = next(s for s in module.symbols if "calls" in s.name)
    assert (calls.space, calls.size) == ("global", 4)


def test_report_adds_callees_to_their_kernel():
    usage = parse_report(
        "ptxas info    : 56 bytes gmem\n"
        "ptxas info    : Compiling entry function '_Z1ki' for 'sm_90a'\n"
        "ptxas info    : Function properties for _Z1ki\n"
        "    8 bytes stack frame, 4 bytes spill stores, 0 bytes spill loads\n"
        "ptxas info    : Used 24 registers, used 1 barriers, 400 bytes smem\n"
        "ptxas info    : Function properties for _Z3reci\n"
        "    168 bytes stack frame, 20 bytes spill stores, 24 bytes spill loads\n"
        "ptxas info    : Compiling entry function 'b' for 'sm_90a'\n"
        "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
    )
    kernel = usage["_Z1ki"]
    assert (kernel.stack, kernel.spill_stores, kernel.spill_loads) == (176, 24, 24)
    assert (kernel.static_shared, usage["b"].stack) == (400, 0)


def fatbin(payload: bytes) -> bytes:
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(payload)) + payload


def test_fatbin_hash_is_fnv_1a_over_header_and_payload():
    data = fatbin(b"abc")
    expected = 0xCBF29CE484222325
    for byte in data:
        expected = (expected ^ byte) * 0x100000001B3 % 2**64
    assert fatbin_hash(data) == f"{expected:016x}"
    assert fatbin_hash(data + b"alignment") == fatbin_hash(data)
    assert fatbin_hash(fatbin(b"abd")) != fatbin_hash(data)


@pytest.mark.parametrize("data", [b"", b"x" * 64, fatbin(b"abc")[:-1]])
def test_not_a_fatbin(data):
    with pytest.raises(BadDeviceCode):
        fatbin_hash(data)


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"\x7fELF\x02\x01\x01" + b"\xff" * 200])
def test_not_a_cubin(tmp_path, data):
    (tmp_path / "x.cubin").write_bytes(data)
    with pytest.raises(BadDeviceCode, match=r"x\.cubin is not a readable cubin"):
        read_cubin(tmp_path / "x.cubin", "")
