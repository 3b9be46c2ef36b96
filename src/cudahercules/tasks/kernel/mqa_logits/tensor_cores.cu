// FP8 tensor cores, a warp for eight keys at a time.
//
// A block takes one query. All its heads are the rows of one operand (HEADS x 128), which every warp keeps in
// registers for as long as it lives; the other operand is eight keys, read straight from global memory, because
// a fragment of four consecutive bytes is what a lane needs. The epilogue stays in registers: each lane weighs
// its rows' scores after the ReLU, and three shuffles add up the eight lanes that hold the same two keys.
#include "solve.h"

constexpr int WARPS = 8, TILE = 8, ROWS = HEADS / 16, STEPS = HEAD_DIM / 32;

__device__ void multiply(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__global__ void __launch_bounds__(WARPS * 32) scores(const q_t* q, const k_t* k, const k_scale_t* k_scale,
                                                     const w_t* w, const first_t* first, const end_t* end,
                                                     logits_t* logits, int64_t keys, int64_t columns) {
    int64_t i = blockIdx.x;
    int warp = threadIdx.x / 32, group = threadIdx.x % 32 / 4, within = threadIdx.x % 4;
    int64_t from = first[i], to = end[i];

    // Words of four bytes: a head has 32, and this lane's lie at `within` and `within` + 4 of each step's eight.
    const uint32_t* query = (const uint32_t*)(q + i * HEADS * HEAD_DIM);
    uint32_t a[ROWS][STEPS][4];
    float weight[ROWS][2];
    for (int r = 0; r < ROWS; ++r) {
        int head = r * 16 + group;
        weight[r][0] = w[i * HEADS + head];
        weight[r][1] = w[i * HEADS + head + 8];
        for (int s = 0; s < STEPS; ++s)
            for (int part = 0; part < 4; ++part)
                a[r][s][part] = query[(head + part % 2 * 8) * (HEAD_DIM / 4) + s * 8 + part / 2 * 4 + within];
    }

    for (int64_t tile = (int64_t)warp * TILE; tile < columns; tile += WARPS * TILE) {
        float logit[2] = {};
        if (tile < to && tile + TILE > from) {
            int64_t key = tile + group < keys ? tile + group : keys - 1;
            const uint32_t* words = (const uint32_t*)(k + key * HEAD_DIM);
            uint32_t b[STEPS][2];
            for (int s = 0; s < STEPS; ++s) {
                b[s][0] = words[s * 8 + within];
                b[s][1] = words[s * 8 + 4 + within];
            }
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                float sum[4] = {};
#pragma unroll
                for (int s = 0; s < STEPS; ++s) multiply(sum, a[r][s], b[s][0], b[s][1]);
                logit[0] += weight[r][0] * fmaxf(sum[0], 0.0f) + weight[r][1] * fmaxf(sum[2], 0.0f);
                logit[1] += weight[r][0] * fmaxf(sum[1], 0.0f) + weight[r][1] * fmaxf(sum[3], 0.0f);
            }
            for (int lane = 4; lane < 32; lane *= 2) {
                logit[0] += __shfl_xor_sync(0xffffffffu, logit[0], lane);
                logit[1] += __shfl_xor_sync(0xffffffffu, logit[1], lane);
            }
        }
        if (group < 2) {  // two lanes write what eight have
            int64_t j = tile + within * 2 + group;
            bool inside = j >= from && j < to;
            if (j < columns) logits[i * columns + j] = inside ? logit[group] * k_scale[j] : -INFINITY;
        }
    }
}

extern "C" void solve(const q_t* q, const k_t* k, const k_scale_t* k_scale, const w_t* w, const first_t* first,
                      const end_t* end, logits_t* logits, int64_t queries, int64_t keys, int64_t columns,
                      cudaStream_t stream) {
    scores<<<(unsigned)queries, WARPS * 32, 0, stream>>>(q, k, k_scale, w, first, end, logits, keys, columns);
}
