// The kernels that prepare a sample and look at it afterwards. Nothing here belongs to a candidate.
//
// Inputs are filled by generator.cuh. This file holds the rest: eviction of L2, wiping what a
// candidate could have left in shared memory, registers and local memory, and hashes of memory.

#include <cstdint>

#include "generator.cuh"

namespace {

__device__ __forceinline__ uint64_t global_thread() {
  return uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
}

__device__ __forceinline__ uint64_t all_threads() { return uint64_t(gridDim.x) * blockDim.x; }

// The finaliser of SplitMix64: every input bit reaches every output bit.
__device__ __forceinline__ uint64_t mixed(uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9ull;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// Waits until `blocks` blocks have come here: with as many blocks as fit and a
// cooperative launch, every multiprocessor is then held at the same time.
__device__ void wait_for_all(unsigned* arrived, unsigned blocks) {
  __syncthreads();
  if (threadIdx.x == 0) {
    atomicAdd(arrived, 1u);
    while (*reinterpret_cast<volatile unsigned*>(arrived) < blocks) {
    }
  }
  __syncthreads();
}

constexpr int kRegisters = 44;  // of 64 a thread at 1024 threads: what fits beside addresses

}  // namespace

// Writes every line of `count` 16-byte words: what the cache held before goes, dirty lines come.
extern "C" __global__ void evict_write(uint4* words, uint64_t count, unsigned pattern) {
  for (uint64_t i = global_thread(); i < count; i += all_threads())
    words[i] = make_uint4(pattern, unsigned(i), pattern, pattern);
}

// Reads every line: the cache now holds clean lines of a buffer that nobody needs.
extern "C" __global__ void evict_read(const uint4* words, uint64_t count, unsigned* sink) {
  unsigned sum = 0;
  for (uint64_t i = global_thread(); i < count; i += all_threads()) {
    uint4 w = words[i];
    sum += w.x ^ w.y ^ w.z ^ w.w;
  }
  if (sum == 0x5EED0000u && threadIdx.x == 1025) *sink = sum;  // never: keeps the loads
}

// One block a multiprocessor with all its shared memory and registers: overwrites both.
extern "C" __global__ void __launch_bounds__(1024, 1)
    wipe_shared(unsigned* arrived, unsigned blocks, unsigned bytes, unsigned pattern) {
  extern __shared__ unsigned words[];
  volatile unsigned* shared = words;
  for (unsigned i = threadIdx.x; i < bytes / 4; i += blockDim.x) shared[i] = pattern + i;
  wait_for_all(arrived, blocks);
  unsigned held[kRegisters];
#pragma unroll
  for (int i = 0; i < kRegisters; ++i) held[i] = shared[(threadIdx.x + i) & 1023];
  __syncthreads();  // all of `held` is alive here, one register each
#pragma unroll
  for (int i = 0; i < kRegisters; ++i) shared[(threadIdx.x * 2 + i) & 1023] = held[i];
}

// Overwrites the first `Bytes` of local memory of every thread slot of the device.
template <int Bytes>
__device__ __forceinline__ void wipe_local(unsigned* arrived, unsigned blocks, unsigned pattern) {
  volatile unsigned local[Bytes / 4];
  for (int i = 0; i < Bytes / 4; ++i) local[i] = pattern + i;
  wait_for_all(arrived, blocks);
  if (local[pattern % (Bytes / 4)] == pattern - 1) *arrived = 0;  // never: keeps the stores
}

#define WIPE_LOCAL(BYTES)                                                                 \
  extern "C" __global__ void __launch_bounds__(512, 4)                                    \
      wipe_local_##BYTES(unsigned* arrived, unsigned blocks, unsigned, unsigned pattern) { \
    wipe_local<BYTES>(arrived, blocks, pattern);                                          \
  }
WIPE_LOCAL(1024)
WIPE_LOCAL(4096)
WIPE_LOCAL(16384)
WIPE_LOCAL(65536)

// Adds the mixed 8-byte words of `[data, data + bytes)` to *sum; the last word is padded with zeros.
// Adding is commutative, so that the order of threads does not matter; the position is mixed in.
extern "C" __global__ void hash_bytes(const unsigned char* data, uint64_t bytes, unsigned long long* sum) {
  const uint64_t whole = bytes / 8;
  uint64_t mine = 0;
  for (uint64_t i = global_thread(); i < whole; i += all_threads()) {
    uint64_t word = reinterpret_cast<const uint64_t*>(data)[i];
    mine += mixed(word ^ mixed(i + 1));
  }
  if (global_thread() == 0 && bytes % 8) {
    uint64_t word = 0;
    for (uint64_t b = 0; b < bytes % 8; ++b) word |= uint64_t(data[whole * 8 + b]) << (8 * b);
    mine += mixed(word ^ mixed(whole + 1));
  }
  for (int lane = 16; lane; lane /= 2) mine += __shfl_xor_sync(0xFFFFFFFFu, mine, lane);
  if (threadIdx.x % 32 == 0) atomicAdd(sum, (unsigned long long)mine);
}

// Counts bytes that differ from the 16-bit pattern `value` (low byte at even addresses).
extern "C" __global__ void count_other(const unsigned char* data, uint64_t bytes, unsigned value,
                                       unsigned long long* count) {
  unsigned long long mine = 0;
  for (uint64_t i = global_thread(); i < bytes; i += all_threads()) {
    const unsigned odd = unsigned(reinterpret_cast<uint64_t>(data) + i) & 1;
    mine += data[i] != ((value >> (8 * odd)) & 0xFF);
  }
  if (mine) atomicAdd(count, mine);
}
