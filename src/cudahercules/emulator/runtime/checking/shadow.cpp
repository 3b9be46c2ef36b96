#include "shadow.hpp"

#include <cstring>

#include "findings.hpp"

namespace rt::watch {

namespace {

struct Doubt {
  Resident* block;
  Knowledge* knowledge;
  uint32_t offset, size;
  Event first, second;
  Touch first_touch;
  uint8_t before[32];
};
thread_local Doubt doubt;

bool ordered(const Knowledge& k, const Event& before, uint32_t first, uint32_t last) {
  for (uint32_t thread = first; thread < last; thread++)
    if (k.known(thread, before.lane) >= before.count) return true;
  return false;
}

bool conflicts(const Knowledge& k, const Event& before, const Event& now, uint32_t first, uint32_t last) {
  if (!before.there) return false;
  if (before.how != How::plain && now.how != How::plain) return false;
  if (before.lane == now.lane && before.count <= now.count && now.lane < k.threads.size()) return false;
  return !ordered(k, before, first, last);
}

// A write by a thread conflicts with what another thread did: it is reported when it has changed something.
void conflicting_write(Resident& b, Knowledge& k, uint32_t offset, uint32_t size, const Event& first, Touch first_touch,
                       const Event& second) {
  const auto threads = k.threads.size();
  if (first.lane >= threads || second.lane >= threads || size > sizeof doubt.before) {
    found_conflict(b, k, offset, size, first, first_touch, second, Touch::write);
    return;
  }
  doubt = {&b, &k, offset, size, first, second, first_touch, {}};
  memcpy(doubt.before, b.shared + offset, size);
}

void remember_read(Cell& cell, Shadow& shadow, const Event& event) {
  for (Event& r : cell.reads)
    if (!r.there || r.lane == event.lane) {
      r = event;
      return;
    }
  cell.reads[shadow.victim++ % kept_reads] = event;
}

// Whether asynchronous work that [first, last) issues may not see a store by a thread that is ordered before it.
bool unfenced(const Knowledge& k, const Event& write, const Event& now, uint32_t first, uint32_t last) {
  const auto n = uint32_t(k.threads.size());
  if (!write.there || write.lane >= n || now.lane < 2 * n) return false;  // cp.async is no other proxy
  for (uint32_t thread = first; thread < last; thread++)
    if (k.known(thread, k.fenced(write.lane)) >= write.count) return false;
  return true;
}

bool same(const Event& a, const Event& b) {
  return a.lane == b.lane && a.count == b.count && a.how == b.how && a.there == b.there;
}

}  // namespace

void look_again() {
  if (!doubt.block) return;
  Resident& b = *doubt.block;
  doubt.block = nullptr;
  if (memcmp(doubt.before, b.shared + doubt.offset, doubt.size))
    found_conflict(b, *doubt.knowledge, doubt.offset, doubt.size, doubt.first, doubt.first_touch, doubt.second, Touch::write);
}

void touch(Resident& b, Knowledge& k, const uint8_t* at, uint32_t size, Touch touch, const Event& event, uint32_t first,
           uint32_t last) {
  Shadow& shadow = *b.watched.shadow;
  const auto offset = uint32_t(at - b.shared);
  bool reported = false, unwritten = false;
  Event fine{};  // the last write of the byte before, which does not conflict
  for (uint32_t i = 0; i < size && offset + i < shadow.cells.size(); i++) {
    Cell& cell = shadow.cells[offset + i];
    if (cell.generation != k.generation) {
      cell = {};
      cell.generation = k.generation;
    }
    if (touch == Touch::read) {
      unwritten |= !cell.write.there;
      if (!reported && !same(cell.write, fine)) {
        if (conflicts(k, cell.write, event, first, last)) {
          found_conflict(b, k, offset, size, cell.write, Touch::write, event, touch);
          reported = true;
        } else if (unfenced(k, cell.write, event, first, last)) {
          found_unfenced(b, k, offset, size, cell.write, event);
          reported = true;
        } else {
          fine = cell.write;
        }
      }
      remember_read(cell, shadow, event);
      continue;
    }
    for (const Event& r : cell.reads)
      if (!reported && conflicts(k, r, event, first, last)) {
        conflicting_write(b, k, offset, size, r, Touch::read, event);
        reported = true;
      }
    if (!reported && conflicts(k, cell.write, event, first, last)) {
      conflicting_write(b, k, offset, size, cell.write, Touch::write, event);
      reported = true;
    }
    cell.write = event;
    memset(cell.reads, 0, sizeof cell.reads);
  }
  if (unwritten) {
    Thread& t = b.cluster->blocks[event.thread / k.block_threads]->threads[event.thread % k.block_threads];
    found_uninitialised(t, "shared", offset, size, event.site);
  }
}

}  // namespace rt::watch
