// Tensor cores fed by the copy engine: TMA, mbarriers, wgmma, warp specialisation, clusters of two.
//
// The idea. On Hopper a warpgroup multiplies straight out of shared memory (wgmma), so the only work left for
// ordinary instructions is to keep tiles coming. One warpgroup does nothing else: a single thread of it asks
// the copy engine for the next 64 columns of A and rows of B as soon as a stage of the ring is free. It gives
// its registers away (setmaxnreg), and the two other warpgroups take them for 64 x 256 accumulators each.
// Full and empty stages are signalled by mbarriers; nobody ever meets at a block-wide barrier.
//
// Two blocks side by side form a cluster: they compute tiles under each other, so they need the same part of
// B. Each fetches half of it and multicasts it into both shared memories, which cuts what L2 must deliver by
// a third. Blocks are persistent, and while the consumers write a finished tile (stmatrix, then a bulk store)
// the producer already fills the ring for the next one. Tiles are taken in bands of 16 rows of tiles, so that
// those in flight share rows of A and columns of B in L2.
//
// Layouts. All tiles lie in shared memory as the copy engine's 128-byte swizzle leaves them, in boxes of 64
// elements (128 bytes) times rows: A as rows of k (K-major), B as rows of n (MN-major: wgmma transposes).
// The copy engine needs row pitches of 16 bytes; other sizes go to a plain kernel at the end of this file.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "solve.h"

constexpr int TILE_M = 128, TILE_N = 256, TILE_K = 64, STAGES = 4;
constexpr int BOX = 64;                // elements of a swizzled row: 128 bytes
constexpr int CONSUMERS = 2;           // warpgroups that multiply, 64 rows of the tile each
constexpr int THREADS = 128 * (CONSUMERS + 1);
constexpr int A_BYTES = TILE_M * TILE_K * 2, B_BYTES = TILE_K * TILE_N * 2, STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int C_BOX_BYTES = 64 * BOX * 2;               // what one bulk store writes
constexpr int C_BYTES = CONSUMERS * 2 * C_BOX_BYTES;    // two in flight for each consumer
constexpr int SHARED_BYTES = STAGES * STAGE_BYTES + C_BYTES + 1024;  // 1024: to align the swizzle
constexpr int BAND = 16;               // rows of tiles that are walked together

// ---- what PTX offers and C++ does not ---------------------------------------------------------------

__device__ uint32_t shared_address(const void* pointer) {
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

__device__ void barrier_init(uint32_t barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

__device__ void barrier_expect(uint32_t barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

// Arrive at the barrier of the same place in block `rank` of the cluster. Not with `.release.cluster`: that is a
// fence over the whole GPU each time, and there is nothing to release, as wgmma has ended its reads.
__device__ void barrier_arrive(uint32_t barrier, int rank) {
    asm volatile(
        "{\n"
        ".reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
        "}\n" ::"r"(barrier), "r"(rank)
        : "memory");
}

__device__ void barrier_wait(uint32_t barrier, uint32_t parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}\n" ::"r"(barrier), "r"(parity)
        : "memory");
}

__device__ void load_box(uint32_t target, const CUtensorMap* map, int x, int y, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3}], [%4];" ::"r"(target), "l"(map), "r"(x), "r"(y), "r"(barrier)
        : "memory");
}

__device__ void load_box_into_both(uint32_t target, const CUtensorMap* map, int x, int y, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(target), "l"(map), "r"(x), "r"(y), "r"(barrier),
        "h"((uint16_t)3)
        : "memory");
}

__device__ void store_box(const CUtensorMap* map, uint32_t source, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),
                 "r"(x), "r"(y), "r"(source)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

template <int PENDING>
__device__ void stores_have_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}

template <int CLUSTER>
__device__ void meet() {  // every thread of the block, or of both blocks
    if constexpr (CLUSTER == 1) {
        __syncthreads();
    } else {
        asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
        asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    }
}

// A tile in shared memory as wgmma takes it: 128-byte swizzle; `leading` and `stride` in bytes. K-major: stride
// from 8 rows to the next 8 (leading is not used). MN-major: leading from 64 columns to the next 64, stride
// from 8 rows of k to the next 8.
__device__ uint64_t tile(uint32_t address, int leading, int stride) {
    return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)(leading >> 4) << 16 |
           (uint64_t)(stride >> 4) << 32 | (uint64_t)1 << 62;
}

#define F8(d, i) \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
        "+f"(d[i + 6]), "+f"(d[i + 7])
#define MULTIPLY(TYPE) \
    asm volatile( \
        "{\n" \
        ".reg .pred keep;\n" \
        "setp.ne.b32 keep, %130, 0;\n" \
        "wgmma.mma_async.sync.aligned.m64n256k16.f32." TYPE "." TYPE " {" \
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22," \
        "%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43," \
        "%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,%64," \
        "%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85," \
        "%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104," \
        "%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120," \
        "%121,%122,%123,%124,%125,%126,%127" \
        "}, %128, %129, keep, 1, 1, 0, 1;\n" \
        "}\n" \
        : F8(sums, 0), F8(sums, 8), F8(sums, 16), F8(sums, 24), F8(sums, 32), F8(sums, 40), \
          F8(sums, 48), F8(sums, 56), F8(sums, 64), F8(sums, 72), F8(sums, 80), F8(sums, 88), \
          F8(sums, 96), F8(sums, 104), F8(sums, 112), F8(sums, 120) \
        : "l"(a), "l"(b), "r"(keep))

// sums (64 x 256 over the warpgroup) = a (64 x 16) times b (16 x 256), plus the old sums if `keep`.
__device__ void multiply(float (&sums)[128], uint64_t a, uint64_t b, int keep) {
    if constexpr (std::is_same<a_t, __half>::value) {
        MULTIPLY("f16");
    } else {
        MULTIPLY("bf16");
    }
}

__device__ uint32_t pack(float low, float high) {
    uint32_t result;
    if constexpr (std::is_same<a_t, __half>::value)
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
    else
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
    return result;
}

// ---- the kernel -------------------------------------------------------------------------------------

// Which tile comes `index`-th. With clusters an index stands for two tiles, one under the other.
struct Order {
    int rows, columns;  // of tiles, or of pairs of tiles
    int band;

    __device__ int count() const { return rows * columns; }
    __device__ int2 at(int index) const {  // {row, column}
        int whole = band * columns, first = index / whole * band;
        int height = min(band, rows - first), rest = index % whole;
        return make_int2(first + rest % height, rest / height);
    }
};

struct Ring {  // where a role is in the ring of stages
    int stage = 0;
    uint32_t parity = 0;

    __device__ void next() {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
};

template <int CLUSTER>
__device__ void produce(const CUtensorMap* a, const CUtensorMap* b, uint32_t stages, uint32_t full,
                        uint32_t empty, Order order, int slices, int rank) {
    Ring ring;
    for (int index = blockIdx.x / CLUSTER; index < order.count(); index += gridDim.x / CLUSTER) {
        int2 place = order.at(index);
        int row = (place.x * CLUSTER + rank) * TILE_M, column = place.y * TILE_N;
        for (int slice = 0; slice < slices; ++slice, ring.next()) {
            uint32_t at = stages + ring.stage * STAGE_BYTES, barrier = full + 8 * ring.stage;
            barrier_wait(empty + 8 * ring.stage, ring.parity ^ 1);  // passes at once in the first round
            barrier_expect(barrier, STAGE_BYTES);
            load_box(at, a, slice * TILE_K, row, barrier);
            constexpr int HALF = TILE_N / BOX / CLUSTER;  // boxes of B that this block fetches
#pragma unroll
            for (int i = 0; i < HALF; ++i) {
                int box = rank * HALF + i;
                uint32_t target = at + A_BYTES + box * (TILE_K * BOX * 2);
                if constexpr (CLUSTER == 1)
                    load_box(target, b, column + box * BOX, slice * TILE_K, barrier);
                else
                    load_box_into_both(target, b, column + box * BOX, slice * TILE_K, barrier);
            }
        }
    }
}

template <int CLUSTER>
__device__ void consume(const CUtensorMap* c, uint32_t stages, uint32_t staging, uint32_t full, uint32_t empty,
                        Order order, int slices, int rank) {
    int group = __shfl_sync(~0u, threadIdx.x / 128 - 1, 0);  // the same for the warp, and known to be
    int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
    staging += group * 2 * C_BOX_BYTES;
    Ring ring;
    float sums[128];
    for (int index = blockIdx.x / CLUSTER; index < order.count(); index += gridDim.x / CLUSTER) {
        int previous = -1;
        for (int slice = 0; slice < slices; ++slice, ring.next()) {
            uint32_t at = stages + ring.stage * STAGE_BYTES;
            barrier_wait(full + 8 * ring.stage, ring.parity);
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (int k = 0; k < TILE_K; k += 16)
                multiply(sums, tile(at + group * 64 * 128 + k * 2, 16, 1024),
                         tile(at + A_BYTES + k * 128, TILE_K * 128, 1024), slice > 0 || k > 0);
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            // The products of the slice before are done now: its stage is free, in both blocks.
            asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
            if (previous >= 0 && lane < CLUSTER) barrier_arrive(empty + 8 * previous, lane);
            previous = ring.stage;
        }
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        // The compiler does not know that wgmma ends later than it begins: keep it from reading sums earlier.
#pragma unroll
        for (int i = 0; i < 128; ++i) asm volatile("" : "+f"(sums[i])::"memory");
        if (lane < CLUSTER) barrier_arrive(empty + 8 * previous, lane);

        // Thread's sums: rows warp * 16 + lane / 4 (and 8 below), columns 8 j + lane % 4 * 2 (and one right).
        int2 place = order.at(index);
        int row = (place.x * CLUSTER + rank) * TILE_M + group * 64, column = place.y * TILE_N;
        int matrix_row = warp * 16 + lane % 16;
#pragma unroll
        for (int box = 0; box < TILE_N / BOX; ++box) {
            uint32_t target = staging + (box & 1) * C_BOX_BYTES;
            if (threadIdx.x % 128 == 0) stores_have_read<1>();  // the store before last
            asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
#pragma unroll
            for (int j = 0; j < BOX / 8; j += 2) {  // four 8 x 8 matrices: 16 rows, 16 columns
                const float* s = sums + (box * (BOX / 8) + j) * 4;
                int chunk = (j + lane / 16) ^ (matrix_row & 7);
                asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                                 target + matrix_row * 128 + chunk * 16),
                             "r"(pack(s[0], s[1])), "r"(pack(s[2], s[3])), "r"(pack(s[4], s[5])),
                             "r"(pack(s[6], s[7]))
                             : "memory");
            }
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
            if (threadIdx.x % 128 == 0) store_box(c, target, column + box * BOX, row);
        }
    }
    if (threadIdx.x % 128 == 0) stores_have_read<0>();
}

template <int CLUSTER>
__global__ void __launch_bounds__(THREADS, 1)
    matmul(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
           const __grid_constant__ CUtensorMap c, Order order, int slices) {
    extern __shared__ uint8_t memory[];
    __shared__ uint64_t barriers[2 * STAGES];
    uint32_t stages = (shared_address(memory) + 1023) / 1024 * 1024;
    uint32_t staging = stages + STAGES * STAGE_BYTES;
    uint32_t full = shared_address(barriers), empty = full + 8 * STAGES;
    int rank = CLUSTER == 1 ? 0 : blockIdx.x % CLUSTER;

    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            barrier_init(full + 8 * stage, 1);
            barrier_init(empty + 8 * stage, CLUSTER * CONSUMERS * 4);  // one arrival a consuming warp
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    meet<CLUSTER>();
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) produce<CLUSTER>(&a, &b, stages, full, empty, order, slices, rank);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        consume<CLUSTER>(&c, stages, staging, full, empty, order, slices, rank);
    }
    __syncwarp();     // the producing thread comes last
    meet<CLUSTER>();  // nobody leaves while the other block still writes into its shared memory
}

// ---- sizes that the copy engine cannot take ---------------------------------------------------------

__global__ void multiply_plainly(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, int64_t k) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i >= m * n) return;
    int64_t row = i / n, column = i % n;
    float sum = 0.0f;
    for (int64_t p = 0; p < k; ++p) sum += float(a[row * k + p]) * float(b[p * n + column]);
    c[i] = c_t(sum);
}

// ---- host -------------------------------------------------------------------------------------------

static CUtensorMap describe(const void* matrix, int64_t rows, int64_t columns, int box_rows) {
    static decltype(&cuTensorMapEncodeTiled) encode = nullptr;
    if (!encode) {
        void* found = nullptr;
        cudaDriverEntryPointQueryResult status;
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &status);
        encode = reinterpret_cast<decltype(encode)>(found);
    }
    CUtensorMapDataType type = std::is_same<a_t, __half>::value ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                                                : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    CUtensorMap map;
    cuuint64_t extents[2] = {(cuuint64_t)columns, (cuuint64_t)rows}, pitch[1] = {(cuuint64_t)columns * 2};
    cuuint32_t box[2] = {BOX, (cuuint32_t)box_rows}, steps[2] = {1, 1};
    encode(&map, type, 2, const_cast<void*>(matrix), extents, pitch, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
           CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return map;
}

template <int CLUSTER>
static void launch(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, int64_t k, cudaStream_t stream) {
    int rows = (int)((m + CLUSTER * TILE_M - 1) / (CLUSTER * TILE_M));
    Order order{rows, (int)((n + TILE_N - 1) / TILE_N), BAND / CLUSTER};
    int device = 0, multiprocessors = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    int64_t wanted = (int64_t)order.rows * order.columns, clusters = multiprocessors / CLUSTER;

    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = CLUSTER;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)((wanted < clusters ? wanted : clusters) * CLUSTER));
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = SHARED_BYTES;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    cudaFuncSetAttribute(matmul<CLUSTER>, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES);
    cudaLaunchKernelEx(&config, matmul<CLUSTER>, describe(a, m, k, TILE_M), describe(b, k, n, TILE_K),
                       describe(c, m, n, 64), order, (int)((k + TILE_K - 1) / TILE_K));
}

extern "C" void solve(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, int64_t k,
                      cudaStream_t stream) {
    if (n % 8 != 0 || k % 8 != 0)
        multiply_plainly<<<(unsigned)((m * n + 255) / 256), 256, 0, stream>>>(a, b, c, m, n, k);
    else if (m <= TILE_M)  // one row of tiles: nothing to share
        launch<1>(a, b, c, m, n, k, stream);
    else
        launch<2>(a, b, c, m, n, k, stream);
}
