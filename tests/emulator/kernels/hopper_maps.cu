// Tensor maps that kernels make themselves: a template is copied to shared memory, fields are replaced, the
// result goes to global memory, and a box is loaded by it. Raw bytes of shared memory come out.
#include <cuda.h>
#include <stdint.h>

static __device__ uint32_t address(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }

struct Change {
  uint64_t base;      // 0: unchanged
  uint32_t dims[2];   // 0: unchanged
  uint64_t stride;
  uint32_t box[2];
  uint32_t step;
  uint32_t swizzle, fill, type, rank;  // all ones: unchanged (values are immediates: only 0 to 3, 1, 9 and 1)
};

#define REPLACE(FIELD, TYPE) "tensormap.replace.tile." FIELD ".shared::cta.b1024." TYPE " [%0], "
#define SET(FIELD, VALUE) asm volatile(REPLACE(FIELD, "b32") #VALUE ";" ::"r"(m) : "memory")

static __device__ void change(uint32_t m, const Change& c) {
  if (c.base) asm volatile(REPLACE("global_address", "b64") "%1;" ::"r"(m), "l"(c.base) : "memory");
  if (c.dims[0]) asm volatile(REPLACE("global_dim", "b32") "0, %1;" ::"r"(m), "r"(c.dims[0]) : "memory");
  if (c.dims[1]) asm volatile(REPLACE("global_dim", "b32") "1, %1;" ::"r"(m), "r"(c.dims[1]) : "memory");
  if (c.stride) asm volatile(REPLACE("global_stride", "b64") "0, %1;" ::"r"(m), "l"(c.stride) : "memory");
  if (c.box[0]) asm volatile(REPLACE("box_dim", "b32") "0, %1;" ::"r"(m), "r"(c.box[0]) : "memory");
  if (c.box[1]) asm volatile(REPLACE("box_dim", "b32") "1, %1;" ::"r"(m), "r"(c.box[1]) : "memory");
  if (c.step) asm volatile(REPLACE("element_stride", "b32") "1, %1;" ::"r"(m), "r"(c.step) : "memory");
  if (c.swizzle == 0) SET("swizzle_mode", 0);
  if (c.swizzle == 1) SET("swizzle_mode", 1);
  if (c.swizzle == 2) SET("swizzle_mode", 2);
  if (c.swizzle == 3) SET("swizzle_mode", 3);
  if (c.fill == 1) SET("fill_mode", 1);
  if (c.type == 9) SET("elemtype", 9);
  if (c.type == 10) SET("elemtype", 10);
  if (c.rank == 1) asm volatile(REPLACE("rank", "b32") "%1;" ::"r"(m), "r"(1) : "memory");
}

static __device__ void load_box(const CUtensorMap* map, int x, int y, uint32_t bytes, uint8_t* out) {
  extern __shared__ uint8_t memory[];
  __shared__ uint64_t barrier;
  uint8_t* box = memory + (1024 - address(memory) % 1024) % 1024;
  for (uint32_t i = threadIdx.x; i < (bytes + 127) / 128 * 128; i += blockDim.x) box[i] = 0xee;
  if (threadIdx.x == 0)
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\nfence.proxy.async.shared::cta;" ::"r"(address(&barrier)) : "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(&barrier)), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
                     address(box)), "l"(map), "r"(x), "r"(y), "r"(address(&barrier)) : "memory");
  }
  asm volatile(
      "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n@!done bra again;\n}\n" ::"r"(
          address(&barrier)) : "memory");
  for (uint32_t i = threadIdx.x; i < (bytes + 127) / 128 * 128; i += blockDim.x) out[i] = box[i];
}

// One warp. `made` is room for the new map in global memory.
extern "C" __global__ void remade(const __grid_constant__ CUtensorMap from, const Change c, CUtensorMap* made, int x, int y,
                                  uint32_t bytes, uint8_t* out) {
  __shared__ alignas(128) CUtensorMap map;
  if (threadIdx.x < 32) ((uint32_t*)&map)[threadIdx.x] = ((const uint32_t*)&from)[threadIdx.x];
  __syncwarp();
  if (threadIdx.x == 0) change(address(&map), c);
  __syncwarp();
  asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;" ::"l"(
                   made), "r"(address(&map)) : "memory");
  load_box(made, x, y, bytes, out);
}

// The map lies in global memory and is changed there, by a global and by a generic address.
extern "C" __global__ void remade_in_place(CUtensorMap* map, uint64_t base, int x, int y, uint32_t bytes, uint8_t* out) {
  if (threadIdx.x == 0) {
    asm volatile("tensormap.replace.tile.global_address.global.b1024.b64 [%0], %1;" ::"l"(__cvta_generic_to_global(map)), "l"(base) : "memory");
    asm volatile("tensormap.replace.tile.global_dim.b1024.b32 [%0], 1, %1;" ::"l"(map), "r"(7) : "memory");
    asm volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory");
  }
  __syncthreads();
  load_box(map, x, y, bytes, out);
}

extern "C" __global__ void no_map() {
  __shared__ alignas(128) uint64_t map[16];
  const uint32_t m = address(map);
  if (threadIdx.x == 0) map[0] = 1;
  if (threadIdx.x == 0) SET("fill_mode", 1);
}
