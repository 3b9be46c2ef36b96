// Tensor cores in TF32 mode, three products for one: single precision from operands split in two.
//
// Read as real numbers A has 2k columns, and if each x + iy of B becomes the square (x, y; -y, x), one real product
// gives C with its parts side by side. A block computes 64 x 64 of those real numbers. It writes the next 32 real
// columns of A and rows of B into shared memory, each number as the nearest TF32 number and the TF32 remainder; each of
// four warps then multiplies 32 x 32: high times low, low times high, high times high (low times low is beyond fp32).
// Tensor cores cut their sums towards zero, so these start from zero in each step and are added up outside.
#include "solve.h"

constexpr int TILE = 64, STEP = 32, THREADS = 128;  // in real numbers
constexpr int PITCH_A = STEP + 4, PITCH_B = TILE + 8;  // no two lanes of a fragment load share a bank

__device__ uint32_t nearest_tf32(float x) {
    uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
}

__device__ void store_split(uint32_t* high, uint32_t* low, float x) {
    *high = nearest_tf32(x);
    *low = nearest_tf32(x - __uint_as_float(*high));
}

// d (16 x 8) += a (16 x 8) b (8 x 8), as the warp's fragments.
__device__ void multiply_add(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__global__ void __launch_bounds__(THREADS) multiply(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, int64_t k) {
    __shared__ uint32_t high_a[TILE][PITCH_A], low_a[TILE][PITCH_A];
    __shared__ uint32_t high_b[STEP][PITCH_B], low_b[STEP][PITCH_B];
    int64_t first_row = blockIdx.y * (int64_t)TILE, first_column = blockIdx.x * (int64_t)(TILE / 2);
    int lane = threadIdx.x % 32, group = lane / 4, place = lane % 4;
    int warp_row = threadIdx.x / 64 * 32, warp_column = threadIdx.x / 32 % 2 * 32;
    float sums[2][4][4] = {};

    for (int64_t from = 0; from < k; from += STEP / 2) {
        for (int i = threadIdx.x; i < TILE * STEP / 2; i += THREADS) {
            int row = i / (STEP / 2), p = i % (STEP / 2);
            bool inside = first_row + row < m && from + p < k;
            float2 x = inside ? a[(first_row + row) * k + from + p] : make_float2(0.0f, 0.0f);
            store_split(&high_a[row][2 * p], &low_a[row][2 * p], x.x);
            store_split(&high_a[row][2 * p + 1], &low_a[row][2 * p + 1], x.y);
        }
        for (int i = threadIdx.x; i < STEP / 2 * TILE / 2; i += THREADS) {
            int p = i / (TILE / 2), column = i % (TILE / 2);
            bool inside = from + p < k && first_column + column < n;
            float2 x = inside ? b[(from + p) * n + first_column + column] : make_float2(0.0f, 0.0f);
            store_split(&high_b[2 * p][2 * column], &low_b[2 * p][2 * column], x.x);
            store_split(&high_b[2 * p][2 * column + 1], &low_b[2 * p][2 * column + 1], x.y);
            store_split(&high_b[2 * p + 1][2 * column], &low_b[2 * p + 1][2 * column], -x.y);
            store_split(&high_b[2 * p + 1][2 * column + 1], &low_b[2 * p + 1][2 * column + 1], x.x);
        }
        __syncthreads();

        float parts[2][4][4] = {};
        for (int p = 0; p < STEP; p += 8) {
            uint32_t left[2][2][4], right[2][4][2];  // {high, low}
            for (int i = 0; i < 2; ++i)
                for (int j = 0; j < 4; ++j) {
                    int row = warp_row + 16 * i + group + 8 * (j % 2), column = p + place + 4 * (j / 2);
                    left[0][i][j] = high_a[row][column];
                    left[1][i][j] = low_a[row][column];
                }
            for (int i = 0; i < 4; ++i)
                for (int j = 0; j < 2; ++j) {
                    int row = p + place + 4 * j, column = warp_column + 8 * i + group;
                    right[0][i][j] = high_b[row][column];
                    right[1][i][j] = low_b[row][column];
                }
            for (int i = 0; i < 2; ++i)
                for (int j = 0; j < 4; ++j) {
                    multiply_add(parts[i][j], left[0][i], right[1][j]);
                    multiply_add(parts[i][j], left[1][i], right[0][j]);
                    multiply_add(parts[i][j], left[0][i], right[0][j]);
                }
        }
        for (int i = 0; i < 2; ++i)
            for (int j = 0; j < 4; ++j)
                for (int e = 0; e < 4; ++e) sums[i][j][e] += parts[i][j][e];
        __syncthreads();
    }

    // A thread's pairs of neighbours are complex numbers.
    for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 4; ++j)
            for (int half = 0; half < 2; ++half) {
                int64_t row = first_row + warp_row + 16 * i + group + 8 * half;
                int64_t column = first_column + (warp_column + 8 * j) / 2 + place;
                if (row < m && column < n)
                    c[row * n + column] = make_float2(sums[i][j][2 * half], sums[i][j][2 * half + 1]);
            }
}

extern "C" void solve(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, int64_t k, cudaStream_t stream) {
    dim3 blocks((unsigned)((2 * n + TILE - 1) / TILE), (unsigned)((m + TILE - 1) / TILE));
    multiply<<<blocks, THREADS, 0, stream>>>(a, b, c, m, n, k);
}
