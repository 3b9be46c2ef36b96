// What the checking build is told of a run. It keeps, for every byte of shared memory, who wrote and who read
// it last, and for every thread what it knows to have happened before; a read or write that is not ordered
// after one that conflicts with it is a finding. The plain build's watch.hpp has the same functions, empty.
#pragma once
#include <stdint.h>

namespace rt {

struct Thread;
struct Resident;
struct Cluster;
struct Warp;
struct WgmmaForm;
struct WgmmaOperands;
struct Accumulators;

namespace watch {

struct Knowledge;  // of a cluster: clocks.hpp
struct Shadow;     // of a block's shared memory: shadow.hpp
struct OfCluster {
  Knowledge* knowledge = nullptr;
};
struct OfBlock {
  Shadow* shadow = nullptr;
};

// A checked address is about to be read or written: `access` as in device.hpp.
void access(Thread& t, const uint8_t* at, uint32_t size, uint32_t site, uint32_t access);

void begin(Cluster& c);      // none of its threads has run
void forget(Resident& b);    // the block's memory is given back
void burnt(Thread& t, uint32_t site);                // a thread has used up its fuel there
uint32_t hottest(Thread& t, uint32_t site);  // where that happened most often; `site` if nowhere

void proxy_fence(Thread& t);  // fence.proxy.async: asynchronous work will see what the thread knows of

// bar.sync and its kin: a thread arrives; the barrier opens for those that wait; the last one passes, too.
void barrier_arrives(Thread& t, uint32_t id);
void barrier_opens(Resident& b, uint32_t id);
void barrier_passes(Thread& t, uint32_t id);
void warp_meets(Warp& warp, uint32_t lanes);  // bar.warp.sync
void cluster_arrives(Thread& t);
void cluster_opens(Cluster& c);
void cluster_passes(Thread& t);

void mbarrier_begins(Thread& t, const uint8_t* at, uint32_t site);  // init
void mbarrier_used(Thread& t, const uint8_t* at, uint32_t site);
void mbarrier_arrives(Thread& t, const uint8_t* at);
void mbarrier_completes(Thread& t, const uint8_t* at);  // a phase ends
void mbarrier_passes(Thread& t, const uint8_t* at);     // a wait succeeds

// cp.async: copy number `sequence` of the thread (from 1) begins; a group ends with it; the first `groups`
// groups, or all copies up to it, are waited for, or will have been when the mbarrier's phase ends.
void copy_begins(Thread& t, const uint8_t* to, uint32_t size, uint64_t sequence, uint32_t site);
void copies_committed(Thread& t, uint64_t sequence);
void copies_waited(Thread& t, uint64_t groups);
void all_copies_waited(Thread& t, uint64_t sequence);
void copies_arrive(Thread& t, const uint8_t* barrier, uint64_t sequence);
// Bulk copies, when they are issued: what they write is complete with the mbarrier's phase; what they read with
// that, or (no mbarrier) with the thread's bulk group number `group`.
void bulk_writes(Thread& t, const uint8_t* to, uint32_t size, const uint8_t* barrier, bool reduces, uint32_t site);
void bulk_reads(Thread& t, const uint8_t* from, uint32_t size, const uint8_t* barrier, uint32_t group, uint32_t site);
void bulk_waited(Thread& t, uint32_t groups_left);
// Product `number` (from 0) of the thread's warpgroup, issued by all of its threads.
void wgmma_reads(Thread& t, const WgmmaForm& form, const WgmmaOperands& operands, uint64_t number, uint32_t site);
// Register `index` of the accumulators is read for something else than another product.
void product_read(Accumulators& acc, uint32_t index, uint32_t site);
void wgmma_waited(Thread& t, uint64_t products);

// Global memory that begins undefined: outputs and scratch.
void track(uint64_t address, uint64_t size);
void host_wrote(uint64_t address, uint64_t size);
// Everything found, as members of the message: begins with a comma.
const char* fields();

}  // namespace watch
}  // namespace rt
