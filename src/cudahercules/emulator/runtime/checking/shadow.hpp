// Who touched each byte of shared memory last.
#pragma once
#include "clocks.hpp"

namespace rt::watch {

// plain: an ordinary access. strong: atomic, volatile or with an order of its own, which does not conflict with
// others of its kind. reduction: by a bulk copy, likewise.
enum class How : uint8_t { plain, strong, reduction };

struct Event {
  uint32_t lane, count, site;
  uint16_t thread;  // that did or issued it
  How how;
  bool there;
};

constexpr uint32_t kept_reads = 3;

struct Cell {
  uint32_t generation;
  Event write;
  Event reads[kept_reads];
};

struct Shadow {
  std::vector<Cell> cells;
  uint32_t victim = 0;  // which read gives way to a further one
};

enum class Touch : uint8_t { read, write };

// Touches `size` bytes at `at` of block `b`'s shared memory by `event`; ordered after what any of the threads
// [first, last) knows.
void touch(Resident& b, Knowledge& k, const uint8_t* at, uint32_t size, Touch touch, const Event& event, uint32_t first,
           uint32_t last);

// A conflicting write is no finding if it stores what is there already: looked at when the next thing happens on
// this OS thread.
void look_again();

}  // namespace rt::watch
