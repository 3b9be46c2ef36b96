"""Special registers in C++. ``t`` is the thread, ``t.block`` its block."""

from __future__ import annotations

import re

from cudahercules.emulator.emit.access import Unsupported

_AXES = {"x": 0, "y": 1, "z": 2}

_OF_BLOCK = ("ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid")

_PLAIN = {
    "laneid": "t.lane",
    "warpid": "(t.linear / 32)",
    "nwarpid": "32u",
    "smid": "rt::worker_number(t)",
    "nsmid": "132u",
    "gridid": "t.block->grid_id",
    "clock": "rt::cycles()",
    "clock_hi": "(rt::cycles() >> 32)",
    "clock64": "rt::cycles()",
    "globaltimer": "rt::nanoseconds()",
    "globaltimer_lo": "rt::nanoseconds()",
    "globaltimer_hi": "(rt::nanoseconds() >> 32)",
    "lanemask_eq": "(1u << t.lane)",
    "lanemask_lt": "((1u << t.lane) - 1u)",
    "lanemask_le": "((2u << t.lane) - 1u)",
    "lanemask_gt": "(~((2u << t.lane) - 1u))",
    "lanemask_ge": "(~((1u << t.lane) - 1u))",
    "dynamic_smem_size": "t.block->shared_dynamic",
    "total_smem_size": "(t.block->shared_size + rt::shared_origin)",
    "aggr_smem_size": "(t.block->shared_size + rt::shared_origin)",
    # The system's kilobyte at the start of shared memory: cooperative groups keep 288 bytes in it.
    "reserved_smem_offset_begin": "0u",
    "reserved_smem_offset_end": "rt::shared_origin",
    "reserved_smem_offset_cap": "rt::shared_origin",
    "reserved_smem_offset_0": "0u",
    "reserved_smem_offset_1": "(rt::shared_origin - rt::reserved_shared)",
    "envreg1": "(t.block->grid_workspace >> 32)",
    "envreg2": "(t.block->grid_workspace)",
    "cluster_ctarank": "t.block->cluster_rank",
    "cluster_nctarank": "t.block->cluster_size",
    "is_explicit_cluster": "t.block->explicit_cluster",
    "WARP_SZ": "32u",
}

# What a thread reads in a loop that waits for something to happen.
CLOCKS = frozenset(("clock", "clock64", "clock_hi", "globaltimer", "globaltimer_lo", "globaltimer_hi"))


def special(name: str) -> str:
    """C++ for special register ``name`` (without ``%``). Raises Unsupported."""
    if name in _PLAIN:
        return _PLAIN[name]
    base, _, axis = name.rpartition(".")
    if axis in _AXES:
        index = _AXES[axis]
        if base == "tid":
            return f"t.tid[{index}]"
        if base in _OF_BLOCK:
            return f"t.block->{base}[{index}]"
    if re.fullmatch(r"envreg\d+", name):
        return "0u"
    raise Unsupported(f"special register %{name}")
