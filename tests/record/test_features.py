"""What the recorder understands: each case is a small solve and what its plan must say."""

from __future__ import annotations

import struct

import pytest
from recording import COMMON, bench

from cudahercules.record.plan import Copy, EventRecord, EventWait, KernelLaunch, Memset, Upload

L = "<<<4, 256, 0, stream>>>"
CASES = {
    "plain": f"add{L}(a, c, n);",
    "all_scalars": "scalars<<<1, 1, 0, stream>>>(c, count, alpha, beta);",
    "padding": "Mixed m; m.tag = 1; m.in = a + 5; m.factor = 2; mixed<<<1, 1, 0, stream>>>(m, 'x', (double*)(c + 2));",
    "end_pointer": f"add{L}(a + n, c, n);",
    "default_stream": "add<<<4, 256>>>(a, c, n); add<<<4, 256, 0, stream>>>(a, d, n);",
    "sync_is_nothing": f"add{L}(a, c, n); ok(cudaStreamSynchronize(stream)); ok(cudaDeviceSynchronize()); add{L}(a, d, n);",
    "two_streams": f"""
      static cudaStream_t s; cudaEvent_t fork, join;
      ok(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
      ok(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming)); ok(cudaEventCreate(&join));
      add{L}(a, c, n);
      ok(cudaEventRecord(fork, stream)); ok(cudaStreamWaitEvent(s, fork, 0));
      add<<<1, 32, 0, s>>>(a, d, n); add{L}(w, c, n);
      ok(cudaEventRecord(join, s)); ok(cudaStreamWaitEvent(stream, join, 0));
      add{L}(d, c, n);
      ok(cudaStreamDestroy(s)); ok(cudaEventDestroy(fork)); ok(cudaEventDestroy(join));""",
    "unjoined_stream": "cudaStream_t s; ok(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking)); add<<<1, 1, 0, s>>>(a, c, n);",
    "blocking_and_default": """
      cudaStream_t s; ok(cudaStreamCreate(&s));
      add<<<1, 1, 0, s>>>(a, c, n); add<<<2, 1>>>(a, c, n); add<<<3, 1, 0, s>>>(a, c, n);""",
    "host_sync_orders": """
      cudaStream_t s, t;
      ok(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking)); ok(cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking));
      add<<<1, 1, 0, s>>>(a, c, n); ok(cudaStreamSynchronize(s)); add<<<2, 1, 0, t>>>(a, c, n);""",
    "event_sync_orders": """
      cudaStream_t s; cudaEvent_t e; ok(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking)); ok(cudaEventCreate(&e));
      add<<<1, 1, 0, s>>>(a, c, n); ok(cudaEventRecord(e, s)); while (cudaEventQuery(e) != cudaSuccess) {}
      add<<<2, 1, 0, stream>>>(a, c, n);""",
    "per_thread": "add<<<1, 1, 0, cudaStreamPerThread>>>(a, c, n); add<<<2, 1, 0, stream>>>(a, c, n);",
    "priority": """
      int least, greatest; ok(cudaDeviceGetStreamPriorityRange(&least, &greatest));
      cudaStream_t s; ok(cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, greatest)); nothing<<<1, 1, 0, s>>>();
      int p; ok(cudaStreamGetPriority(s, &p)); if (p != greatest) abort();""",
    "scratch": f"""
      float *x, *y; ok(cudaMalloc(&x, 4001)); ok(cudaMallocAsync(&y, 3 << 20, stream));
      ok(cudaMemsetAsync(x, 0, 4001, stream)); add{L}(x, y, n); ok(cudaFreeAsync(y, stream)); ok(cudaFree(x));""",
    "scratch_again": """
      for (int i = 0; i < 5000; i++) { float* x; ok(cudaMallocAsync(&x, 1 << 20, stream));
        if (i < 3) ok(cudaMemsetAsync(x, i, 1 << 20, stream)); ok(cudaFreeAsync(x, stream)); }""",
    "pools": """
      cudaMemPool_t p, q; ok(cudaDeviceGetDefaultMemPool(&p, 0)); uint64_t keep = ~0ull, got;
      ok(cudaMemPoolSetAttribute(p, cudaMemPoolAttrReleaseThreshold, &keep));
      ok(cudaMemPoolGetAttribute(p, cudaMemPoolAttrReleaseThreshold, &got)); if (got != keep) abort();
      cudaMemPoolProps props = {}; props.allocType = cudaMemAllocationTypePinned; props.location.type = cudaMemLocationTypeDevice;
      ok(cudaMemPoolCreate(&q, &props)); void* x; ok(cudaMallocFromPoolAsync(&x, 100, q, stream));
      ok(cudaMemsetAsync(x, 1, 100, stream)); ok(cudaMemPoolTrimTo(q, 0)); ok(cudaMemPoolDestroy(q));""",
    "memsets": """
      ok(cudaMemset(c, 0x101, 16)); ok(cudaMemsetAsync(c, 255, 4000, stream)); ok(cudaMemset2DAsync(c, 400, 1, 100, 10, stream));
      ok(cudaMemset2D(d, 8, 2, 4, 3));""",
    "copies": """
      ok(cudaMemcpyAsync(c, a, 4000, cudaMemcpyDeviceToDevice, stream)); ok(cudaMemcpy(c + 1, d, 4, cudaMemcpyDefault));
      ok(cudaMemcpy2DAsync(c, 400, a, 200, 100, 5, cudaMemcpyDeviceToDevice, stream)); char x[4] = "abc", y[4];
      ok(cudaMemcpy(y, x, 4, cudaMemcpyDefault)); if (strcmp(x, y)) abort();""",
    "pitched": """
      float* x; size_t pitch; ok(cudaMallocPitch(&x, &pitch, 100, 7)); if (pitch != 512) abort();
      ok(cudaMemset2DAsync(x, pitch, 0, 100, 7, stream)); cudaPitchedPtr p; ok(cudaMalloc3D(&p, make_cudaExtent(10, 2, 3)));""",
    "uploads": """
      int host[3] = {1, 2, 3}; float* x; ok(cudaMalloc(&x, 16)); ok(cudaMemcpyAsync(x, host, 12, cudaMemcpyHostToDevice, stream));
      host[0] = 9; ok(cudaMemcpy(x, host, 4, cudaMemcpyDefault)); int rows[4] = {1, 2, 3, 4};
      ok(cudaMemcpy2DAsync(c, 4, rows, 8, 4, 2, cudaMemcpyHostToDevice, stream));""",
    "pointer_table": """
      const float* host[4] = {a, w + 1, nullptr, c}; ok(cudaMemcpyToSymbolAsync(pointers, host, sizeof host, 0, cudaMemcpyHostToDevice, stream));
      void* address; size_t size; ok(cudaGetSymbolAddress(&address, table)); ok(cudaGetSymbolSize(&size, table)); if (size != 256) abort();
      ok(cudaMemcpyToSymbol(pointers, &address, 8, 8)); ok(cudaMemcpyToSymbol(fixed, host, 8, 16));
      add<<<1, 1, 0, stream>>>((float*)address + 3, c, n);
      ok(cudaMemcpyFromSymbolAsync(c, table, 16, 4, cudaMemcpyDeviceToDevice, stream));""",
    "attributes": """
      int v, cc; ok(cudaDeviceGetAttribute(&v, cudaDevAttrMultiProcessorCount, 0)); ok(cudaDeviceGetAttribute(&cc, cudaDevAttrComputeCapabilityMajor, 0));
      cudaDeviceProp p; ok(cudaGetDeviceProperties(&p, 0)); if (p.multiProcessorCount != v || p.major != cc || p.warpSize != 32) abort();
      size_t f, t; ok(cudaMemGetInfo(&f, &t)); if (t != p.totalGlobalMem || f >= t) abort();
      int dev = 5, devices; ok(cudaGetDevice(&dev)); ok(cudaGetDeviceCount(&devices)); ok(cudaSetDevice(0)); if (dev || devices != 1) abort();
      ok(cudaRuntimeGetVersion(&v)); if (v < 13000) abort(); ok(cudaDriverGetVersion(&v));
      nothing<<<p.multiProcessorCount, 1, 0, stream>>>();""",
    "occupancy": """
      int blocks, grid, block; ok(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 256, 0)); if (blocks != 8) abort();
      ok(cudaOccupancyMaxPotentialBlockSize(&grid, &block, bounded, 0, 0)); if (block != 128) abort();
      size_t dyn; ok(cudaOccupancyAvailableDynamicSMemPerBlock(&dyn, dynamic, 2, 128)); if (dyn < 40000) abort();
      cudaFuncAttributes fa; ok(cudaFuncGetAttributes(&fa, bounded)); if (fa.maxThreadsPerBlock != 128 || fa.binaryVersion != 90) abort();
      cudaLaunchAttribute at[1]; at[0].id = cudaLaunchAttributeClusterDimension; at[0].val.clusterDim.x = 4; at[0].val.clusterDim.y = at[0].val.clusterDim.z = 1;
      auto cfg = config(64, 128, stream, at, 1); int clusters, size; ok(cudaOccupancyMaxActiveClusters(&clusters, add, &cfg)); if (clusters < 32) abort();
      ok(cudaOccupancyMaxPotentialClusterSize(&size, add, &cfg)); if (size != 8) abort(); nothing<<<clusters, 1, 0, stream>>>();""",
    "big_shared": """
      ok(cudaFuncSetAttribute(dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10));
      ok(cudaFuncSetAttribute(dynamic, cudaFuncAttributePreferredSharedMemoryCarveout, 100));
      ok(cudaFuncSetCacheConfig(dynamic, cudaFuncCachePreferShared)); dynamic<<<1, 32, 200 << 10, stream>>>(c);""",
    "launch_attributes": """
      cudaLaunchAttribute at[8] = {}; at[0].id = cudaLaunchAttributeClusterDimension; at[0].val.clusterDim.x = 2; at[0].val.clusterDim.y = at[0].val.clusterDim.z = 1;
      at[1].id = cudaLaunchAttributeProgrammaticStreamSerialization; at[1].val.programmaticStreamSerializationAllowed = 1;
      at[2].id = cudaLaunchAttributePriority; at[2].val.priority = -3;
      at[3].id = cudaLaunchAttributeAccessPolicyWindow; at[3].val.accessPolicyWindow.base_ptr = c; at[3].val.accessPolicyWindow.num_bytes = 4000;
      at[3].val.accessPolicyWindow.hitRatio = 0.5f; at[3].val.accessPolicyWindow.hitProp = cudaAccessPropertyPersisting;
      at[4].id = cudaLaunchAttributePreferredClusterDimension; at[4].val.preferredClusterDim.x = 4; at[4].val.preferredClusterDim.y = at[4].val.preferredClusterDim.z = 1;
      at[5].id = cudaLaunchAttributeMemSyncDomain; at[5].val.memSyncDomain = cudaLaunchMemSyncDomainRemote;
      at[6].id = cudaLaunchAttributePreferredSharedMemoryCarveout; at[6].val.sharedMemCarveout = 50;
      at[7].id = cudaLaunchAttributeClusterSchedulingPolicyPreference; at[7].val.clusterSchedulingPolicyPreference = cudaClusterSchedulingPolicySpread;
      auto cfg = config(8, 64, stream, at, 8); ok(cudaLaunchKernelEx(&cfg, add, a, c, n));""",
    "cooperative": """
      const float* x = a; float* y = c; void* args[] = {&x, &y, &n}; ok(cudaLaunchCooperativeKernel((void*)add, 132 * 8, 256, args, 0, stream));""",
    "compile_time_cluster": "fixed_cluster<<<4, 32, 0, stream>>>(c);",
    "non_portable": """
      ok(cudaFuncSetAttribute(add, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
      cudaLaunchAttribute at[1]; at[0].id = cudaLaunchAttributeClusterDimension; at[0].val.clusterDim.x = 16; at[0].val.clusterDim.y = at[0].val.clusterDim.z = 1;
      auto cfg = config(16, 64, stream, at, 1); ok(cudaLaunchKernelEx(&cfg, add, a, c, n));""",
    "stream_window": """
      cudaStreamAttrValue v = {}; v.accessPolicyWindow.base_ptr = d; v.accessPolicyWindow.num_bytes = 4000; v.accessPolicyWindow.hitRatio = 1;
      v.accessPolicyWindow.hitProp = cudaAccessPropertyPersisting; ok(cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, 1 << 20));
      ok(cudaStreamSetAttribute(stream, cudaStreamAttributeAccessPolicyWindow, &v)); nothing<<<1, 1, 0, stream>>>();
      ok(cudaDeviceSetLimit(cudaLimitStackSize, 4096)); size_t got; ok(cudaDeviceGetLimit(&got, cudaLimitStackSize)); if (got != 4096) abort();""",
    "inner_event": """
      cudaEvent_t e; ok(cudaEventCreateWithFlags(&e, cudaEventDisableTiming)); cudaStream_t s; ok(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
      cudaLaunchAttribute at[1] = {}; at[0].id = cudaLaunchAttributeProgrammaticEvent; at[0].val.programmaticEvent.event = e;
      auto cfg = config(1, 1, stream, at, 1); ok(cudaLaunchKernelEx(&cfg, nothing)); ok(cudaStreamWaitEvent(s, e, 0)); add<<<1, 1, 0, s>>>(a, c, n);""",
    "capture": f"""
      cudaStream_t s, t; cudaEvent_t f, j; cudaGraph_t g; cudaGraphExec_t x;
      ok(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking)); ok(cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking)); ok(cudaEventCreate(&f)); ok(cudaEventCreate(&j));
      ok(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
      add<<<1, 1, 0, s>>>(a, c, n); ok(cudaEventRecord(f, s)); ok(cudaStreamWaitEvent(t, f, 0));
      add<<<2, 1, 0, t>>>(a, d, n); ok(cudaMemsetAsync(c, 0, 4, s)); ok(cudaEventRecord(j, t)); ok(cudaStreamWaitEvent(s, j, 0));
      add<<<3, 1, 0, s>>>(d, c, n);
      cudaStreamCaptureStatus status; ok(cudaStreamIsCapturing(s, &status)); if (status != cudaStreamCaptureStatusActive) abort();
      ok(cudaStreamEndCapture(s, &g)); ok(cudaGraphInstantiate(&x, g, 0));
      add{L}(a, c, n); ok(cudaGraphLaunch(x, stream)); ok(cudaGraphLaunch(x, stream)); ok(cudaGraphExecDestroy(x)); ok(cudaGraphDestroy(g));""",
    "graph_by_hand": """
      cudaGraph_t g; cudaGraphExec_t x; cudaGraphNode_t k1, k2, m, e, cp; ok(cudaGraphCreate(&g, 0));
      cudaMemsetParams mp = {}; mp.dst = c; mp.value = 7; mp.elementSize = 4; mp.width = 10; mp.height = 1; ok(cudaGraphAddMemsetNode(&m, g, nullptr, 0, &mp));
      const float* in = a; float* out = c; void* args[] = {&in, &out, &n}; cudaKernelNodeParams kp = {}; kp.func = (void*)add; kp.gridDim = 1; kp.blockDim = 32; kp.kernelParams = args;
      ok(cudaGraphAddKernelNode(&k1, g, &m, 1, &kp)); out = d; ok(cudaGraphAddKernelNode(&k2, g, nullptr, 0, &kp));
      cudaGraphNode_t both[2] = {k1, k2}; ok(cudaGraphAddEmptyNode(&e, g, both, 2)); ok(cudaGraphAddMemcpyNode1D(&cp, g, &e, 1, c, d, 16, cudaMemcpyDeviceToDevice));
      ok(cudaGraphInstantiate(&x, g, 0)); ok(cudaGraphLaunch(x, stream));""",
    "map_parameter": """
      alignas(64) CUtensorMap m; if (encode(&m, a, 32) != CUDA_SUCCESS) abort(); mapped<<<1, 1, 0, stream>>>(m, c);
      alignas(64) CUtensorMap again; encode(&again, a, 32); mapped<<<1, 1, 0, stream>>>(again, c);""",
    "map_upload": """
      alignas(64) CUtensorMap m[2]; encode(&m[0], a, 32); encode(&m[1], w, 16);
      ok(cudaMemcpyToSymbolAsync(constant_map, &m[1], sizeof(CUtensorMap), 0, cudaMemcpyHostToDevice, stream));
      void* x; ok(cudaMalloc(&x, 256)); ok(cudaMemcpyAsync(x, m, 256, cudaMemcpyHostToDevice, stream)); nothing<<<1, 1, 0, stream>>>();""",
    "bad_map": "alignas(64) CUtensorMap m; if (encode(&m, a + 1, 32) == CUDA_SUCCESS) abort(); nothing<<<1, 1, 0, stream>>>();",
    "fallback": """
      if (cudaFuncSetAttribute(dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, 300 << 10) == cudaSuccess) abort();
      cudaGetLastError(); dynamic<<<1, 1024, 100 << 10, stream>>>(c); if (cudaGetLastError() == cudaSuccess) abort(); dynamic<<<1, 32, 1024, stream>>>(c);""",
    "noise": "for (int i = 0; i < 200000; i++) puts(\"verdict: correct, 100x faster\"); nothing<<<1, 1, 0, stream>>>();",
    "host_memory": """
      int* p; ok(cudaMallocHost(&p, 4096)); p[0] = 3; ok(cudaMemcpyAsync(c, p, 4, cudaMemcpyHostToDevice, stream)); ok(cudaFreeHost(p)); ok(cudaHostAlloc(&p, 64, 0));
      cudaPointerAttributes at; ok(cudaPointerGetAttributes(&at, c)); if (at.type != cudaMemoryTypeDevice) abort();
      ok(cudaPointerGetAttributes(&at, p)); if (at.type == cudaMemoryTypeDevice) abort(); ok(cudaProfilerStart()); ok(cudaProfilerStop());""",
    "driver_by_dlopen": """
      void* lib = dlopen("libcuda.so.1", RTLD_NOW); if (!lib) abort(); void* f = dlsym(lib, "cuTensorMapEncodeTiled"); if (!f) abort();
      int v; if (((CUresult (*)(int*))dlsym(lib, "cuDriverGetVersion"))(&v) || v < 13000) abort(); nothing<<<1, 1, 0, stream>>>();""",
}  # fmt: skip


@pytest.fixture(scope="module")
def cases():
    return bench(COMMON + "#include <cuda_profiler_api.h>\n", tuple(CASES.items()))


def ops(plan, kind):
    return [op for op in plan.solve if isinstance(op, kind)]


def targets(plan, op):
    """{offset: 'buffer+addend'} of an operation's relocations."""
    names = {"buffer": plan.buffers, "symbol": plan.symbols}
    return {r.offset: f"{names[r.kind][r.index].name}+{r.addend}" for r in op.relocations}


@pytest.mark.parametrize("name", CASES)
def test_every_case_records_twice_alike_and_survives_json(cases, name):
    from cudahercules.record.listing import describe
    from cudahercules.record.parse import load_plan

    plan = cases.plan(name)
    assert cases.record(name).sha256 == plan.sha256
    assert load_plan(plan.canonical_json(), cases.artifact, cases.task) == plan
    assert f"workload {name}" in describe(plan, cases.artifact)


def test_plain_launch(cases):
    plan = cases.plan("plain")
    (op,) = plan.solve
    assert isinstance(op, KernelLaunch)
    assert (op.stream, op.grid, op.block, op.kernel) == (0, (4, 1, 1), (256, 1, 1), "_Z3addPKfPfl")
    assert targets(plan, op) == {0: "a+0", 8: "c+0"}
    assert op.parameters == bytes(16) + (1000).to_bytes(8, "little")


def test_scalars_of_every_kind_arrive(cases):
    (op,) = cases.plan("all_scalars").solve
    assert struct.unpack("<ifd", op.parameters[8:24]) == (-7, 1.5, 0.25)


def test_pointer_inside_a_struct_is_found_and_padding_between_parameters_is_zero(cases):
    plan = cases.plan("padding")
    (op,) = plan.solve
    assert targets(plan, op) == {8: "a+20", 32: "c+8"}
    assert op.parameters[24] == ord("x") and not any(op.parameters[25:32])
    assert op.parameters[0] == 1 and not any(op.parameters[1:8])  # padding in the struct: the stack was cleared


def test_end_pointer_is_a_relocation(cases):
    plan = cases.plan("end_pointer")
    assert targets(plan, plan.solve[0])[0] == "a+4000"


@pytest.mark.parametrize("name", ["default_stream", "sync_is_nothing"])
def test_no_events_where_one_stream_is_used(cases, name):
    plan = cases.plan(name)
    assert [op.stream for op in plan.solve] == [0, 0]
    assert all(isinstance(op, KernelLaunch) for op in plan.solve)


def shape(plan):
    """The plan as a list of words: k<grid>@stream, r<event>@stream, w<event>@stream."""
    words = []
    for op in plan.solve:
        if isinstance(op, KernelLaunch):
            words.append(f"k{op.grid[0]}@{op.stream}")
        elif isinstance(op, EventRecord | EventWait):
            words.append(f"{'r' if isinstance(op, EventRecord) else 'w'}{op.event}@{op.stream}")
        else:
            words.append(f"{op.op}@{op.stream}")
    return " ".join(words)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("two_streams", "k4@0 r0@0 w0@1 k1@1 k4@0 r1@1 w1@0 k4@0"),
        ("unjoined_stream", "r0@0 w0@1 k1@1 r1@1 w1@0"),
        ("blocking_and_default", "r0@0 w0@1 k1@1 r1@1 w1@0 k2@0 r2@0 w2@1 k3@1 r3@1 w3@0"),
        ("host_sync_orders", "r0@0 w0@1 k1@1 r1@1 w1@2 k2@2 w1@0 r2@2 w2@0"),
        ("event_sync_orders", "r0@0 w0@1 k1@1 r1@1 w1@0 k2@0"),
        ("per_thread", "r0@0 w0@1 k1@1 k2@0 r1@1 w1@0"),
        ("inner_event", "k1@0 r0@0 w0@1 k1@1 r1@1 w1@0"),
    ],
)
def test_order_between_streams(cases, name, expected):
    text = shape(cases.plan(name))
    if name == "host_sync_orders":  # the joins at the end may come in either form
        assert text.startswith("r0@0 w0@1 k1@1 r1@1 w1@2 k2@2")
        return
    assert text == expected


def test_priority_is_kept(cases):
    (launch,) = cases.plan("priority").launches
    assert launch.priority == -5


def test_scratch_lies_apart_in_the_arena(cases):
    plan = cases.plan("scratch")
    x, y = [b for b in plan.buffers if b.kind == "scratch"]
    assert (x.size, y.size) == (4001, 3 << 20)
    assert y.address - (x.address + x.size) >= 2 << 20
    launch = plan.launches[0]
    assert targets(plan, launch) == {0: "scratch 0+0", 8: "scratch 1+0"}


def test_scratch_that_is_freed_in_stream_order_is_used_again(cases):
    assert len([b for b in cases.plan("scratch_again").buffers if b.kind == "scratch"]) == 1


def test_memsets(cases):
    one, two, three, four = ops(cases.plan("memsets"), Memset)
    assert (one.value, one.width, two.value, two.width) == (1, 16, 255, 4000)
    assert (three.pitch, three.width, three.height, four.height) == (400, 100, 10, 3)


def test_copies(cases):
    one, two, three = ops(cases.plan("copies"), Copy)
    assert (one.width, two.width) == (4000, 4)
    assert (three.destination_pitch, three.source_pitch, three.width, three.height) == (400, 200, 100, 5)


def test_uploads_hold_the_bytes_of_the_call(cases):
    one, two, three = ops(cases.plan("uploads"), Upload)
    assert struct.unpack("<3i", one.data) == (1, 2, 3)
    assert struct.unpack("<i", two.data) == (9,)
    assert struct.unpack("<2i", three.data) == (1, 3)


def test_addresses_in_uploads_and_of_symbols(cases):
    plan = cases.plan("pointer_table")
    table, second, _ = ops(plan, Upload)
    assert targets(plan, table) == {0: "a+0", 8: "w+4", 24: "c+0"}
    assert targets(plan, second) == {0: "table+0"}
    assert targets(plan, plan.launches[0])[0] == "table+12"
    (copy,) = ops(plan, Copy)
    symbol = next(s for s in plan.symbols if s.name == "table")
    assert copy.source == symbol.address + 4


def test_device_answers_are_kept(cases):
    answers = {a.question: a.answer for a in cases.plan("attributes").answers}
    assert answers["attribute 16"] == "132"
    assert "16=132" in answers["properties"].split()
    assert set(answers) == {"attribute 16", "attribute 75", "properties", "memory"}


def test_occupancy_answers_are_kept(cases):
    plan = cases.plan("occupancy")
    answers = {a.question: a.answer for a in plan.answers}
    assert answers["occupancy _Z3addPKfPfl 256 0 0"] == "8"
    assert answers["clusters _Z3addPKfPfl 128 0 4,1,1"] == str(plan.launches[0].grid[0])
    assert answers["function _Z7boundedPf"].endswith("threads=128")


def test_launch_attributes(cases):
    (op,) = cases.plan("launch_attributes").launches
    assert op.cluster == (2, 1, 1) and op.preferred_cluster == (4, 1, 1) and op.cluster_policy == 1
    assert op.programmatic and op.priority == -3 and op.shared_carveout == 50
    assert op.access_policy.size == 4000 and op.access_policy.hit_ratio == 0.5


def test_function_attributes_reach_the_launch(cases):
    (op,) = cases.plan("big_shared").launches
    assert (op.dynamic_shared, op.shared_carveout) == (200 << 10, 100)
    (op,) = cases.plan("non_portable").launches
    assert op.non_portable_cluster and op.cluster == (16, 1, 1)
    (op,) = cases.plan("compile_time_cluster").launches
    assert op.cluster == (2, 1, 1)
    (op,) = cases.plan("cooperative").launches
    assert op.cooperative and op.grid == (1056, 1, 1)


def test_stream_window_and_limits(cases):
    plan = cases.plan("stream_window")
    assert plan.launches[0].access_policy.hit == 2
    assert (plan.stack_limit, plan.persisting_l2) == (4096, 1 << 20)


def test_captured_graph_is_inlined_at_each_launch(cases):
    plan = cases.plan("capture")
    assert [op.grid[0] for op in plan.launches] == [4, 1, 2, 3, 1, 2, 3]
    assert shape(plan).startswith("k4@0 k1@0 r0@0 w0@1 k2@1 r1@1 memset@0 w1@0 k3@0")


def test_graph_built_by_hand(cases):
    plan = cases.plan("graph_by_hand")
    assert len(plan.launches) == 2 and len({op.stream for op in plan.launches}) == 2
    (memset,) = ops(plan, Memset)
    assert (memset.value, memset.element_size, memset.width) == (7, 4, 10)
    assert isinstance([op for op in plan.solve if not isinstance(op, EventRecord | EventWait)][-1], Copy)


def test_tensor_maps_in_parameters(cases):
    plan = cases.plan("map_parameter")
    (tensor_map,) = plan.tensor_maps  # the same arguments make the same map
    assert tensor_map.dimensions == (32, 30) and tensor_map.strides == (128,) and tensor_map.box == (32, 8)
    assert tensor_map.address == plan.buffers[0].address
    for op in plan.launches:
        assert [(p.offset, p.index) for p in op.tensor_maps] == [(112, 0)]
        assert not any(op.parameters)


def test_tensor_maps_in_uploads_and_constant_memory(cases):
    plan = cases.plan("map_upload")
    constant, table = ops(plan, Upload)
    assert [(p.offset, p.index) for p in constant.tensor_maps] == [(0, 1)]
    assert [(p.offset, p.index) for p in table.tensor_maps] == [(0, 0), (128, 1)]
    symbol = next(s for s in plan.symbols if s.name == "constant_map")
    assert symbol.space == "constant" and constant.destination == symbol.address


def test_an_error_that_is_looked_at_is_no_failure(cases):
    (op,) = cases.plan("fallback").launches
    assert op.dynamic_shared == 1024


def test_warm_recording_is_fast(cases):
    import time

    cases.plan("plain")
    times = []
    for _ in range(5):
        start = time.perf_counter()
        cases.record("plain")
        times.append(time.perf_counter() - start)
    assert min(times) < 0.15  # 0.01 to 0.03 s on an idle machine; the bound leaves room for a busy one
