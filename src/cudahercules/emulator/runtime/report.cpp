// The one message that this process sends: how the plan ended. The first reporter wins.
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdio>
#include <map>
#include <tuple>

#include "state.hpp"

namespace rt {

namespace {

bool reported = false;

[[noreturn]] void send(const std::string& text) {
  if (__atomic_exchange_n(&reported, true, __ATOMIC_SEQ_CST))
    for (;;) pause();  // another thread is sending and will end the process
  const char* at = text.data();
  size_t left = text.size();
  while (left) {
    const ssize_t n = write(job.result_fd, at, left);
    if (n <= 0) _exit(9);
    at += n;
    left -= size_t(n);
  }
  _exit(0);
}

std::string printed_field() {
  // A thread that faults inside its own printf holds the lock and never gives it back.
  const bool locked = pthread_mutex_trylock(&job.print_mutex) == 0;
  std::string field = "\"printed\":" + (locked ? quoted(job.printed) : std::string("\"\""));
  if (locked) pthread_mutex_unlock(&job.print_mutex);
  return field;
}

std::string triple(const uint32_t v[3]) {
  return "[" + std::to_string(v[0]) + "," + std::to_string(v[1]) + "," + std::to_string(v[2]) + "]";
}

std::string place(const Worker& w, uint32_t site) {
  return "\"operation\":" + std::to_string(w.launch->operation) + ",\"module\":" + std::to_string(w.launch->module) +
         ",\"kernel\":" + quoted(w.launch->kernel->name) + ",\"site\":" + std::to_string(site);
}

const char* wait_name(const Thread& t) {
  switch (t.wait) {
    case Wait::barrier:
      return "barrier";
    case Wait::lanes:
      return "lanes";
    case Wait::activemask:
      return "activemask";
    case Wait::mbarrier:
      return "mbarrier";
    case Wait::cluster:
      return "cluster";
    case Wait::warpgroup:
      return "warpgroup";
    default:
      return "running";
  }
}

// Two lanes of one warp that name each other in different meetings can never both be served.
bool masks_disagree(const Resident& b, const Warp*& where) {
  for (const Warp& warp : b.warps)
    for (const Pending& p : warp.pending)
      for (const Pending& q : warp.pending)
        if (&p != &q && (p.mask & q.lanes.active) && (q.mask & p.lanes.active)) {
          where = &warp;
          return true;
        }
  return false;
}

}  // namespace

namespace {

// Which block of its cluster a waiting thread is in, and the state of the mbarrier that it waits for.
std::string barrier_fields(const Cluster& c, const Thread& t) {
  std::string text;
  if (c.blocks.size() > 1) text = ",\"rank\":" + std::to_string(t.block->cluster_rank);
  if (t.wait != Wait::mbarrier) return text;
  const auto state = load<uint64_t>(t.awaited);
  const Resident* b = block_of_shared(c, t.awaited);
  return text + ",\"mbarrier\":{\"offset\":" + std::to_string(t.awaited - b->shared) + ",\"missing\":" +
         std::to_string(mbarrier_missing(state)) + ",\"expected\":" + std::to_string(mbarrier_expected(state)) +
         ",\"bytes\":" + std::to_string(mbarrier_missing_bytes(state)) + "}";
}

}  // namespace

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f || c == '"' || c == '\\') {
      char escape[8];
      snprintf(escape, sizeof escape, "\\u%04x", byte);
      out += escape;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

void fault(Thread& t, uint32_t site, const char* what, const std::string& fields) {
  send("{\"kind\":\"fault\",\"what\":\"" + std::string(what) + "\"," + place(*t.worker, site) + ",\"block\":" +
       triple(t.block->ctaid) + ",\"thread\":" + triple(t.tid) + "," + (fields.empty() ? "" : fields + ",") +
       printed_field() + watch::fields() + "}");
}

void fault_stack(Thread& t, uint32_t site) { fault(t, site, "stack_overflow", ""); }
void fault_trap(Thread& t, uint32_t site) { fault(t, site, "trap", ""); }
void fault_branch(Thread& t, uint32_t site, uint64_t index) {
  fault(t, site, "illegal_instruction", "\"detail\":\"branch index " + std::to_string(index) + " is outside its table\"");
}

void assertion_failed(Thread& t, uint64_t message, uint64_t file, uint32_t line, uint64_t function, uint32_t site) {
  std::string m, f, n;
  device_string(message, m);
  device_string(file, f);
  device_string(function, n);
  fault(t, site, "assertion",
        "\"assertion\":" + quoted(m) + ",\"assert_file\":" + quoted(f) + ",\"assert_line\":" + std::to_string(line) +
            ",\"assert_function\":" + quoted(n));
}

// No thread of the cluster can ever run again: group them by block, and by where and for what they wait.
void deadlock(Worker&, Cluster& c) {
  std::map<std::tuple<uint32_t, uint32_t, uint64_t, const uint8_t*>, std::vector<const Thread*>> groups;
  const Thread* first = nullptr;
  const Warp* warp_of_masks = nullptr;
  bool masks = false;
  size_t threads = 0;
  for (const Resident* b : c.blocks) {
   threads += b->threads.size();
   masks = masks || masks_disagree(*b, warp_of_masks);
   for (const Warp& warp : b->warps)
    for (uint32_t rest = warp.alive; rest; rest &= rest - 1) {
      const Thread& t = warp.threads[__builtin_ctz(rest)];
      if (!first) first = &t;
      groups[{b->cluster_rank, t.site, uint64_t(t.wait) << 32 | t.detail, t.wait == Wait::mbarrier ? t.awaited : nullptr}]
          .push_back(&t);
    }
  }
  if (masks) first = &warp_of_masks->threads[__builtin_ctz(warp_of_masks->pending[0].lanes.active)];
  std::string list;
  for (const auto& [key, members] : groups) {
    const Thread& t = *members[0];
    list += (list.empty() ? "" : ",") + std::string("{\"site\":") + std::to_string(t.site) + ",\"wait\":\"" +
            wait_name(t) + "\",\"detail\":" + std::to_string(t.detail) + barrier_fields(c, t) + ",\"count\":" +
            std::to_string(members.size()) + ",\"threads\":[";
    // Runs of consecutive threads as [first, last].
    for (size_t i = 0; i < members.size();) {
      size_t j = i;
      while (j + 1 < members.size() && members[j + 1]->linear == members[j]->linear + 1) j++;
      list += (i ? "," : "") + std::string("[") + triple(members[i]->tid) + "," + triple(members[j]->tid) + "]";
      i = j + 1;
    }
    list += "]}";
  }
  fault(const_cast<Thread&>(*first), first->site, masks ? "mismatched_mask" : "deadlock",
        "\"alive\":" + std::to_string(c.alive) + ",\"of\":" + std::to_string(threads) + ",\"groups\":[" + list + "]");
}

void out_of_fuel(Thread& t, uint32_t site) {
  send("{\"kind\":\"out_of_fuel\"," + place(*t.worker, site) + "," + printed_field() + watch::fields() + "}");
}

void refuse(const std::string& message) {
  send("{\"kind\":\"refused\",\"message\":" + quoted(message) + "}");
}

void finish(uint64_t instructions, uint64_t threads, uint64_t blocks, double seconds) {
  char number[64];
  snprintf(number, sizeof number, "%.9f", seconds);
  send("{\"kind\":\"completed\",\"instructions\":" + std::to_string(instructions) + ",\"threads\":" +
       std::to_string(threads) + ",\"blocks\":" + std::to_string(blocks) + ",\"seconds\":" + number + "," +
       printed_field() + watch::fields() + "}");
}

// --- signals: what gets here is a stack that overflowed into its guard, or an error of ours ---------

namespace {

void on_signal(int number, siginfo_t* info, void*) {
  Worker* w = this_worker;
  if (!w || !w->current || !w->launch) _exit(100 + number);
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  const auto floor = w->current->stack_floor;
  if (number == SIGSEGV && address < floor && floor - address < (64u << 10)) fault_stack(*w->current, w->current->site);
  fault(*w->current, w->current->site, "illegal_instruction",
        "\"detail\":\"the emulator stopped on signal " + std::to_string(number) + "\"");
}

}  // namespace

constexpr size_t signal_stack_bytes = 128 << 10;

void install_signal_handlers(Worker& w) {
  w.signal_stack = mmap(nullptr, signal_stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  stack_t alternate{};
  alternate.ss_sp = w.signal_stack;
  alternate.ss_size = signal_stack_bytes;
  sigaltstack(&alternate, nullptr);
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigaction(number, &action, nullptr);
}

void remove_signal_stack(Worker& w) {
  stack_t none{};
  none.ss_flags = SS_DISABLE;
  sigaltstack(&none, nullptr);
  munmap(w.signal_stack, signal_stack_bytes);
}

}  // namespace rt
