// Attention on Hopper's tensor cores: TMA, wgmma, warp specialisation, softmax hidden behind products.
//
// The idea. A block owns 64 queries for each of its consuming warpgroups and walks over the keys in tiles of
// 128, newest first. Scores never leave registers: a warpgroup multiplies its queries with a tile of keys out
// of shared memory (wgmma), takes the online softmax in registers, and feeds the weights back to wgmma as its
// register operand to multiply them with the values. The register layouts of a result and of an operand
// match, so turning scores into weights is nothing but rounding in place.
//
// While the softmax of one tile runs on the ordinary units, the tensor cores work on the product of weights
// and values of the tile before: the product with the *next* keys is started first, then the one with the old
// values, and only the first is waited for. The warpgroups of a block drift apart, too, and fill each other's
// gaps. One more warpgroup only feeds: a thread of it asks the copy engine for tiles of K and V, each in a
// ring of two stages, and gives its registers away (setmaxnreg).
//
// Keys are walked from the last to the first, so that masked tiles come first and all others need no test.
// Where there is a mask, blocks with more keys start first. The softmax works in base 2: exp(scale x) is
// exp2(scale log2(e) x), one multiplication fused with the subtraction of the maximum.
//
// Layouts. Tiles lie in shared memory as the copy engine's 128-byte swizzle leaves them, in boxes 64 elements
// wide: Q and K row by row along the head (K-major), V with a row for each key (MN-major: wgmma transposes).
// The copy engine also takes one head's rows out of the positions, where all heads lie side by side.
#include <cuda.h>
#include <cuda_fp16.h>

#include "solve.h"

constexpr int KEYS = 128, STAGES = 2, BOX = 64;  // a box is 64 elements, 128 bytes, wide
constexpr int BOXES = HEAD_DIM / BOX;
constexpr int CONSUMERS = HEAD_DIM == 64 ? 3 : 2;
constexpr int QUERIES = 64 * CONSUMERS, THREADS = 128 * (CONSUMERS + 1);
constexpr int FEEDING_REGISTERS = HEAD_DIM == 64 ? 32 : 24, CONSUMING_REGISTERS = HEAD_DIM == 64 ? 160 : 240;
constexpr int Q_BOX_BYTES = 64 * 128, KV_BOX_BYTES = KEYS * 128;
constexpr int Q_BYTES = CONSUMERS * BOXES * Q_BOX_BYTES, TILE_BYTES = BOXES * KV_BOX_BYTES;
constexpr int SHARED_BYTES = Q_BYTES + 2 * STAGES * TILE_BYTES + 1024;  // 1024: to align the swizzle
constexpr float LOG2_E = 1.4426950408889634f;

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

__device__ void barrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
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

__device__ void load_box(uint32_t target, const CUtensorMap* map, int element, int head, int position,
                         int sequence, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(target), "l"(map), "r"(element), "r"(head), "r"(position),
        "r"(sequence), "r"(barrier)
        : "memory");
}

__device__ void store_box(const CUtensorMap* map, uint32_t source, int element, int head, int position,
                          int sequence) {
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(map),
                 "r"(element), "r"(head), "r"(position), "r"(sequence), "r"(source)
                 : "memory");
}

__device__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ uint32_t pack(float low, float high) {
    uint32_t result;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
    return result;
}

// A tile in shared memory as wgmma takes it: 128-byte swizzle; `leading` and `stride` in bytes. K-major: stride
// from 8 rows to the next 8 (leading is not used). MN-major: leading from 64 columns to the next 64, stride
// from 8 rows of k to the next 8.
__device__ uint64_t tile(uint32_t address, int leading, int stride) {
    return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)(leading >> 4) << 16 |
           (uint64_t)(stride >> 4) << 32 | (uint64_t)1 << 62;
}

__device__ void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Wait until at most PENDING groups of products are unfinished; `result` is what the finished ones wrote. The
// empty statements keep the compiler from reading it earlier: it does not know that wgmma ends later.
template <int PENDING, int COUNT>
__device__ void products_wait(float (&result)[COUNT]) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
#pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(result[i])::"memory");
}

#define F8(d, i) \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
        "+f"(d[i + 6]), "+f"(d[i + 7])
#define MULTIPLY_KEYS(TYPE) \
    asm volatile( \
        "{\n" \
        ".reg .pred keep;\n" \
        "setp.ne.b32 keep, %66, 0;\n" \
        "wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE " {" \
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22," \
        "%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43," \
        "%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63" \
        "}, %64, %65, keep, 1, 1, 0, 0;\n" \
        "}\n" \
        : F8(scores, 0), F8(scores, 8), F8(scores, 16), F8(scores, 24), F8(scores, 32), F8(scores, 40), \
          F8(scores, 48), F8(scores, 56) \
        : "l"(q), "l"(k), "r"(keep))
#define MULTIPLY_VALUES_128(TYPE) \
    asm volatile( \
        "{\n" \
        ".reg .pred keep;\n" \
        "setp.ne.b32 keep, %69, 0;\n" \
        "wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE " {" \
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22," \
        "%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43," \
        "%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63" \
        "}, {%64,%65,%66,%67}, %68, keep, 1, 1, 1;\n" \
        "}\n" \
        : F8(sums, 0), F8(sums, 8), F8(sums, 16), F8(sums, 24), F8(sums, 32), F8(sums, 40), \
          F8(sums, 48), F8(sums, 56) \
        : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "l"(v), "r"(keep))
#define MULTIPLY_VALUES_64(TYPE) \
    asm volatile( \
        "{\n" \
        ".reg .pred keep;\n" \
        "setp.ne.b32 keep, %37, 0;\n" \
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE " {" \
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22," \
        "%23,%24,%25,%26,%27,%28,%29,%30,%31" \
        "}, {%32,%33,%34,%35}, %36, keep, 1, 1, 1;\n" \
        "}\n" \
        : F8(sums, 0), F8(sums, 8), F8(sums, 16), F8(sums, 24) \
        : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "l"(v), "r"(keep))

// scores (64 x 128 over the warpgroup) = q (64 x 16) times k transposed (16 x 128), plus the old if `keep`.
__device__ void multiply_keys(float (&scores)[64], uint64_t q, uint64_t k, int keep) {
    MULTIPLY_KEYS("f16");
}

// sums (64 x HEAD_DIM over the warpgroup) = w (64 x 16, in registers) times v (16 x HEAD_DIM), likewise.
__device__ void multiply_values(float (&sums)[HEAD_DIM / 2], const uint32_t* w, uint64_t v, int keep) {
#if HEAD_DIM == 128
    MULTIPLY_VALUES_128("f16");
#else
    MULTIPLY_VALUES_64("f16");
#endif
}

// ---- the kernel -------------------------------------------------------------------------------------

struct Ring {  // where a role is in a ring of stages
    int stage = 0;
    uint32_t parity = 0;

    __device__ void next() {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
};

// Addresses in shared memory; barriers are eight bytes each.
struct Places {
    uint32_t q, k, v;                                       // tiles
    uint32_t q_full, k_full, k_empty, v_full, v_empty;      // barriers
};

// What a block works on.
struct Work {
    int head, sequence;
    int first_query, tiles;
    int q_len, kv_len;

    // How many keys, from the first on, query i sees.
    __device__ int visible(int i) const { return CAUSAL ? min(i + 1, kv_len) : kv_len; }
};

__device__ void feed_tile(const CUtensorMap* map, uint32_t tiles, uint32_t full, uint32_t empty, Ring& ring,
                          int key, const Work& work) {
    uint32_t barrier = full + 8 * ring.stage;
    barrier_wait(empty + 8 * ring.stage, ring.parity ^ 1);  // passes at once in the first round
    barrier_expect(barrier, TILE_BYTES);
#pragma unroll
    for (int box = 0; box < BOXES; ++box)
        load_box(tiles + ring.stage * TILE_BYTES + box * KV_BOX_BYTES, map, box * BOX, work.head, key,
                 work.sequence, barrier);
    ring.next();
}

__device__ void feed(const CUtensorMap* q, const CUtensorMap* k, const CUtensorMap* v, const Places& at,
                     const Work& work) {
    barrier_expect(at.q_full, Q_BYTES);
#pragma unroll
    for (int box = 0; box < CONSUMERS * BOXES; ++box)
        load_box(at.q + box * Q_BOX_BYTES, q, box % BOXES * BOX, work.head, work.first_query + box / BOXES * 64,
                 work.sequence, at.q_full);
    Ring keys, values;
    for (int t = work.tiles - 1; t >= 0; --t) {
        feed_tile(k, at.k, at.k_full, at.k_empty, keys, t * KEYS, work);
        if (t < work.tiles - 1)
            feed_tile(v, at.v, at.v_full, at.v_empty, values, (t + 1) * KEYS, work);
    }
    feed_tile(v, at.v, at.v_full, at.v_empty, values, 0, work);
}

// A thread's part of a 64 x 128 result: value 4 j + e lies in column 8 j + lane % 4 * 2 + e % 2 and in row
// warp * 16 + lane / 4 + e / 2 * 8. So a thread has two rows, and four neighbouring lanes share them.
struct Softmax {
    float largest[2] = {-INFINITY, -INFINITY};  // of the scores so far, unscaled
    float total[2] = {0.0f, 0.0f};              // of this thread's weights
    float shrink[2];                            // by which older sums shrink after the last step

    // Turn scores into weights.
    __device__ void step(float (&scores)[64], float scale2) {
#pragma unroll
        for (int row = 0; row < 2; ++row) {
            float larger = largest[row];
#pragma unroll
            for (int j = 0; j < 16; ++j)
                larger = fmaxf(larger, fmaxf(scores[4 * j + 2 * row], scores[4 * j + 2 * row + 1]));
            larger = fmaxf(larger, __shfl_xor_sync(0xffffffffu, larger, 1));
            larger = fmaxf(larger, __shfl_xor_sync(0xffffffffu, larger, 2));
            // A row that has seen no key yet: exp2(-inf - 0), not exp2(-inf + inf).
            float base = larger == -INFINITY ? 0.0f : larger * scale2;
            shrink[row] = exp2_fast(fmaf(largest[row], scale2, -base));
            largest[row] = larger;
            float sum = 0.0f;
#pragma unroll
            for (int j = 0; j < 16; ++j)
#pragma unroll
                for (int i = 4 * j + 2 * row; i < 4 * j + 2 * row + 2; ++i) {
                    scores[i] = exp2_fast(fmaf(scores[i], scale2, -base));
                    sum += scores[i];
                }
            total[row] = fmaf(total[row], shrink[row], sum);
        }
    }

    __device__ void finish() {
#pragma unroll
        for (int row = 0; row < 2; ++row) {
            total[row] += __shfl_xor_sync(0xffffffffu, total[row], 1);
            total[row] += __shfl_xor_sync(0xffffffffu, total[row], 2);
        }
    }
};

__device__ void consume(const CUtensorMap* o_map, const Places& at, const Work& work, float scale) {
    int group = threadIdx.x / 128 - 1, warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
    int first_row = work.first_query + group * 64;             // of the warpgroup
    int row = first_row + warp * 16 + lane / 4;                // of the thread; its other one is 8 below
    uint32_t q = at.q + group * BOXES * Q_BOX_BYTES;
    float scores[64], sums[HEAD_DIM / 2], scale2 = scale * LOG2_E;
    uint32_t weights[32];
    Softmax softmax;
    Ring keys, values;

    auto start_scores = [&] {
        uint32_t k = at.k + keys.stage * TILE_BYTES;
#pragma unroll
        for (int d = 0; d < HEAD_DIM; d += 16)
            multiply_keys(scores, tile(q + d / BOX * Q_BOX_BYTES + d % BOX * 2, 16, 1024),
                          tile(k + d / BOX * KV_BOX_BYTES + d % BOX * 2, 16, 1024), d > 0);
        products_commit();
    };
    auto start_sums = [&](int keep) {
        uint32_t v = at.v + values.stage * TILE_BYTES;
#pragma unroll
        for (int key = 0; key < KEYS; key += 16)
            multiply_values(sums, weights + key / 4, tile(v + key * 128, KV_BOX_BYTES, 1024), keep || key > 0);
        products_commit();
    };
    auto mask = [&](int first_key) {
        // Nearly all tiles lie within what the first query of the warpgroup sees.
        if (first_key + KEYS <= work.visible(first_row)) return;
#pragma unroll
        for (int i = 0; i < 64; ++i) {
            int key = first_key + i / 4 * 8 + lane % 4 * 2 + i % 2;
            if (key >= work.visible(row + i % 4 / 2 * 8)) scores[i] = -INFINITY;
        }
    };
    auto round_weights = [&] {
#pragma unroll
        for (int i = 0; i < 32; ++i) weights[i] = pack(scores[2 * i], scores[2 * i + 1]);
    };
    auto release = [&](uint32_t empty, Ring& ring) {
        if (lane == 0) barrier_arrive(empty + 8 * ring.stage);
        ring.next();
    };

    barrier_wait(at.q_full, 0);
    barrier_wait(at.k_full, 0);
    products_begin();
    start_scores();
    products_wait<0>(scores);
    release(at.k_empty, keys);
    mask((work.tiles - 1) * KEYS);
    softmax.step(scores, scale2);
    round_weights();

    for (int t = work.tiles - 2; t >= 0; --t) {
        barrier_wait(at.k_full + 8 * keys.stage, keys.parity);
        products_begin();
        start_scores();
        barrier_wait(at.v_full + 8 * values.stage, values.parity);
        products_begin();
        start_sums(t < work.tiles - 2);
        products_wait<1>(scores);
        release(at.k_empty, keys);
        mask(t * KEYS);
        softmax.step(scores, scale2);
        products_wait<0>(sums);
        release(at.v_empty, values);
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 2; ++i) sums[i] *= softmax.shrink[i % 4 / 2];
        round_weights();
    }
    barrier_wait(at.v_full + 8 * values.stage, values.parity);
    products_begin();
    start_sums(work.tiles > 1);
    softmax.finish();
    products_wait<0>(sums);

    // The queries of this warpgroup are used up: o goes out through their place.
    float inverse[2] = {1.0f / softmax.total[0], 1.0f / softmax.total[1]};
    int matrix_row = warp * 16 + lane % 16;
#pragma unroll
    for (int j = 0; j < HEAD_DIM / 8; j += 2) {  // four 8 x 8 matrices: 16 rows, 16 columns
        const float* s = sums + 4 * j;
        int chunk = (j % 8 + lane / 16) ^ (matrix_row & 7);
        uint32_t target = q + j / 8 * Q_BOX_BYTES + matrix_row * 128 + chunk * 16;
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(target),
                     "r"(pack(s[0] * inverse[0], s[1] * inverse[0])),
                     "r"(pack(s[2] * inverse[1], s[3] * inverse[1])),
                     "r"(pack(s[4] * inverse[0], s[5] * inverse[0])),
                     "r"(pack(s[6] * inverse[1], s[7] * inverse[1]))
                     : "memory");
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
    if (threadIdx.x % 128 == 0 && first_row < work.q_len) {
#pragma unroll
        for (int box = 0; box < BOXES; ++box)
            store_box(o_map, q + box * Q_BOX_BYTES, box * BOX, work.head, first_row, work.sequence);
        asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;" ::: "memory");
    }
}

__global__ void __launch_bounds__(THREADS, 1)
    attend(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k,
           const __grid_constant__ CUtensorMap v, const __grid_constant__ CUtensorMap o, int heads, int q_len,
           int kv_len, float scale) {
    extern __shared__ uint8_t memory[];
    __shared__ uint64_t barriers[1 + 4 * STAGES];
    Places at;
    at.q = (shared_address(memory) + 1023) / 1024 * 1024;
    at.k = at.q + Q_BYTES;
    at.v = at.k + STAGES * TILE_BYTES;
    at.q_full = shared_address(barriers);
    at.k_full = at.q_full + 8;
    at.k_empty = at.k_full + 8 * STAGES;
    at.v_full = at.k_empty + 8 * STAGES;
    at.v_empty = at.v_full + 8 * STAGES;

    // Full: queries of one head side by side, they share keys in L2. Masked: long ones first, of all heads.
    Work work;
    work.head = (CAUSAL ? blockIdx.x : blockIdx.y) % heads;
    work.sequence = (CAUSAL ? blockIdx.x : blockIdx.y) / heads;
    work.first_query = (CAUSAL ? gridDim.y - 1 - blockIdx.y : blockIdx.x) * QUERIES;
    work.q_len = q_len;
    work.kv_len = kv_len;
    work.tiles = (work.visible(min(work.first_query + QUERIES, q_len) - 1) + KEYS - 1) / KEYS;

    if (threadIdx.x == 0) {
        barrier_init(at.q_full, 1);
        for (int stage = 0; stage < STAGES; ++stage) {
            barrier_init(at.k_full + 8 * stage, 1);
            barrier_init(at.v_full + 8 * stage, 1);
            barrier_init(at.k_empty + 8 * stage, CONSUMERS * 4);  // one arrival a consuming warp
            barrier_init(at.v_empty + 8 * stage, CONSUMERS * 4);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(FEEDING_REGISTERS));
        if (threadIdx.x == 0) feed(&q, &k, &v, at, work);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(CONSUMING_REGISTERS));
        consume(&o, at, work, scale);
    }
}

// ---- host -------------------------------------------------------------------------------------------

// batch sequences of `length` positions of `heads` rows, in boxes of `rows` positions and 64 elements of one head.
static CUtensorMap describe(const void* tensor, int64_t batch, int64_t length, int64_t heads, int rows) {
    static decltype(&cuTensorMapEncodeTiled) encode = nullptr;
    if (!encode) {
        void* found = nullptr;
        cudaDriverEntryPointQueryResult status;
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &status);
        encode = reinterpret_cast<decltype(encode)>(found);
    }
    CUtensorMap map;
    cuuint64_t row = HEAD_DIM * 2, position = row * heads;  // bytes
    cuuint64_t extents[4] = {HEAD_DIM, (cuuint64_t)heads, (cuuint64_t)length, (cuuint64_t)batch};
    cuuint64_t pitches[3] = {row, position, position * length};
    cuuint32_t box[4] = {BOX, 1, (cuuint32_t)rows, 1}, steps[4] = {1, 1, 1, 1};
    encode(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4, const_cast<void*>(tensor), extents, pitches, box, steps,
           CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
           CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return map;
}

extern "C" void solve(const q_t* q, const k_t* k, const v_t* v, o_t* o, int64_t batch, int64_t heads,
                      int64_t q_len, int64_t kv_len, float scale, cudaStream_t stream) {
    unsigned pieces = (unsigned)((q_len + QUERIES - 1) / QUERIES), all_heads = (unsigned)(batch * heads);
    dim3 blocks(CAUSAL ? all_heads : pieces, CAUSAL ? pieces : all_heads);
    cudaFuncSetAttribute(attend, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES);
    attend<<<blocks, THREADS, SHARED_BYTES, stream>>>(
        describe(q, batch, q_len, heads, 64), describe(k, batch, kv_len, heads, KEYS),
        describe(v, batch, kv_len, heads, KEYS), describe(o, batch, q_len, heads, 64), (int)heads, (int)q_len,
        (int)kv_len, scale);
}
