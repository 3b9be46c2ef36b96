// Shuffles in every mode with any b and c; what each lane gets, and its predicate.
extern "C" __global__ void shuffles(int mode, int b, int c, int* value, int* inside) {
  int d, p;
  const int a = threadIdx.x * 3 + 1, mine = b < 0 ? (threadIdx.x * 5 + 2) % 32 : b;
  if (mode == 0)
    asm volatile("{.reg .pred p; shfl.sync.up.b32 %0|p, %2, %3, %4, -1; selp.s32 %1, 1, 0, p;}" : "=r"(d), "=r"(p) : "r"(a), "r"(mine), "r"(c));
  else if (mode == 1)
    asm volatile("{.reg .pred p; shfl.sync.down.b32 %0|p, %2, %3, %4, -1; selp.s32 %1, 1, 0, p;}" : "=r"(d), "=r"(p) : "r"(a), "r"(mine), "r"(c));
  else if (mode == 2)
    asm volatile("{.reg .pred p; shfl.sync.bfly.b32 %0|p, %2, %3, %4, -1; selp.s32 %1, 1, 0, p;}" : "=r"(d), "=r"(p) : "r"(a), "r"(mine), "r"(c));
  else
    asm volatile("{.reg .pred p; shfl.sync.idx.b32 %0|p, %2, %3, %4, -1; selp.s32 %1, 1, 0, p;}" : "=r"(d), "=r"(p) : "r"(a), "r"(mine), "r"(c));
  value[threadIdx.x] = d;
  inside[threadIdx.x] = p;
}
extern "C" __global__ void specials(unsigned* out) {
  const int i = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const int t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  unsigned lane, warp, lt, ge, dynamic;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  asm volatile("mov.u32 %0, %%warpid;" : "=r"(warp));
  asm volatile("mov.u32 %0, %%lanemask_lt;" : "=r"(lt));
  asm volatile("mov.u32 %0, %%lanemask_ge;" : "=r"(ge));
  asm volatile("mov.u32 %0, %%dynamic_smem_size;" : "=r"(dynamic));
  unsigned* at = out + (i * blockDim.x * blockDim.y * blockDim.z + t) * 5;
  at[0] = lane, at[1] = warp, at[2] = lt, at[3] = ge, at[4] = dynamic;
}
extern "C" __global__ void scratch_contents(const unsigned* scratch, unsigned* out) { out[threadIdx.x] = scratch[threadIdx.x]; }
extern "C" __global__ void half_atomics(unsigned short* h, unsigned* pair, unsigned short* b) {
  unsigned old;
  unsigned short s;
  asm volatile("atom.global.add.noftz.f16 %0, [%1], %2;" : "=h"(s) : "l"(h), "h"((unsigned short)0x3c00) : "memory");
  asm volatile("atom.global.add.noftz.f16x2 %0, [%1], %2;" : "=r"(old) : "l"(pair), "r"(0x3c004000u) : "memory");
  asm volatile("red.global.add.noftz.bf16 [%0], %1;" ::"l"(b), "h"((unsigned short)0x3f80) : "memory");
}
extern "C" __global__ void wide_cas(unsigned long long* p, unsigned long long* out) {
  asm volatile(
      "{.reg .b128 c, n, o; mov.b128 c, {%2, %3}; mov.b128 n, {%4, %5};"
      "atom.global.cas.b128 o, [%6], c, n; mov.b128 {%0, %1}, o;}"
      : "=l"(out[0]), "=l"(out[1]) : "l"(5ull), "l"(6ull), "l"(7ull), "l"(8ull), "l"(p) : "memory");
}
