// What the checking build (../checking) is told of a run: nothing, in this build.
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

struct OfCluster {};
struct OfBlock {};

static inline void access(Thread&, const uint8_t*, uint32_t, uint32_t, uint32_t) {}

static inline void begin(Cluster&) {}
static inline void forget(Resident&) {}
static inline void burnt(Thread&, uint32_t) {}
static inline uint32_t hottest(Thread&, uint32_t site) { return site; }

static inline void proxy_fence(Thread&) {}
static inline void barrier_arrives(Thread&, uint32_t) {}
static inline void barrier_opens(Resident&, uint32_t) {}
static inline void barrier_passes(Thread&, uint32_t) {}
static inline void warp_meets(Warp&, uint32_t) {}
static inline void cluster_arrives(Thread&) {}
static inline void cluster_opens(Cluster&) {}
static inline void cluster_passes(Thread&) {}

static inline void mbarrier_begins(Thread&, const uint8_t*, uint32_t) {}
static inline void mbarrier_used(Thread&, const uint8_t*, uint32_t) {}
static inline void mbarrier_arrives(Thread&, const uint8_t*) {}
static inline void mbarrier_completes(Thread&, const uint8_t*) {}
static inline void mbarrier_passes(Thread&, const uint8_t*) {}

static inline void copy_begins(Thread&, const uint8_t*, uint32_t, uint64_t, uint32_t) {}
static inline void copies_committed(Thread&, uint64_t) {}
static inline void copies_waited(Thread&, uint64_t) {}
static inline void all_copies_waited(Thread&, uint64_t) {}
static inline void copies_arrive(Thread&, const uint8_t*, uint64_t) {}
static inline void bulk_writes(Thread&, const uint8_t*, uint32_t, const uint8_t*, bool, uint32_t) {}
static inline void bulk_reads(Thread&, const uint8_t*, uint32_t, const uint8_t*, uint32_t, uint32_t) {}
static inline void bulk_waited(Thread&, uint32_t) {}
static inline void wgmma_reads(Thread&, const WgmmaForm&, const WgmmaOperands&, uint64_t, uint32_t) {}
static inline void product_read(Accumulators&, uint32_t, uint32_t) {}
static inline void wgmma_waited(Thread&, uint64_t) {}

static inline void track(uint64_t, uint64_t) {}
static inline void host_wrote(uint64_t, uint64_t) {}
static inline const char* fields() { return ""; }

}  // namespace watch
}  // namespace rt
