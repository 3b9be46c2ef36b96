// Global memory that begins undefined: which bytes of it have been written.
#pragma once
#include "findings.hpp"

namespace rt::watch {

void touch_global(Thread& t, uint64_t address, uint32_t size, Touch touch, uint32_t site);
std::string unwritten();  // the tracked ranges in which bytes were never written

}  // namespace rt::watch
