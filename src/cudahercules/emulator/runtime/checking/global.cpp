#include "global.hpp"

#include <cstring>

namespace rt::watch {

namespace {

struct Tracked {
  uint64_t address, size;
  std::vector<uint8_t> written;
};
std::vector<Tracked> tracked;

Tracked* tracked_at(uint64_t address) {
  for (Tracked& r : tracked)
    if (address - r.address < r.size) return &r;
  return nullptr;
}

}  // namespace

void track(uint64_t address, uint64_t size) { tracked.push_back({address, size, std::vector<uint8_t>(size)}); }

void host_wrote(uint64_t address, uint64_t size) {
  if (Tracked* r = tracked_at(address)) memset(r->written.data() + (address - r->address), 1, size);
}

void touch_global(Thread& t, uint64_t address, uint32_t size, Touch touch, uint32_t site) {
  Tracked* r = tracked_at(address);
  if (!r) return;
  uint8_t* at = r->written.data() + (address - r->address);
  if (touch == Touch::write) {
    memset(at, 1, size);
    return;
  }
  if (memchr(at, 0, size)) found_uninitialised(t, "global", address, size, site);
}

std::string unwritten() {
  std::string list;
  for (const Tracked& r : tracked) {
    const auto* first = static_cast<const uint8_t*>(memchr(r.written.data(), 0, r.size));
    if (!first) continue;
    uint64_t count = 0;
    for (const uint8_t w : r.written) count += !w;
    list += (list.empty() ? "" : ",") + std::string("{\"address\":") + std::to_string(r.address) + ",\"first\":" +
            std::to_string(first - r.written.data()) + ",\"count\":" + std::to_string(count) + "}";
  }
  return list;
}

}  // namespace rt::watch
