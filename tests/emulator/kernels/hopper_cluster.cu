// Blocks of a cluster: addresses, distributed shared memory, barriers, multicast.
#include <cooperative_groups.h>
#include <cuda.h>
#include <stdint.h>
namespace cg = cooperative_groups;

static __device__ uint32_t address(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
static __device__ uint32_t rank() {
  uint32_t r;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}
static __device__ uint32_t peer(uint32_t a, uint32_t r) {
  uint32_t out;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(r));
  return out;
}
static __device__ void meet() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
static __device__ void init(uint32_t barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\nfence.mbarrier_init.release.cluster;" ::"r"(barrier), "r"(count) : "memory");
}
static __device__ void expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
static __device__ void wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}\n" ::"r"(barrier), "r"(parity) : "memory");
}

// --- who is who -------------------------------------------------------------------------------------

static __device__ void registers(uint32_t* out) {
  uint32_t v[16];
  asm("mov.u32 %0, %%cluster_ctaid.x;" : "=r"(v[0]));
  asm("mov.u32 %0, %%cluster_ctaid.y;" : "=r"(v[1]));
  asm("mov.u32 %0, %%cluster_ctaid.z;" : "=r"(v[2]));
  asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(v[3]));
  asm("mov.u32 %0, %%cluster_nctaid.y;" : "=r"(v[4]));
  asm("mov.u32 %0, %%cluster_nctaid.z;" : "=r"(v[5]));
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(v[6]));
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(v[7]));
  asm("mov.u32 %0, %%clusterid.x;" : "=r"(v[8]));
  asm("mov.u32 %0, %%clusterid.y;" : "=r"(v[9]));
  asm("mov.u32 %0, %%clusterid.z;" : "=r"(v[10]));
  asm("mov.u32 %0, %%nclusterid.x;" : "=r"(v[11]));
  asm("mov.u32 %0, %%nclusterid.y;" : "=r"(v[12]));
  asm("mov.u32 %0, %%nclusterid.z;" : "=r"(v[13]));
  asm("{.reg .pred p; mov.pred p, %%is_explicit_cluster; selp.u32 %0, 1, 0, p;}" : "=r"(v[14]));
  v[15] = 77;
  uint32_t block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  for (int i = 0; i < 16; i++) out[block * 16 + i] = v[i];
}
extern "C" __global__ void identity(uint32_t* out) { registers(out); }
extern "C" __global__ void __cluster_dims__(2, 1, 2) compiled_identity(uint32_t* out) { registers(out); }

extern "C" __global__ void addresses(uint32_t* out) {
  __shared__ int value;
  uint32_t r = rank(), mine = address(&value), other = peer(mine, 1 - r), back = peer(other, r), from, generic_rank;
  asm("getctarank.shared::cluster.u32 %0, %1;" : "=r"(from) : "r"(other));
  uint64_t generic = (uint64_t)&value, far;
  asm("mapa.u64 %0, %1, %2;" : "=l"(far) : "l"(generic), "r"(1 - r));
  asm("getctarank.u64 %0, %1;" : "=r"(generic_rank) : "l"(far));
  uint32_t cta, cluster, round = address((const void*)far);
  asm("{.reg .pred p; isspacep.shared::cta p, %1; selp.u32 %0, 1, 0, p;}" : "=r"(cta) : "l"(far));
  asm("{.reg .pred p; isspacep.shared::cluster p, %1; selp.u32 %0, 1, 0, p;}" : "=r"(cluster) : "l"(far));
  uint64_t generic_again;
  asm("cvta.shared::cluster.u64 %0, %1;" : "=l"(generic_again) : "l"((uint64_t)other));
  uint32_t results[] = {back == mine, from == 1 - r, generic_rank == 1 - r, round == other, cta, cluster, generic_again == far, far != generic};
  for (int i = 0; i < 8; i++) out[blockIdx.x * 8 + i] = results[i];
  meet();
}

// --- distributed shared memory ------------------------------------------------------------------------

extern "C" __global__ void exchange(const int* in, int* out) {
  __shared__ int values[32];
  __shared__ int sum;
  uint32_t r = rank(), n;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(n));
  if (threadIdx.x == 0) sum = 0;
  values[threadIdx.x] = in[blockIdx.x * 32 + threadIdx.x];
  meet();
  int got;
  asm volatile("ld.shared::cluster.s32 %0, [%1];" : "=r"(got) : "r"(peer(address(&values[threadIdx.x]), (r + 1) % n)) : "memory");
  asm volatile("red.shared::cluster.add.s32 [%0], %1;" ::"r"(peer(address(&sum), 0)), "r"(got) : "memory");
  int seen;
  asm volatile("atom.shared::cluster.or.b32 %0, [%1], 0;" : "=r"(seen) : "r"(peer(address(&values[31 - threadIdx.x]), (r + 2) % n)) : "memory");
  meet();
  asm volatile("st.shared::cluster.s32 [%0], %1;" ::"r"(peer(address(&values[threadIdx.x]), (r + n - 1) % n)), "r"(got * 100 + (int)r) : "memory");
  meet();
  out[(blockIdx.x * 32 + threadIdx.x) * 4] = got;
  out[(blockIdx.x * 32 + threadIdx.x) * 4 + 1] = seen;
  out[(blockIdx.x * 32 + threadIdx.x) * 4 + 2] = values[threadIdx.x];
  out[(blockIdx.x * 32 + threadIdx.x) * 4 + 3] = sum;
}
// The same through generic pointers and cooperative groups; a histogram spread over the cluster.
extern "C" __global__ void histogram(const int* in, int n, int* out, int bins) {
  extern __shared__ int part[];
  cg::cluster_group cluster = cg::this_cluster();
  for (int i = threadIdx.x; i < bins; i += blockDim.x) part[i] = 0;
  cluster.sync();
  for (int i = cluster.thread_rank(); i < n; i += cluster.num_threads()) {
    int* remote = cluster.map_shared_rank(part, in[i] / bins);
    atomicAdd(remote + in[i] % bins, 1);
  }
  cluster.sync();
  for (int i = threadIdx.x; i < bins; i += blockDim.x) out[cluster.block_rank() * bins + i] = part[i];
  if (cluster.thread_rank() == 0) out[cluster.num_blocks() * bins] = cluster.dim_blocks().x * 10 + cluster.query_shared_rank(part);
}
extern "C" __global__ void cluster_sum(const float* in, float* out) {
  __shared__ float partial;
  cg::cluster_group cluster = cg::this_cluster();
  auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  float v = in[blockIdx.x * 32 + threadIdx.x];
  for (int i = 16; i; i /= 2) v += warp.shfl_down(v, i);
  if (threadIdx.x == 0) partial = v;
  auto token = cluster.barrier_arrive();
  cluster.barrier_wait(std::move(token));
  if (cluster.block_rank() == 0 && threadIdx.x == 0) {
    float total = 0;
    for (unsigned r = 0; r < cluster.num_blocks(); r++) total += *cluster.map_shared_rank(&partial, r);
    out[blockIdx.x / cluster.num_blocks()] = total;
  }
  cluster.sync();
}

// --- barriers of other blocks, st.async, red.async, copies between blocks, multicast ---------------------

extern "C" __global__ void remote_arrivals(int* out) {
  __shared__ uint64_t barrier;
  __shared__ int values[32];
  uint32_t r = rank(), n, b = address(&barrier);
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(n));
  if (threadIdx.x == 0) init(b, 32 * n);
  meet();
  values[threadIdx.x] = 10 * r + threadIdx.x;
  for (uint32_t i = 0; i < n; i++)
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(peer(b, i)) : "memory");
  wait(b, 0);
  int got;
  asm volatile("ld.shared::cluster.s32 %0, [%1];" : "=r"(got) : "r"(peer(address(&values[threadIdx.x]), (r + 1) % n)) : "memory");
  out[blockIdx.x * 32 + threadIdx.x] = got;
  meet();
}
extern "C" __global__ void async_stores(int* out) {
  __shared__ uint64_t barrier;
  __shared__ __align__(16) int words[4];
  __shared__ __align__(16) long long longs[2];
  __shared__ uint32_t sums[3];
  uint32_t r = rank(), b = address(&barrier), other = peer(b, 1 - r);
  init(b, 1);
  sums[0] = 5, sums[1] = 0xff, sums[2] = 7;
  expect(b, 16 + 8 + 8 + 12);
  meet();
#define SIGNAL ".shared::cluster.mbarrier::complete_tx::bytes"
  asm volatile("st.async.weak" SIGNAL ".v4.s32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(peer(address(words), 1 - r)), "r"(r + 1), "r"(r + 2), "r"(r + 3), "r"(r + 4), "r"(other) : "memory");
  asm volatile("st.async" SIGNAL ".b64 [%0], %1, [%2];" ::"r"(peer(address(longs), 1 - r)), "l"(123456789012ll + r), "r"(other) : "memory");
  asm volatile("st.async" SIGNAL ".v2.b32 [%0], {%1, %2}, [%3];" ::"r"(peer(address(longs + 1), 1 - r)), "r"(r), "r"(9), "r"(other) : "memory");
  asm volatile("red.async.relaxed.cluster" SIGNAL ".add.u32 [%0], %1, [%2];" ::"r"(peer(address(sums), 1 - r)), "r"(r + 1), "r"(other) : "memory");
  asm volatile("red.async.relaxed.cluster" SIGNAL ".and.b32 [%0], %1, [%2];" ::"r"(peer(address(sums + 1), 1 - r)), "r"(0x3c), "r"(other) : "memory");
  asm volatile("red.async.relaxed.cluster" SIGNAL ".inc.u32 [%0], %1, [%2];" ::"r"(peer(address(sums + 2), 1 - r)), "r"(6), "r"(other) : "memory");
  wait(b, 0);
  int* o = out + blockIdx.x * 11;
  for (int i = 0; i < 4; i++) o[i] = words[i];
  for (int i = 0; i < 4; i++) o[4 + i] = ((int*)longs)[i];
  for (int i = 0; i < 3; i++) o[8 + i] = sums[i];
  meet();
}
extern "C" __global__ void block_to_block(const int* in, int* out) {
  __shared__ __align__(16) int source[64], target[64];
  __shared__ uint64_t barrier;
  uint32_t r = rank(), n, b = address(&barrier);
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(n));
  for (int i = threadIdx.x; i < 64; i += 32) source[i] = in[blockIdx.x * 64 + i], target[i] = 1000;
  if (threadIdx.x == 0) {
    init(b, 1);
    expect(b, 256 + 128);
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  meet();
  if (threadIdx.x == 0) {
    uint32_t to = (r + 1) % n;
    asm volatile("cp.async.bulk.shared::cluster.shared::cta" ".mbarrier::complete_tx::bytes [%0], [%1], 128, [%2];" ::"r"(peer(address(target), to)), "r"(address(source)), "r"(peer(b, to)) : "memory");
    asm volatile("cp.reduce.async.bulk.shared::cluster.shared::cta" ".mbarrier::complete_tx::bytes.add.s32 [%0], [%1], 128, [%2];" ::"r"(peer(address(target + 32), to)), "r"(address(source + 32)), "r"(peer(b, to)) : "memory");
    asm volatile("cp.reduce.async.bulk.shared::cluster.shared::cta" ".mbarrier::complete_tx::bytes.max.s32 [%0], [%1], 128, [%2];" ::"r"(peer(address(target + 32), to)), "r"(address(source)), "r"(peer(b, to)) : "memory");
  }
  wait(b, 0);
  for (int i = threadIdx.x; i < 64; i += 32) out[blockIdx.x * 64 + i] = target[i];
  meet();
}
extern "C" __global__ void multicast(const __grid_constant__ CUtensorMap map, const float* line, float* out) {
  extern __shared__ __align__(1024) uint8_t memory[];  // 1 KiB a rank: the box that it fetched; then a line
  __shared__ uint64_t barrier;
  uint32_t r = rank(), n, b = address(&barrier);
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(n));
  if (threadIdx.x == 0) {
    init(b, 1);
    uint32_t lines = r == n - 1 ? 0 : 512;  // the last block gets no line
    expect(b, 1024 * n + lines);
  }
  for (uint32_t i = threadIdx.x; i < 128; i += blockDim.x) ((float*)(memory + 1024 * n))[i] = -1;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  meet();
  if (threadIdx.x == 0) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(address(memory + 1024 * r)), "l"(&map),
                 "r"(0), "r"(r * 8), "r"(b), "h"((uint16_t)((1 << n) - 1)) : "memory");
    if (r == 1)
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint [%0], [%1], %2, [%3], %4, %5;" ::"r"(address(memory + 1024 * n)), "l"(line), "r"(512), "r"(b),
                   "h"((uint16_t)((1 << (n - 1)) - 1)), "l"(0x12f0000000000000ull) : "memory");
  }
  wait(b, 0);
  uint32_t floats = 256 * n + 128;
  for (uint32_t i = threadIdx.x; i < floats; i += blockDim.x) out[blockIdx.x * floats + i] = ((float*)memory)[i];
  meet();
}

// --- wrong ----------------------------------------------------------------------------------------------

extern "C" __global__ void access_after_exit(int* out) {
  __shared__ int value;
  value = rank();
  meet();
  if (rank() == 1) return;
  for (volatile int i = 0; i < 200000; i++) {}
  asm volatile("ld.shared::cluster.s32 %0, [%1];" : "=r"(out[0]) : "r"(peer(address(&value), 1)) : "memory");
}
extern "C" __global__ void generic_access_after_exit(int* out) {
  __shared__ int value;
  cg::cluster_group cluster = cg::this_cluster();
  int* other = cluster.map_shared_rank(&value, 1);
  cluster.sync();
#pragma unroll 1
  for (int round = 0; round < 2; round++) {
    if (round && rank() == 1) return;
    if (round)
      for (volatile int i = 0; i < 200000; i++) {}
    *(volatile int*)other = round;  // block 1 comes here once, with an address of its own
  }
}
extern "C" __global__ void access_before_begin(int* out) {
  __shared__ int value;
  if (rank() == 0) asm volatile("st.shared::cluster.s32 [%0], 1;" ::"r"(peer(address(&value), 1)) : "memory");
  meet();
  out[0] = value;
}
extern "C" __global__ void rank_too_large(int* out) {
  __shared__ int value;
  meet();
  asm volatile("ld.shared::cluster.s32 %0, [%1];" : "=r"(out[0]) : "r"(peer(address(&value), 2)) : "memory");
}
extern "C" __global__ void past_the_end(int* out) {
  __shared__ int value[8];
  value[threadIdx.x] = 0;
  meet();
  asm volatile("ld.shared::cluster.s32 %0, [%1];" : "=r"(out[0]) : "r"(peer(address(value), 1) + 32) : "memory");
  meet();
}
extern "C" __global__ void own_space_only(int* out) {
  __shared__ int value[8];
  value[threadIdx.x] = 0;
  meet();
  asm volatile("ld.shared::cta.s32 %0, [%1];" : "=r"(out[0]) : "r"(peer(address(value), 1 - rank())) : "memory");
}
extern "C" __global__ void barrier_in_another_block(const int* in) {
  __shared__ __align__(16) int target[64];
  __shared__ uint64_t barrier;
  init(address(&barrier), 1);
  expect(address(&barrier), 128);
  meet();
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 128, [%2];" ::"r"(address(target)), "l"(in), "r"(peer(address(&barrier), 1 - rank())) : "memory");
  meet();
}
extern "C" __global__ void mask_too_large(const int* in) {
  __shared__ __align__(16) int target[64];
  __shared__ uint64_t barrier;
  init(address(&barrier), 1);
  expect(address(&barrier), 128);
  meet();
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], 128, [%2], %3;" ::"r"(address(target)), "l"(in), "r"(address(&barrier)), "h"((uint16_t)7) : "memory");
  meet();
}
extern "C" __global__ void wait_without_arrive() { asm volatile("barrier.cluster.wait;" ::: "memory"); }
extern "C" __global__ void arrive_twice() {
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
  asm volatile("barrier.cluster.arrive;" ::: "memory");
}
// One block waits for an arrival that the other forgets.
extern "C" __global__ void forgotten_arrival() {
  __shared__ uint64_t barrier;
  init(address(&barrier), 2);
  meet();
  uint32_t other = peer(address(&barrier), 1 - rank());
  if (rank() == 0) asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(other) : "memory");
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address(&barrier)) : "memory");
  wait(address(&barrier), 0);  // block 0 waits for ever
  meet();                      // and block 1 here
}
// Threads that have left are not waited for at the cluster's barrier.
extern "C" __global__ void some_leave(int* out) {
  if (threadIdx.x % 2) return;
  meet();
  meet();
  atomicAdd(out, 1);
}
// A block without a cluster is a cluster of one.
extern "C" __global__ void alone(int* out) {
  __shared__ int value;
  value = 5;
  meet();
  asm volatile("ld.shared::cluster.s32 %0, [%1];" : "=r"(out[0]) : "r"(peer(address(&value), 0)) : "memory");
}
