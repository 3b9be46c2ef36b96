"""What cannot be recorded: each case is a small solve and the sentence that its author reads."""

from __future__ import annotations

import pytest
from recording import COMMON, bench

CONTRACT = {
    # no place in a plan
    "to_host": ("float x; cudaMemcpy(&x, a, 4, cudaMemcpyDeviceToHost);", "cudaMemcpy from device to host"),
    "to_host_default": ("float x; cudaMemcpyAsync(&x, a, 4, cudaMemcpyDefault, stream);", "from device to host"),
    "from_symbol": ("float x; cudaMemcpyFromSymbol(&x, table, 4);", "cudaMemcpyFromSymbol from device to host"),
    "elapsed": ("cudaEvent_t e; cudaEventCreate(&e); float t; cudaEventElapsedTime(&t, e, e);", "no time passes while recording"),
    "managed": ("float* x; cudaMallocManaged(&x, 4);", "managed memory is not available"),
    "mapped": ("float* x; cudaHostAlloc(&x, 4, cudaHostAllocMapped);", "host memory cannot be mapped"),
    "mapped_pointer": ("float *x, *y; cudaMallocHost(&x, 4); cudaHostGetDevicePointer(&y, x, 0);", "host memory cannot be mapped"),
    "host_register_mapped": ("static float x[1024]; cudaHostRegister(x, 4096, cudaHostRegisterMapped);", "host memory cannot be mapped"),
    "texture": ("cudaTextureObject_t t; cudaCreateTextureObject(&t, nullptr, nullptr, nullptr);", "textures are not available"),
    "surface": ("cudaSurfaceObject_t t; cudaCreateSurfaceObject(&t, nullptr);", "surfaces are not available"),
    "array": ("cudaArray_t x; cudaMallocArray(&x, nullptr, 4);", "CUDA arrays are not available"),
    "host_function": ("cudaLaunchHostFunc(stream, [](void*) {}, nullptr);", "host callbacks are not available"),
    "callback": ("cudaStreamAddCallback(stream, [](cudaStream_t, cudaError_t, void*) {}, nullptr, 0);", "host callbacks are not available"),
    "heap": ("cudaDeviceSetLimit(cudaLimitMallocHeapSize, 1 << 20);", "the device heap is not available"),
    "sync_depth": ("cudaDeviceSetLimit(cudaLimitDevRuntimePendingLaunchCount, 1);", "launches from device code are not available"),
    "peer": ("int x; cudaDeviceCanAccessPeer(&x, 0, 1);", "there is one device"),
    "ipc": ("cudaIpcMemHandle_t h; cudaIpcGetMemHandle(&h, c);", "not shared between processes"),
    "ipc_event": ("cudaEvent_t e; cudaEventCreateWithFlags(&e, cudaEventInterprocess | cudaEventDisableTiming);", "between processes"),
    "library": ("cudaLibrary_t l; cudaLibraryLoadData(&l, nullptr, nullptr, nullptr, 0, nullptr, nullptr, 0);", "cannot be loaded"),
    "entry_point": ('void* f; cudaDriverEntryPointQueryResult r; cudaGetDriverEntryPointByVersion("cuMemAlloc", &f, 12000, 0, &r);', "driver function cuMemAlloc is not available"),
    "reset": ("cudaDeviceReset();", "the device is the judge's"),
    "unsupported": ("cudaGraphDebugDotPrint(nullptr, nullptr, 0);", "unsupported runtime call cudaGraphDebugDotPrint"),
    "unknown_attribute": ("int v; cudaDeviceGetAttribute(&v, cudaDevAttrPciBusId, 0);", "device attribute 33 is not in the profile of NVIDIA H200"),
    "unknown_limit": ("size_t v; cudaDeviceGetLimit(&v, cudaLimitMaxL2FetchGranularity);", "limit 5 is not available"),
    "unknown_function_attribute": ("cudaFuncSetAttribute(add, (cudaFuncAttribute)77, 1);", "function attribute 77 is not known"),
    "unknown_launch_attribute": ("cudaLaunchAttribute at[1] = {}; at[0].id = (cudaLaunchAttributeID)99; auto f = config(1, 1, stream, at, 1); cudaLaunchKernelEx(&f, nothing);", "launch attribute 99 is not known"),
    "write_input": ("cudaMemsetAsync((void*)a, 0, 4, stream);", "cudaMemsetAsync writes input a: inputs are read-only"),
    "upload_input": ("int x = 0; cudaMemcpyAsync((void*)w, &x, 4, cudaMemcpyHostToDevice, stream);", "writes input w"),
    "capture_left_open": ("cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);", "a stream capture was begun and not ended"),
    "too_many_operations": ("for (int i = 0; i < 100001; i++) cudaMemsetAsync(c, 0, 4, stream);", "more than 100000 operations"),
    "too_many_allocations": ("for (int i = 0; i < 4100; i++) { void* x; cudaMalloc(&x, 4); }", "more than 4096 allocations"),
    "too_much_upload": ("static char x[1 << 20]; float* y; cudaMalloc(&y, sizeof x); for (int i = 0; i < 65; i++) cudaMemcpyAsync(y, x, sizeof x, cudaMemcpyHostToDevice, stream);", "uploads more than 64 MiB"),
    "map_changed": ("alignas(128) CUtensorMap m; encode(&m, a, 32); ((char*)&m)[100] ^= 1; mapped<<<1, 1, 0, stream>>>(m, c);", "was changed or cut"),
    "map_cut": ("alignas(128) CUtensorMap m; encode(&m, a, 32); float* x; cudaMalloc(&x, 128); cudaMemcpyAsync(x, &m, 64, cudaMemcpyHostToDevice, stream);", "was changed or cut"),
    "map_misaligned": ("alignas(128) CUtensorMap m; encode(&m, a, 32); char* x; cudaMalloc(&x, 256); cudaMemcpyAsync(x + 16, &m, 128, cudaMemcpyHostToDevice, stream);", "not aligned to 64 bytes"),
    # what hardware would refuse, and nobody looked
    "zero_grid": ("nothing<<<0, 1, 0, stream>>>();", "launch 1 of kernel _Z7nothingv: grid x is 0"),
    "huge_grid": ("nothing<<<dim3(1, 65536), 1, 0, stream>>>();", "grid y is 65536, it must be 1 to 65535"),
    "two_to_31": ("nothing<<<1u << 31, 1, 0, stream>>>();", "grid x is 2147483648"),
    "big_block": ("nothing<<<1, dim3(1024, 2), 0, stream>>>();", "2048 threads a block, the device allows 1024"),
    "deep_block": ("nothing<<<1, dim3(1, 1, 65), 0, stream>>>();", "block z is 65"),
    "launch_bounds": ("bounded<<<1, 256, 0, stream>>>(c);", "256 threads a block, its launch bounds allow 128"),
    "shared": ("nothing<<<1, 1, 0, stream>>>(); dynamic<<<1, 32, 50 << 10, stream>>>(c);", "launch 2 of kernel _Z7dynamicPf: 51200 bytes of dynamic shared memory, 49152 are allowed"),
    "shared_optin": ("cudaFuncSetAttribute(dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, 228 << 10);", "cannot have 233472 bytes of dynamic shared memory"),
    "cluster_size": ("cudaLaunchAttribute at[1]; at[0].id = cudaLaunchAttributeClusterDimension; at[0].val.clusterDim.x = 16; at[0].val.clusterDim.y = at[0].val.clusterDim.z = 1; auto f = config(16, 1, stream, at, 1); cudaLaunchKernelEx(&f, nothing);", "a cluster of 16 blocks, 8 are allowed"),
    "cluster_grid": ("fixed_cluster<<<3, 32, 0, stream>>>(c);", "grid x (3) is no multiple of cluster x (2)"),
    "cooperative": ("void* args[] = {&c}; cudaLaunchCooperativeKernel((void*)bounded, 132 * 16 + 1, 128, args, 0, stream);", "a cooperative grid of 2113 blocks, 2112 fit"),
    "no_kernel": ("void* args[] = {&c}; cudaLaunchKernel((void*)&case_zero_grid, 1, 1, args, 0, stream);", "a pointer that is no kernel"),
    "copy_outside": ("cudaMemcpyAsync(c, a, 4004, cudaMemcpyDeviceToDevice, stream);", "do not lie in one buffer or device variable"),
    "copy_negative": ("cudaMemsetAsync(c - 1, 0, 4, stream);", "do not lie in one buffer"),
    "copy_overflow": ("cudaMemsetAsync(c, 0, ~(size_t)0, stream);", "do not lie in one buffer"),
    "copy_pitch": ("cudaMemset2DAsync(c, 4, 0, 8, 2, stream);", "a pitch of 4 bytes is less"),
    "copy_direction": ("cudaMemcpyAsync(c, a, 4, cudaMemcpyHostToDevice, stream);", "the kind says host to device, the pointers say device to device"),
    "symbol_outside": ("int x[65]; cudaMemcpyToSymbolAsync(table, x, 260, 0, cudaMemcpyHostToDevice, stream);", "do not fit into table (256 bytes)"),
    "freed": ("float* x; cudaMalloc(&x, 4); cudaFree(x); cudaMemsetAsync(x, 0, 4, stream);", "has been freed"),
    "freed_twice": ("float* x; cudaMalloc(&x, 4); cudaFree(x); cudaFree(x);", "was freed twice"),
    "free_input": ("cudaFree((void*)a);", "is not the start of an allocation"),
    "too_much_scratch": ("for (int i = 0; i < 65; i++) { void* x; cudaMalloc(&x, 1 << 30); }", "would bring scratch over 64 GiB"),
    "dead_stream": ("cudaStream_t s; cudaStreamCreate(&s); cudaStreamDestroy(s); nothing<<<1, 1, 0, s>>>();", "a stream that does not exist"),
    "second_device": ("cudaSetDevice(1);", "device 1 does not exist"),
    "capture_legacy": ("cudaStreamBeginCapture(0, cudaStreamCaptureModeGlobal);", "the legacy default stream cannot be captured"),
    "capture_malloc": ("void* x; cudaGraph_t g; cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal); cudaMalloc(&x, 4); cudaStreamEndCapture(stream, &g);", "cudaMalloc while a stream is being captured"),
    "capture_unjoined": ("cudaStream_t s; cudaEvent_t e; cudaGraph_t g; cudaStreamCreate(&s); cudaEventCreate(&e); cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed); cudaEventRecord(e, stream); cudaStreamWaitEvent(s, e, 0); nothing<<<1, 1, 0, s>>>(); cudaStreamEndCapture(stream, &g);", "a forked stream was not joined"),
    "only_failed_launches": ("dynamic<<<1, 32, 1 << 20, stream>>>(c); cudaGetLastError();", "no launch succeeded; the last error: launch 1"),
    # ways of not coming back
    "exit": ("exit(0);", "host code ended the process (exit status 0) instead of returning"),
    "exit_after_error": ("dynamic<<<1, 32, 1 << 20, stream>>>(c); if (cudaGetLastError() != cudaSuccess) exit(3);", "before that: launch 1 of kernel _Z7dynamicPf"),
    "quick_exit": ("_exit(7);", "ended the process (status 7)"),
    "forged_recording": ("FILE* f = fopen(\"recording\", \"w\"); fputs(\"[[1]]\\n{\\\"end\\\": true}\\n\", f); fclose(f); _exit(0);", "the recording is damaged"),
    "big_file": ("FILE* f = fopen(\"junk\", \"w\"); static char x[1 << 20]; for (int i = 0; i < 300; i++) fwrite(x, 1, sizeof x, f); fflush(f);", "wrote more than 256 MiB"),
}  # fmt: skip
CRASH = {
    "abort": ("abort();", "killed by SIGABRT"),
    "kill": ("raise(SIGKILL);", "killed by SIGKILL"),
    "null": ("*(volatile int*)0 = 1;", "killed by SIGSEGV (a null pointer)"),
    "read_device": ("volatile float x = d[3]; (void)x;", "it touched device memory (d + 12 bytes)"),
    "fpe": ("volatile int z = 0; z = 7 / z;", "killed by SIGFPE"),
    "recursion": ("struct R { static int f(volatile int* p) { volatile int x[1000]; x[0] = *p; return f(x) + x[0]; } }; int s = 1; R::f(&s);", "killed by SIGSEGV"),
}  # fmt: skip
TIMEOUT = {"sleep": "sleep(100);", "loop": "for (volatile int i = 0;; i++) {}"}


@pytest.fixture(scope="module")
def cases():
    snippets = {name: code for name, (code, _) in (CONTRACT | CRASH).items()} | TIMEOUT
    return bench(COMMON, tuple(sorted(snippets.items(), key=lambda item: item[0] != "zero_grid")))


@pytest.mark.parametrize("name", CONTRACT)
def test_contract(cases, name):
    failure = cases.failure(name)
    assert failure.kind == "contract", failure
    assert CONTRACT[name][1] in failure.message


@pytest.mark.parametrize("name", CRASH)
def test_crash(cases, name):
    failure = cases.failure(name)
    assert failure.kind == "crash", failure
    assert CRASH[name][1] in failure.message


@pytest.mark.parametrize("name", TIMEOUT)
def test_timeout(cases, name):
    failure = cases.failure(name, wall_s=1.0)
    assert failure.kind == "timeout"
    assert "did not return within 1 s" in failure.message
    assert failure.seconds < 5


def test_cpu_time_is_limited_too(cases):
    failure = cases.failure("loop", cpu_s=1)
    assert failure.kind == "timeout"
    assert "CPU time" in failure.message
