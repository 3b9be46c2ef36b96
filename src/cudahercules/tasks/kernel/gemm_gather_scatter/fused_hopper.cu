// One kernel: rows gathered into a ring of stages, tensor cores of warp groups, additions straight from registers.
//
// The idea. Nothing but the operands and D travels: no copy of the gathered rows, no matrix of products. A
// block of three warp groups owns a tile of 128 pairs. The first group gathers: eight threads share a row of 64
// elements (128 bytes) and fetch 16 bytes each with cp.async, to the place where the 128-byte swizzle wants
// them; each thread looks up its eight rows once a tile. B has rows at a fixed distance, so one thread asks the
// copy engine for it. Both arrive at the same mbarrier: 128 arrivals by cp.async, one by the thread that
// expects B's bytes. The other two groups multiply out of shared memory (wgmma), 64 pairs each. What cp.async
// wrote must be made visible to them: fence.proxy.async.
//
// The ends. A consumer looks up the targets of its two rows and adds its sums to D with red.v2: four
// neighbouring lanes cover a sector of 32 bytes. Rows may repeat, within a tile and between blocks; the
// additions are atomic. Meanwhile the producer fills the ring for the next tile. Tiles are taken in bands of 16
// tiles of pairs, so that columns of B in flight are shared in L2. Narrow D (128 columns or fewer) gets a
// narrower tile and more stages.
//
// Rows must begin at multiples of 16 bytes; other sizes go to a plain kernel at the end of this file.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "solve.h"

constexpr int TILE_M = 128, TILE_K = 64, THREADS = 384;
constexpr int BOX = 64;  // elements of a swizzled row: 128 bytes
constexpr int BAND = 16;
constexpr int A_BYTES = TILE_M * TILE_K * 2;

template <int TILE_N>
struct Shape {
    static constexpr int stages = TILE_N == 128 ? 6 : 4;
    static constexpr int b_bytes = TILE_K * TILE_N * 2, stage_bytes = A_BYTES + b_bytes;
    static constexpr int shared_bytes = stages * stage_bytes + 1024;  // 1024: to align the swizzle
};

// ---- what PTX offers and C++ does not ---------------------------------------------------------------

__device__ uint32_t shared_address(const void* pointer) { return (uint32_t)__cvta_generic_to_shared(pointer); }

__device__ void barrier_init(uint32_t barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

__device__ void barrier_expect(uint32_t barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ void barrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrive when all copies that this thread has asked for so far are done.
__device__ void barrier_arrive_after_copies(uint32_t barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
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

// 16 bytes, or zeros.
__device__ void copy_16(uint32_t target, const void* source, bool inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(source), "r"(inside ? 16 : 0)
                 : "memory");
}

__device__ void load_box(uint32_t target, const CUtensorMap* map, int x, int y, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3}], [%4];" ::"r"(target), "l"(map), "r"(x), "r"(y), "r"(barrier)
        : "memory");
}

__device__ void add_pair(float* target, float left, float right) {
    asm volatile("red.global.add.v2.f32 [%0], {%1, %2};" ::"l"(target), "f"(left), "f"(right) : "memory");
}

// A tile in shared memory as wgmma takes it: 128-byte swizzle; `leading` and `stride` in bytes. K-major: stride
// from 8 rows to the next 8 (leading is not used). MN-major: leading from 64 columns to the next 64, stride
// from 8 rows of k to the next 8.
__device__ uint64_t tile(uint32_t address, int leading, int stride) {
    return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)(leading >> 4) << 16 | (uint64_t)(stride >> 4) << 32 |
           (uint64_t)1 << 62;
}

#define F8(d, i) \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
        "+f"(d[i + 7])
#define F64(d, i) \
    F8(d, i), F8(d, i + 8), F8(d, i + 16), F8(d, i + 24), F8(d, i + 32), F8(d, i + 40), F8(d, i + 48), F8(d, i + 56)
#define NAMES_64 \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28," \
    "%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55," \
    "%56,%57,%58,%59,%60,%61,%62,%63"
#define NAMES_128 \
    NAMES_64 \
    ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90," \
    "%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113," \
    "%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define MULTIPLY(N, TYPE, NAMES, A, B, KEEP, ...) \
    asm volatile( \
        "{\n" \
        ".reg .pred keep;\n" \
        "setp.ne.b32 keep, %" #KEEP ", 0;\n" \
        "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" NAMES "}, %" #A ", %" #B \
        ", keep, 1, 1, 0, 1;\n" \
        "}\n" \
        : __VA_ARGS__ \
        : "l"(a), "l"(b), "r"(keep))

constexpr bool HALF = std::is_same<a_t, __half>::value;

// sums (64 x 256 or 64 x 128 over the warp group) = a (64 x 16) times b (16 x N), plus the old sums if `keep`.
__device__ void multiply(float (&sums)[128], uint64_t a, uint64_t b, int keep) {
    if constexpr (HALF)
        MULTIPLY(256, "f16", NAMES_128, 128, 129, 130, F64(sums, 0), F64(sums, 64));
    else
        MULTIPLY(256, "bf16", NAMES_128, 128, 129, 130, F64(sums, 0), F64(sums, 64));
}

__device__ void multiply(float (&sums)[64], uint64_t a, uint64_t b, int keep) {
    if constexpr (HALF)
        MULTIPLY(128, "f16", NAMES_64, 64, 65, 66, F64(sums, 0));
    else
        MULTIPLY(128, "bf16", NAMES_64, 64, 65, 66, F64(sums, 0));
}

// ---- the kernel -------------------------------------------------------------------------------------

struct Problem {
    const a_t* a;
    const gather_t* gather;
    const scatter_t* scatter;
    d_t* d;
    int64_t pairs, n, k;
    int rows, columns, slices;  // tiles of pairs, tiles of columns, slices of k

    __device__ int count() const { return rows * columns; }
    __device__ int2 at(int index) const {  // {row, column} of the index-th tile
        int whole = BAND * columns, first = index / whole * BAND;
        int height = min(BAND, rows - first), rest = index % whole;
        return make_int2(first + rest % height, rest / height);
    }
};

template <int STAGES>
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

template <int TILE_N>
__device__ void produce(const Problem& problem, const CUtensorMap* b, uint32_t stages, uint32_t full, uint32_t empty) {
    using Parts = Shape<TILE_N>;
    Ring<Parts::stages> ring;
    int chunk = threadIdx.x % 8, first_row = threadIdx.x / 8;  // this thread's 16 bytes of rows first_row + 16 i
    for (int index = blockIdx.x; index < problem.count(); index += gridDim.x) {
        int2 place = problem.at(index);
        const a_t* rows[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            int64_t pair = place.x * (int64_t)TILE_M + first_row + 16 * i;
            rows[i] = pair < problem.pairs ? problem.a + problem.gather[pair] * problem.k + chunk * 8 : nullptr;
        }
        for (int slice = 0; slice < problem.slices; ++slice, ring.next()) {
            uint32_t at = stages + ring.stage * Parts::stage_bytes, barrier = full + 8 * ring.stage;
            barrier_wait(empty + 8 * ring.stage, ring.parity ^ 1);  // passes at once in the first round
            if (threadIdx.x == 0) {
                barrier_expect(barrier, Parts::b_bytes);
#pragma unroll
                for (int box = 0; box < TILE_N / BOX; ++box)
                    load_box(at + A_BYTES + box * (TILE_K * BOX * 2), b, place.y * TILE_N + box * BOX, slice * TILE_K,
                             barrier);
            }
            bool in_row = slice * TILE_K + chunk * 8 < problem.k;  // k is a multiple of 8: all 16 bytes or none
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                int row = first_row + 16 * i;
                bool inside = in_row && rows[i] != nullptr;
                copy_16(at + row * 128 + ((chunk ^ (row & 7)) << 4), inside ? rows[i] + slice * TILE_K : problem.a,
                        inside);
            }
            barrier_arrive_after_copies(barrier);
        }
    }
}

template <int TILE_N>
__device__ void consume(const Problem& problem, uint32_t stages, uint32_t full, uint32_t empty) {
    using Parts = Shape<TILE_N>;
    int group = threadIdx.x / 128 - 1, warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
    Ring<Parts::stages> ring;
    float sums[TILE_N / 2];
    for (int index = blockIdx.x; index < problem.count(); index += gridDim.x) {
        int previous = -1;
        for (int slice = 0; slice < problem.slices; ++slice, ring.next()) {
            uint32_t at = stages + ring.stage * Parts::stage_bytes;
            barrier_wait(full + 8 * ring.stage, ring.parity);
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (int k = 0; k < TILE_K; k += 16)
                multiply(sums, tile(at + group * 64 * 128 + k * 2, 16, 1024),
                         tile(at + A_BYTES + k * 128, TILE_K * 128, 1024), slice > 0 || k > 0);
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            // The products of the slice before are done now: its stage is free.
            asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
            if (previous >= 0 && lane == 0) barrier_arrive(empty + 8 * previous);
            previous = ring.stage;
        }
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        // The compiler does not know that wgmma ends later than it begins: keep it from reading sums earlier.
#pragma unroll
        for (int i = 0; i < TILE_N / 2; ++i) asm volatile("" : "+f"(sums[i])::"memory");
        if (lane == 0) barrier_arrive(empty + 8 * previous);

        // Thread's sums: rows warp * 16 + lane / 4 (and 8 below), columns 8 j + lane % 4 * 2 (and one right).
        int2 place = problem.at(index);
        int64_t column = place.y * (int64_t)TILE_N + lane % 4 * 2;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            int64_t pair = place.x * (int64_t)TILE_M + group * 64 + warp * 16 + lane / 4 + 8 * half;
            if (pair >= problem.pairs) continue;
            d_t* row = problem.d + problem.scatter[pair] * problem.n + column;
#pragma unroll
            for (int j = 0; j < TILE_N / 8; ++j)
                if (column + 8 * j < problem.n)
                    add_pair(row + 8 * j, sums[4 * j + 2 * half], sums[4 * j + 2 * half + 1]);
        }
    }
}

template <int TILE_N>
__global__ void __launch_bounds__(THREADS, 1)
    multiply_rows(const __grid_constant__ CUtensorMap b, const __grid_constant__ Problem problem) {
    using Parts = Shape<TILE_N>;
    extern __shared__ uint8_t memory[];
    __shared__ uint64_t barriers[2 * Parts::stages];
    uint32_t stages = (shared_address(memory) + 1023) / 1024 * 1024;
    uint32_t full = shared_address(barriers), empty = full + 8 * Parts::stages;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < Parts::stages; ++stage) {
            barrier_init(full + 8 * stage, 128 + 1);
            barrier_init(empty + 8 * stage, 8);  // one arrival a consuming warp
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
        produce<TILE_N>(problem, &b, stages, full, empty);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 224;");
        consume<TILE_N>(problem, stages, full, empty);
    }
}

// ---- sizes whose rows do not begin at multiples of 16 bytes -------------------------------------------

__global__ void multiply_plainly(const b_t* b, Problem problem) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i >= problem.pairs * problem.n) return;
    int64_t pair = i / problem.n, column = i % problem.n;
    const a_t* row = problem.a + problem.gather[pair] * problem.k;
    float sum = 0.0f;
    for (int64_t p = 0; p < problem.k; ++p) sum += float(row[p]) * float(b[p * problem.n + column]);
    atomicAdd(problem.d + problem.scatter[pair] * problem.n + column, sum);
}

// ---- host -------------------------------------------------------------------------------------------

static CUtensorMap describe(const void* matrix, int64_t rows, int64_t columns) {
    static decltype(&cuTensorMapEncodeTiled) encode = nullptr;
    if (!encode) {
        void* found = nullptr;
        cudaDriverEntryPointQueryResult status;
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &status);
        encode = reinterpret_cast<decltype(encode)>(found);
    }
    CUtensorMap map;
    cuuint64_t extents[2] = {(cuuint64_t)columns, (cuuint64_t)rows}, pitch[1] = {(cuuint64_t)columns * 2};
    cuuint32_t box[2] = {BOX, TILE_K}, steps[2] = {1, 1};
    encode(&map, HALF ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2,
           const_cast<void*>(matrix), extents, pitch, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
           CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return map;
}

template <int TILE_N>
static void launch(const b_t* b, Problem problem, cudaStream_t stream) {
    problem.columns = (int)((problem.n + TILE_N - 1) / TILE_N);
    int device = 0, multiprocessors = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    int64_t tiles = (int64_t)problem.rows * problem.columns;
    int bytes = Shape<TILE_N>::shared_bytes;
    cudaFuncSetAttribute(multiply_rows<TILE_N>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    multiply_rows<TILE_N><<<(unsigned)(tiles < multiprocessors ? tiles : multiprocessors), THREADS, bytes, stream>>>(
        describe(b, problem.k, problem.n), problem);
}

extern "C" void solve(const a_t* a, const b_t* b, const gather_t* gather, const scatter_t* scatter, d_t* d,
                      int64_t pairs, int64_t rows_a, int64_t rows_d, int64_t n, int64_t k, cudaStream_t stream) {
    Problem problem{a, gather, scatter, d, pairs, n, k};
    problem.rows = (int)((pairs + TILE_M - 1) / TILE_M);
    problem.slices = (int)((k + TILE_K - 1) / TILE_K);
    if (n % 8 != 0 || k % 8 != 0)
        multiply_plainly<<<(unsigned)((pairs * n + 255) / 256), 256, 0, stream>>>(b, problem);
    else if (n <= 128)
        launch<128>(b, problem, stream);
    else
        launch<256>(b, problem, stream);
}
