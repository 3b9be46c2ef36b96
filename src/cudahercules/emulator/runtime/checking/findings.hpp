// What was found, each once, with how often it happened.
#pragma once
#include "shadow.hpp"

namespace rt::watch {

// Two conflicting touches that are not ordered.
void found_conflict(Resident& b, Knowledge& k, uint32_t offset, uint32_t size, const Event& first, Touch first_touch,
                    const Event& second, Touch second_touch);
// Asynchronous work reads what was stored and ordered, but not fenced for it.
void found_unfenced(Resident& b, Knowledge& k, uint32_t offset, uint32_t size, const Event& first, const Event& second);
// A register is read that a product may still be writing.
void found_unfinished(Thread& t, uint32_t site);
// A read of memory that nothing wrote; `space` is shared or global.
void found_uninitialised(Thread& t, const char* space, uint64_t at, uint32_t size, uint32_t site);
// An mbarrier is used by a thread to which its initialisation is not visible.
void found_early_use(Resident& b, Knowledge& k, uint32_t offset, const Event& first, const Event& second);

}  // namespace rt::watch
