// ldmatrix, stmatrix, movmatrix: raw registers of every lane.
#include <stdint.h>

__device__ uint32_t shared_address(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }

// The image is 1024 halves; lane l names row rows[l] of 16 bytes.
#define LOAD(NAME, COUNT, TRANS, OUTPUTS, LIST)                                                                   \
  extern "C" __global__ void NAME(const uint32_t* image, const uint32_t* rows, uint32_t* out) {                   \
    __shared__ __align__(16) uint32_t memory[512];                                                                \
    for (int i = threadIdx.x; i < 512; i += 32) memory[i] = image[i];                                             \
    __syncwarp();                                                                                                 \
    uint32_t d[4] = {7, 7, 7, 7};                                                                                 \
    const uint32_t at = shared_address(memory) + rows[threadIdx.x] * 16;                                          \
    asm volatile("ldmatrix.sync.aligned.m8n8." COUNT TRANS ".shared.b16 " LIST ", [%4];"                          \
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]) : "r"(at));                                     \
    for (int i = 0; i < 4; i++) out[threadIdx.x * 4 + i] = d[i];                                                  \
  }
LOAD(load1, "x1", "", 1, "{%0}")
LOAD(load2, "x2", "", 2, "{%0, %1}")
LOAD(load4, "x4", "", 4, "{%0, %1, %2, %3}")
LOAD(load1t, "x1", ".trans", 1, "{%0}")
LOAD(load2t, "x2", ".trans", 2, "{%0, %1}")
LOAD(load4t, "x4", ".trans", 4, "{%0, %1, %2, %3}")

#define STORE(NAME, COUNT, TRANS, LIST)                                                                           \
  extern "C" __global__ void NAME(const uint32_t* values, const uint32_t* rows, uint32_t* image) {                \
    __shared__ __align__(16) uint32_t memory[512];                                                                \
    for (int i = threadIdx.x; i < 512; i += 32) memory[i] = 0xabababab;                                           \
    __syncwarp();                                                                                                 \
    const uint32_t* v = values + threadIdx.x * 4;                                                                 \
    const uint32_t at = shared_address(memory) + rows[threadIdx.x] * 16;                                          \
    asm volatile("stmatrix.sync.aligned.m8n8." COUNT TRANS ".shared.b16 [%4], " LIST ";" ::"r"(v[0]), "r"(v[1]),  \
                 "r"(v[2]), "r"(v[3]), "r"(at) : "memory");                                                       \
    __syncwarp();                                                                                                 \
    for (int i = threadIdx.x; i < 512; i += 32) image[i] = memory[i];                                             \
  }
STORE(store1, "x1", "", "{%0}")
STORE(store2, "x2", "", "{%0, %1}")
STORE(store4, "x4", "", "{%0, %1, %2, %3}")
STORE(store1t, "x1", ".trans", "{%0}")
STORE(store2t, "x2", ".trans", "{%0, %1}")
STORE(store4t, "x4", ".trans", "{%0, %1, %2, %3}")

extern "C" __global__ void move(const uint32_t* in, uint32_t* out) {
  uint32_t d;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(d) : "r"(in[threadIdx.x]));
  out[threadIdx.x] = d;
}

// A generic address, and one that is not a multiple of 16.
extern "C" __global__ void generic_load(const uint32_t* image, int skew, uint32_t* out) {
  __shared__ __align__(16) uint32_t memory[512];
  for (int i = threadIdx.x; i < 512; i += 32) memory[i] = image[i];
  __syncwarp();
  uint32_t d;
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.b16 {%0}, [%1];" : "=r"(d) : "l"((char*)(memory + threadIdx.x * 4) + skew));
  out[threadIdx.x] = d;
}
