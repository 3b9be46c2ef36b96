// Meetings of the lanes of one warp: shuffles, votes, and whatever else a warp does together.
#include "mma.hpp"
#include "state.hpp"

namespace rt {

namespace {

void finish_meeting(Resident& b, Warp& warp, size_t index, uint32_t also_running) {
  Pending meeting = warp.pending[index];
  warp.pending.erase(warp.pending.begin() + long(index));
  meeting.function(meeting.lanes);
  if (meeting.function == warp_sync) watch::warp_meets(warp, meeting.lanes.active);
  make_runnable(b, warp, meeting.lanes.active & ~also_running);
}

}  // namespace

void together(Thread& t, uint32_t mask, Collective function, void* operands, uint32_t site) {
  Resident& b = static_cast<Resident&>(*t.block);
  Warp& warp = *t.warp;
  const uint32_t self = 1u << t.lane;
  if (!(mask & self)) fault(t, site, "mismatched_mask", "\"mask\":" + std::to_string(mask) + ",\"own\":true");
  size_t index = 0;
  while (index < warp.pending.size() && (warp.pending[index].mask != mask || warp.pending[index].function != function))
    index++;
  if (index == warp.pending.size()) {
    warp.pending.emplace_back();
    warp.pending.back().mask = mask;
    warp.pending.back().function = function;
    warp.pending.back().lanes.active = 0;
  }
  Lanes& lanes = warp.pending[index].lanes;
  lanes.active |= self;
  lanes.lane[t.lane] = operands;
  if (!(mask & warp.alive & ~lanes.active)) {
    finish_meeting(b, warp, index, self);
    return;
  }
  t.wait = Wait::lanes;
  t.detail = mask;
  t.site = site;
  suspend(t);
}

void whole_warp(Thread& t, Collective function, void* operands, uint32_t site) {
  if (t.warp->alive != all_lanes)
    fault(t, site, "illegal_instruction",
          "\"detail\":\"an instruction for whole warps, but only " + std::to_string(__builtin_popcount(t.warp->alive)) +
              " lanes of the warp are alive\"");
  together(t, all_lanes, function, operands, site);
}

void lanes_after_exit(Resident& b, Warp& warp) {
  for (size_t i = warp.pending.size(); i-- > 0;) {
    const Pending& p = warp.pending[i];
    if (!(p.mask & warp.alive & ~p.lanes.active)) finish_meeting(b, warp, i, 0);
  }
}

// activemask has no exact meaning for independent threads. Lanes that ask wait until no other lane of
// the warp can run; those at the same place then see each other, as converged lanes do on a GPU.
uint32_t activemask(Thread& t, uint32_t site) {
  t.wait = Wait::activemask;
  t.site = site;
  t.warp->asking |= 1u << t.lane;
  static_cast<Resident&>(*t.block).ready |= 1u << t.warp->index;
  suspend(t);
  return t.value;
}

void resolve_asking(Resident& b, Warp& warp) {
  constexpr uint32_t most_patience = 16;
  if (warp.yielded && warp.patience++ < most_patience) {
    make_runnable(b, warp, warp.yielded);
    warp.yielded = 0;
    b.yielded_warps &= ~(1u << warp.index);
    return;
  }
  warp.patience = 0;
  const uint32_t site = warp.threads[__builtin_ctz(warp.asking)].site;
  uint32_t group = 0;
  for (uint32_t rest = warp.asking; rest; rest &= rest - 1) {
    const uint32_t lane = uint32_t(__builtin_ctz(rest));
    if (warp.threads[lane].site == site) group |= 1u << lane;
  }
  for (uint32_t rest = group; rest; rest &= rest - 1) warp.threads[__builtin_ctz(rest)].value = group;
  warp.asking &= ~group;
  make_runnable(b, warp, group);
}

}  // namespace rt
