// Who knows what: vector clocks.
//
// Things happen on lanes: one for each thread of the cluster, one for each thread's cp.async copies and one for
// its bulk groups, one for each warpgroup's products, one for each mbarrier's phases. A lane counts; what happens
// on it is an event (lane, count). A thread knows, for every lane, up to which count things are over as far as it
// may rely on: an event is ordered before what the thread does now if its count is not above that.
//
// Asynchronous work out of shared memory sees an ordinary store only behind a proxy fence. So each thread has a
// second lane, whose count says up to where its stores were fenced, by it or by one that knew of them.
//
// Most threads know the same most of the time (after a barrier, all of a block): the vector is shared, and each
// thread keeps beside it what it knows of its own four lanes.
#pragma once
#include <unordered_map>
#include <utility>
#include <vector>

#include "state.hpp"

namespace rt::watch {

struct Vector {
  uint32_t references = 0;
  std::vector<uint32_t> counts;
  uint32_t at(uint32_t lane) const { return lane < counts.size() ? counts[lane] : 0; }
  void raise(uint32_t lane, uint32_t count) {
    if (lane >= counts.size()) counts.resize(lane + 1);
    if (counts[lane] < count) counts[lane] = count;
  }
  void join(const Vector& other);
};

// A reference to a vector that nobody changes any more.
class Shared {
 public:
  Shared() = default;
  explicit Shared(Vector* v) : v_(v) { keep(); }
  Shared(const Shared& o) : v_(o.v_) { keep(); }
  Shared(Shared&& o) noexcept : v_(std::exchange(o.v_, nullptr)) {}
  Shared& operator=(Shared o) noexcept {
    std::swap(v_, o.v_);
    return *this;
  }
  ~Shared() {
    if (v_ && !--v_->references) delete v_;
  }
  uint32_t at(uint32_t lane) const { return v_ ? v_->at(lane) : 0; }
  const Vector* get() const { return v_; }
  bool operator==(const Shared& o) const { return v_ == o.v_; }

 private:
  void keep() {
    if (v_) v_->references++;
  }
  Vector* v_ = nullptr;
};

constexpr uint32_t own_lanes = 4;
enum Lane : uint32_t { lane_thread, lane_copies, lane_bulk, lane_products };

struct Knower {
  Shared common;
  uint32_t own[own_lanes];
};

// What threads have told that arrive somewhere.
class Told {
 public:
  void add(const Knower& k, const uint32_t (&lanes)[own_lanes]);
  void raise(uint32_t lane, uint32_t count);
  void add(const Shared& s);
  const Shared& all();  // may be shared from now on

 private:
  Vector& open();
  Shared told_;
  bool closed_ = true;
  Shared last_;  // joined already
};

// Something that threads acquire: remembers the last union that it made.
struct Published {
  Shared known;
  Shared before, after;
};

struct Mbarrier {
  uint32_t lane;
  uint32_t phases = 0;
  Told pending;
  Published over;
};

struct Knowledge {
  uint32_t generation;  // of this cluster, unlike any other's
  uint32_t block_threads, lanes;
  std::vector<Knower> threads;
  std::vector<Told> barriers;  // 16 a block
  std::vector<Shared> opened;
  std::vector<std::vector<uint64_t>> copy_groups;  // by thread: the last cp.async of each group
  Told cluster;
  Published cluster_over;
  std::unordered_map<const uint8_t*, Mbarrier> mbarriers;
  // What strong accesses of an address have published; all addresses beyond the first few thousand share one
  // (each takes a vector), which orders more than there is and so hides races, but invents none.
  std::unordered_map<const uint8_t*, Published> locations;
  Published crowd;

  uint32_t block_groups() const { return (block_threads + 127) / 128; }
  uint32_t index(const Thread& t) const { return t.block->cluster_rank * block_threads + t.linear; }
  // The lane that says up to where stores of `thread` were fenced.
  uint32_t fenced(uint32_t thread) const;
  void fence(uint32_t thread);
  void own(uint32_t thread, uint32_t (&lanes)[own_lanes]) const;
  uint32_t known(uint32_t thread, uint32_t lane) const;
  void release(uint32_t thread, Told& to);
  void acquire(uint32_t thread, Published& from);
  Mbarrier& mbarrier(const uint8_t* at);
  Published& location(const uint8_t* at);
};

Knowledge& knowledge(Thread& t);

}  // namespace rt::watch
