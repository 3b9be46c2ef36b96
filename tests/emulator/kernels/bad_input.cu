// What a candidate may ask for to break its judge: endless work, endless memory, wild calls.
__device__ __noinline__ int down(int n, volatile int* p);
__device__ __noinline__ int up(int n, volatile int* p) { return down(n + 1, p) + p[n & 31]; }
__device__ __noinline__ int down(int n, volatile int* p) { return n < 0 ? p[0] : up(n + 2, p) + p[n & 15]; }
extern "C" __global__ void recurse_for_ever(int* out) { out[threadIdx.x] = down(1, out); }

typedef int (*Step)(unsigned long long, volatile int*);
__device__ __noinline__ int again(unsigned long long self, volatile int* p) { return ((Step)self)(self, p) + p[1]; }
extern "C" __global__ void recurse_by_pointer(int* out) { out[0] = again((unsigned long long)&again, out); }

extern "C" __global__ void count_far(unsigned long long* out, unsigned long long rounds) {
  unsigned long long x = out[1];
  for (unsigned long long i = 0; i < rounds; i++)
    x = x * 6364136223846793005ull + i;  // the hot line
  out[0] = x;
}

extern "C" __global__ void much_local(int* out, int n) {
  volatile int mine[100000];
  for (int i = 0; i < n; i++) mine[i] = i;
  __syncthreads();
  out[threadIdx.x] = mine[(out[0] & 1) + n - 1];
}

extern "C" __global__ void any_shape(unsigned* out) {
  if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) atomicAdd(out, 1u);
}

extern "C" __global__ void shared_to_the_end(unsigned* out, unsigned bytes) {
  extern __shared__ unsigned char every[];
  every[bytes - 1] = 7;
  out[0] = every[bytes - 1];
}
