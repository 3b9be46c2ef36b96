#include "findings.hpp"

#include <map>
#include <tuple>

namespace rt::watch {

namespace {

constexpr size_t most_findings = 1024;

using Key = std::tuple<std::string, uint32_t, uint32_t, uint32_t, uint32_t>;
struct Finding {
  std::string text;
  uint64_t count;
};
std::map<Key, Finding> findings;
std::vector<Key> order;
pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

std::string triple(const uint32_t v[3]) {
  return "[" + std::to_string(v[0]) + "," + std::to_string(v[1]) + "," + std::to_string(v[2]) + "]";
}

// Adds a finding, or counts it; `text` is made only for the first of its kind.
template <class Text>
void add(const Key& key, Text text) {
  pthread_mutex_lock(&mutex);
  const auto known = findings.find(key);
  if (known != findings.end()) {
    known->second.count++;
  } else if (findings.size() < most_findings) {
    findings[key] = {text(), 1};
    order.push_back(key);
  }
  pthread_mutex_unlock(&mutex);
}

const Thread& thread_of(const Resident& b, const Knowledge& k, const Event& e) {
  return b.cluster->blocks[e.thread / k.block_threads]->threads[e.thread % k.block_threads];
}

// On which lane: what kind of work it is.
const char* work(const Resident& b, const Knowledge& k, const Event& e) {
  const auto n = uint32_t(k.threads.size());
  if (e.lane < n) return e.how == How::strong ? "atomic" : "thread";
  if (e.lane < 2 * n) return "cp.async";
  if (e.lane < 3 * n) return "bulk_store";
  if (e.lane < 3 * n + uint32_t(b.cluster->blocks.size()) * k.block_groups()) return "wgmma";
  return "bulk_copy";
}

std::string event(const Resident& b, const Knowledge& k, const Event& e, Touch touch) {
  const Thread& t = thread_of(b, k, e);
  return std::string("{\"work\":\"") + work(b, k, e) + "\",\"touch\":\"" + (touch == Touch::read ? "read" : "write") +
         "\",\"thread\":" + triple(t.tid) + ",\"block\":" + triple(t.block->ctaid) + ",\"site\":" + std::to_string(e.site) +
         "}";
}

std::string place(const Worker& w) {
  return "\"module\":" + std::to_string(w.launch->module) + ",\"kernel\":" + quoted(w.launch->kernel->name);
}

std::string conflict(const char* kind, const Resident& b, const Knowledge& k, uint32_t offset, uint32_t size,
                     const std::string& first, const std::string& second) {
  return std::string("\"kind\":\"") + kind + "\"," + place(*this_worker) + ",\"block\":" + triple(b.ctaid) +
         ",\"offset\":" + std::to_string(offset) + ",\"size\":" + std::to_string(size) + ",\"first\":" + first +
         ",\"second\":" + second;
}

}  // namespace

void found_conflict(Resident& b, Knowledge& k, uint32_t offset, uint32_t size, const Event& first, Touch first_touch,
                    const Event& second, Touch second_touch) {
  const char* kind = "conflict";
  const auto warp = [&](const Event& e) {
    return std::pair(e.thread / k.block_threads, e.thread % k.block_threads / 32);
  };
  const bool same_warp = warp(first) == warp(second);
  const uint32_t touches = uint32_t(first_touch) * 2 + uint32_t(second_touch) + (same_warp ? 4 : 0);
  add({kind, this_worker->launch->module, first.site, second.site, touches}, [&] {
    return conflict(kind, b, k, offset, size, event(b, k, first, first_touch), event(b, k, second, second_touch)) +
           ",\"same_warp\":" + (same_warp ? "true" : "false");
  });
}

void found_unfenced(Resident& b, Knowledge& k, uint32_t offset, uint32_t size, const Event& first, const Event& second) {
  const char* kind = "unfenced";
  add({kind, this_worker->launch->module, first.site, second.site, 0}, [&] {
    return conflict(kind, b, k, offset, size, event(b, k, first, Touch::write), event(b, k, second, Touch::read));
  });
}

void found_early_use(Resident& b, Knowledge& k, uint32_t offset, const Event& first, const Event& second) {
  const char* kind = "early_use";
  add({kind, this_worker->launch->module, first.site, second.site, 0}, [&] {
    return conflict(kind, b, k, offset, 8, event(b, k, first, Touch::write), event(b, k, second, Touch::read));
  });
}

void found_uninitialised(Thread& t, const char* space, uint64_t at, uint32_t size, uint32_t site) {
  add({space, t.worker->launch->module, site, 0, 0}, [&] {
    return std::string("\"kind\":\"uninitialised\",") + place(*t.worker) + ",\"block\":" + triple(t.block->ctaid) +
           ",\"thread\":" + triple(t.tid) + ",\"site\":" + std::to_string(site) + ",\"space\":\"" + space +
           "\",\"at\":" + std::to_string(at) + ",\"size\":" + std::to_string(size);
  });
}

void found_unfinished(Thread& t, uint32_t site) {
  add({"unfinished", t.worker->launch->module, site, 0, 0}, [&] {
    return std::string("\"kind\":\"unfinished\",") + place(*t.worker) + ",\"block\":" + triple(t.block->ctaid) +
           ",\"thread\":" + triple(t.tid) + ",\"site\":" + std::to_string(site);
  });
}

std::string found() {
  std::string list;
  for (const Key& key : order) {
    const Finding& f = findings[key];
    list += (list.empty() ? "{" : ",{") + f.text + ",\"count\":" + std::to_string(f.count) + "}";
  }
  return list;
}

}  // namespace rt::watch
