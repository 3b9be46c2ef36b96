// Fibers: one machine stack for each CUDA thread that has begun and not ended.
#include <sys/mman.h>

#include <cstdlib>

#include "state.hpp"

namespace rt {

thread_local Worker* this_worker;

extern "C" void rt_switch(void** save, void* to);
asm(R"(
.text
.globl rt_switch
.type rt_switch, @function
rt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size rt_switch, .-rt_switch
)");

namespace {

constexpr size_t page = 4096;
constexpr size_t reserve_for_runtime = 32 << 10;  // printf and fault reports run on the fiber's stack
constexpr size_t guarded_stacks = 8192;           // each guard costs a kernel mapping; 65,530 are allowed

size_t slot_bytes(const Worker& w) { return page + w.machine_bytes + w.local_bytes; }

// Layout of one slot: guard page, machine stack (grows down), local memory.
uint32_t take_stack(Worker& w) {
  if (w.free_stacks.empty()) {
    constexpr uint32_t batch = 64;
    const size_t bytes = slot_bytes(w);
    void* at = mmap(nullptr, bytes * batch, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) refuse("no memory for the stacks of more threads");
    for (uint32_t i = 0; i < batch; i++) {
      auto* base = static_cast<uint8_t*>(at) + i * bytes;
      if (w.stacks.size() < guarded_stacks) mprotect(base, page, PROT_NONE);
      w.stacks.push_back({base});
    }
    for (uint32_t i = 0; i < batch; i++) w.free_stacks.push_back(uint32_t(w.stacks.size()) - 1 - i);
  }
  const uint32_t index = w.free_stacks.back();
  w.free_stacks.pop_back();
  return index;
}

void bind_stack(Worker& w, Thread& t, uint32_t index) {
  uint8_t* base = w.stacks[index].base;
  t.stack = index;
  t.stack_floor = reinterpret_cast<uintptr_t>(base + page + reserve_for_runtime);
  t.local_begin = t.local = base + page + w.machine_bytes;
  t.local_end = t.local_begin + w.local_bytes;
}

// The first frame of every stack: runs threads one after another as long as each ends here.
[[noreturn]] void fiber_main() {
  Worker& w = *this_worker;
  for (;;) {
    Thread& t = *w.current;
    w.launch->kernel->code(t, job.parameters.data());
    const uint32_t stack = t.stack;
    retire(t);
    Thread* next = pick(w);
    if (next && !next->sp) {
      bind_stack(w, *next, stack);
      next->sp = next;  // begun
      w.current = next;
      continue;
    }
    w.free_stacks.push_back(stack);
    void* nowhere;
    if (next)
      resume(w, *next, &nowhere);
    else
      leave(w, &nowhere);
    __builtin_unreachable();
  }
}

}  // namespace

void resume(Worker& w, Thread& next, void** save) {
  w.current = &next;
  if (!next.sp) {
    bind_stack(w, next, take_stack(w));
    // Stacks are whole pages apart; different tops keep their hot lines in different cache sets.
    const size_t colour = (next.linear * 7 % 31) * 128;
    auto top = reinterpret_cast<uintptr_t>(next.local_begin) - 256 - colour;
    auto** frame = reinterpret_cast<void**>(top & ~uintptr_t(63));
    *--frame = nullptr;  // the return address of fiber_main, so that its stack is aligned as after a call
    *--frame = reinterpret_cast<void*>(&fiber_main);
    for (int i = 0; i < 6; i++) *--frame = nullptr;
    next.sp = frame;
  }
  rt_switch(save, next.sp);
}

void leave(Worker& w, void** save) { rt_switch(save, w.scheduler_sp); }

void run_fibers(Worker& w, Thread& first) { resume(w, first, &w.scheduler_sp); }

void exit_thread(Thread& t) {
  Worker& w = *t.worker;
  const uint32_t stack = t.stack;
  retire(t);
  Thread* next = pick(w);
  // A new thread may get this very stack: it begins at its top, far from this frame, which is never
  // returned to.
  w.free_stacks.push_back(stack);
  void* nowhere;
  if (next)
    resume(w, *next, &nowhere);
  else
    leave(w, &nowhere);
  __builtin_unreachable();
}

void prepare_stacks(Worker& w, size_t machine_bytes, size_t local_bytes) {
  if (machine_bytes <= w.machine_bytes && local_bytes <= w.local_bytes) return;
  for (size_t i = 0; i < w.stacks.size(); i++) munmap(w.stacks[i].base, slot_bytes(w));
  w.stacks.clear();
  w.free_stacks.clear();
  w.machine_bytes = (machine_bytes + page - 1) / page * page;
  w.local_bytes = (local_bytes + page - 1) / page * page;
}

}  // namespace rt
