"""Planted bugs in the checking build: what it is told, what it remembers, what orders what."""

from __future__ import annotations

from plant import Mutant

TESTS = ["tests/emulator/test_findings.py"]
_WATCH = "runtime/checking/watch.cpp"
_SHADOW = "runtime/checking/shadow.cpp"
_CLOCKS = "runtime/checking/clocks.cpp"

MUTANTS = [
    Mutant(
        "those that wait at a barrier learn nothing",
        _WATCH,
        "k.threads[k.index(warp.threads[__builtin_ctz(lanes)])].common = k.opened[number];",
        ";",
    ),
    Mutant(
        "the last at a barrier learns nothing",
        _WATCH,
        "k.threads[k.index(t)].common = k.opened[t.block->cluster_rank * 16 + id];",
        "(void)k;",
    ),
    Mutant(
        "all named barriers are one", _WATCH, "k.barriers[t.block->cluster_rank * 16 + id]", "k.barriers[0]"
    ),
    Mutant("bar.warp.sync orders nothing", "runtime/warp.cpp", "meeting.function == warp_sync", "false"),
    Mutant("every meeting of lanes orders", "runtime/warp.cpp", "meeting.function == warp_sync", "true"),
    Mutant("barrier.cluster orders nothing", _WATCH, "k.acquire(k.index(t), k.cluster_over);", "(void)k;"),
    Mutant(
        "waiting on an mbarrier orders nothing",
        _WATCH,
        "k.acquire(k.index(t), k.mbarrier(at).over);",
        "(void)k;",
    ),
    Mutant(
        "arriving at an mbarrier tells nothing",
        _WATCH,
        "k.release(k.index(t), k.mbarrier(at).pending);",
        "(void)k;",
    ),
    Mutant(
        "a phase's copies are not over with it", _WATCH, "m.pending.raise(m.lane, ++m.phases);", "++m.phases;"
    ),
    Mutant("wait_group covers one group more", _WATCH, "[groups - 1]", ".back() + 0 * groups"),
    Mutant(
        "bulk wait_group covers nothing",
        _WATCH,
        "own = t.bulk_group - groups_left;",
        "own += 0;",
    ),
    Mutant(
        "products are never waited for", _WATCH, "if (own < products) own = uint32_t(products);", "(void)own;"
    ),
    Mutant(
        "products read nothing",
        "runtime/wgmma.cpp",
        "watch::wgmma_reads(t, o.form, o.operands, g.complete, site);",
        "",
    ),
    Mutant("bulk copies read and write nothing", "runtime/bulk.cpp", "  tell(op);\n", ""),
    Mutant(
        "cp.async writes nothing",
        "runtime/async.cpp",
        "watch::copy_begins(t, to, size, issued(q), site);",
        "",
    ),
    Mutant("proxy fences cover nothing", _CLOCKS, "after->raise(fenced(i), count);", "(void)count;"),
    Mutant(
        "no proxy fence is needed",
        _SHADOW,
        "if (!write.there || write.lane >= n",
        "if (true || write.lane >= n",
    ),
    Mutant("reads are forgotten", _SHADOW, "      remember_read(cell, shadow, event);\n", ""),
    Mutant(
        "atomics conflict with each other",
        _SHADOW,
        "if (before.how != How::plain && now.how != How::plain) return false;",
        "",
    ),
    Mutant(
        "the first byte stands for all",
        _SHADOW,
        "Cell& cell = shadow.cells[offset + i];",
        "Cell& cell = shadow.cells[offset & ~3u];",
    ),
    Mutant(
        "what was written counts as unwritten",
        "runtime/checking/global.cpp",
        "memset(at, 1, size);\n    return;",
        "return;",
    ),
    Mutant(
        "what comes after a release is released, too", _CLOCKS, "  threads[thread].own[lane_thread]++;\n", ""
    ),
]
