// Calls: recursion, structs by value, function pointers, jump tables, module variables.
struct Pair { int a; double b; char c[20]; };
__device__ int numbers[4] = {1, 2, 3, 4};
__device__ int* middle = &numbers[1];
__constant__ float weights[16] = {1.5f, 2.5f};
static __device__ int counter = 40;

__device__ __noinline__ int triple(int x) { return x * 3; }
__device__ __noinline__ int square(int x) { return x * x; }
typedef int (*Function)(int);
__device__ Function table[2] = {triple, square};

__device__ __noinline__ Pair grow(Pair p, int k) {
  p.a += k;
  p.b *= k;
  p.c[k] = 'a' + k;
  if (k > 1) p = grow(p, k - 1);
  return p;
}
extern "C" __global__ void structs(int* out, Pair p, int k) {
  const Pair r = grow(p, k);
  out[0] = r.a;
  out[1] = int(r.b);
  for (int i = 0; i < 20; i++) out[2 + i] = r.c[i];
}
extern "C" __global__ void pointers(int* out, int n) {
  for (int i = 0; i < n; i++) out[i] = table[(i + threadIdx.x) & 1](i);
}
extern "C" __global__ void variables(int* out, int i) {
  out[0] = middle[i] + numbers[i];
  out[1] = int(weights[i] * 2);
  out[2] = counter;
  numbers[3] = 77;
}
extern "C" __global__ void read_variables(int* out) { out[3] = numbers[3] + counter; }

__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
extern "C" __global__ void fib(int* out) { out[threadIdx.x] = fibonacci(threadIdx.x); }

__device__ __noinline__ void sort(int* v, int n) {
  for (int i = 1; i < n; i++)
    for (int j = i; j > 0 && v[j - 1] > v[j]; j--) { int t = v[j]; v[j] = v[j - 1]; v[j - 1] = t; }
}
// The same function sorts local, shared and global memory through generic pointers.
extern "C" __global__ void generic(int* out) {
  __shared__ int s[16];
  int l[16];
  for (int i = 0; i < 16; i++) l[i] = (i * 7 + 3) % 16, s[i] = (i * 5 + 1) % 16, out[32 + i] = (i * 11 + 2) % 16;
  sort(l, 16);
  sort(s, 16);
  sort(out + 32, 16);
  for (int i = 0; i < 16; i++) out[i] = l[i], out[16 + i] = s[i];
  out[48] = __isShared(s) | __isLocal(l) << 1 | __isGlobal(out) << 2 | __isShared(out) << 3 | __isConstant(weights) << 4;
}
// The branch table is written by hand: nvcc seldom makes one.
extern "C" __global__ void jump(int* out, int n) {
  int i = threadIdx.x, r = 0;
  asm volatile(
      "{\n\t"
      "T: .branchtargets A, B, C;\n\t"
      "brx.idx %1, T;\n\t"
      "A: mov.u32 %0, 10;\n\t bra.uni D;\n\t"
      "B: mov.u32 %0, 20;\n\t bra.uni D;\n\t"
      "C: mov.u32 %0, 30;\n\t"
      "D:\n\t}"
      : "+r"(r) : "r"(i % n));
  out[threadIdx.x] = r;
}
extern "C" __global__ void carry(unsigned long long* out, const unsigned long long* in) {
  unsigned __int128 a = (unsigned __int128)in[0] << 64 | in[1], b = (unsigned __int128)in[2] << 64 | in[3];
  unsigned __int128 s = a + b, p = a * b, d = a - b;
  out[0] = s >> 64; out[1] = s; out[2] = p >> 64; out[3] = p; out[4] = d >> 64; out[5] = d;
}
extern "C" __global__ void library(double* out, double x) {
  out[0] = sin(x); out[1] = exp(x); out[2] = pow(x, 1.7); out[3] = erf(x); out[4] = log1p(x); out[5] = tgamma(x);
}
struct Big { float v[300]; };
extern "C" __global__ void big_parameter(float* out, Big b, int n) { out[threadIdx.x] = b.v[(threadIdx.x * 7 + n) % 300]; }
