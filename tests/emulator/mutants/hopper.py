"""Planted bugs in mbarriers, clusters, bulk and tensor copies, and in the modes of asynchrony."""

from __future__ import annotations

from plant import Mutant

TESTS = [
    "tests/emulator/test_hopper_mbarrier.py",
    "tests/emulator/test_hopper_cluster.py",
    "tests/emulator/test_hopper_tensor.py",
]
_MBARRIER, _CLUSTER, _BULK = "runtime/mbarrier.cpp", "runtime/cluster.cpp", "runtime/bulk.cpp"
_TMA, _REDUCE, _SCHEDULE = "runtime/tma.cpp", "runtime/reduce.cpp", "runtime/schedule.cpp"

MUTANTS = [
    Mutant("a phase does not wait for bytes", _MBARRIER, " || state & mbarrier_bytes)", ")"),
    Mutant(
        "the next phase waits for nobody", _MBARRIER, " | mbarrier_expected(state);\n  store", ";\n  store"
    ),
    Mutant("who drops out is waited for", _MBARRIER, "if (drop) state -= uint64_t(count) << 20;", ""),
    Mutant(
        "announced bytes are subtracted",
        _MBARRIER,
        "valid(t, at, site), bytes, site)",
        "valid(t, at, site), -int64_t(bytes), site)",
    ),
    Mutant("bytes missing without sign", "runtime/mbarrier.hpp", "<< 11) >> 11", "& 0x1fffff)"),
    Mutant(
        "no mark of initialised objects", _MBARRIER, "(state & mbarrier_mark_bits) != mbarrier_mark", "false"
    ),
    Mutant("too many arrivals", _MBARRIER, "!count || count > missing", "!count"),
    Mutant("noComplete may complete", _MBARRIER, "stays && count == missing", "false"),
    Mutant("overflow of the transaction count", _MBARRIER, "bytes > most || bytes < -most", "false"),
    Mutant(
        "phase ends with a copy under way",
        _MBARRIER,
        "if (bulk_pending_on(*b.cluster, at, copy_site))\n    fault",
        "if (false)\n    fault",
    ),
    Mutant(
        "init with a copy under way",
        _MBARRIER,
        'at, copy_site))\n    misuse(t, site, described(t, at) + " is initialised',
        'at, copy_site) && false)\n    misuse(t, site, described(t, at) + " is initialised',
    ),
    Mutant(
        "a wait looks at the other parity",
        _MBARRIER,
        "if ((valid(t, at, site) >> 63 != 0) != phase)",
        "if ((valid(t, at, site) >> 63 != 0) == phase)",
    ),
    Mutant(
        "waiters of the other parity wake",
        _MBARRIER,
        "(state >> 63 != 0) == (waiter.detail != 0)",
        "(state >> 63 != 0) != (waiter.detail != 0)",
    ),
    Mutant(
        "the first idle poll is a deadlock", _MBARRIER, "t->polls < idle_polls", "t->polls + 64 < idle_polls"
    ),
    Mutant("idle polls are never counted", _MBARRIER, "    t.polls++;", ""),
    Mutant(
        "cp.async arrives uncounted",
        "runtime/async.cpp",
        "if (count_first) mbarrier_more",
        "if (false) mbarrier_more",
    ),
    Mutant("cp.async arrives before its copies", _BULK, "    async_perform(*op.thread, op.sequence);\n", ""),
    Mutant("ranks count another dimension", _SCHEDULE, "layer % l.cluster[1]", "layer % l.cluster[2]"),
    Mutant("own addresses without rank", _SCHEDULE, "shared_origin | rank << 24", "shared_origin"),
    Mutant(
        "cluster id counts blocks",
        _SCHEDULE,
        "b.ctaid[i] = b.clusterid[i] * l.cluster[i] + b.cluster_ctaid[i];",
        "b.ctaid[i] = (b.clusterid[i] *= l.cluster[i]) + b.cluster_ctaid[i];",
    ),
    Mutant("mapa stays at home", _CLUSTER, "(address & 0xffffff) | uint64_t(rank) << 24", "address"),
    Mutant(
        "generic mapa stays at home",
        _CLUSTER,
        "reinterpret_cast<uint64_t>(peer(t, rank, site).shared)",
        "reinterpret_cast<uint64_t>(b->shared)",
    ),
    Mutant(
        "getctarank gives the own rank",
        _CLUSTER,
        "return peer(t, address >> 24, site).cluster_rank;",
        "return t.block->cluster_rank;",
    ),
    Mutant("a block that has exited is alive", _CLUSTER, "  if (!b.alive)\n", "  if (false)\n"),
    Mutant("a block that has not begun is there", _CLUSTER, "  if (!b.begun)\n", "  if (false)\n"),
    Mutant(
        "a site remembers another block's memory",
        "runtime/memory.cpp",
        "if (t.block->cluster_size == 1) slot",
        "slot",
    ),
    Mutant(
        "no bounds in other blocks",
        _CLUSTER,
        "if (offset > b.shared_size || size > b.shared_size - offset) outside",
        "if (false) outside",
    ),
    Mutant("barrier.cluster lets all through", _CLUSTER, "if (c.phase == t.cluster_phase) {", "if (false) {"),
    Mutant("barrier.cluster waits for the dead", _SCHEDULE, "if (c.arrived) cluster_after_exit(t);", ""),
    Mutant(
        "isspacep knows only the own block",
        _CLUSTER,
        "return block_of_shared(*own(t).cluster, reinterpret_cast<const uint8_t*>(address)) != nullptr;",
        "return in_shared(t, address);",
    ),
    Mutant("cvta knows only the own block", _CLUSTER, "address >> 24 < c.blocks.size() ?", "false ?"),
    Mutant(
        "multicast stays at home",
        _BULK,
        "if (!(m.blocks >> rank & 1)) continue;",
        "if (rank != t.block->cluster_rank) continue;",
    ),
    Mutant("multicast ignores its mask", _BULK, "if (!(m.blocks >> rank & 1)) continue;", ""),
    Mutant("barrier may be another block's", _BULK, "if (to >> 24 != barrier >> 24)", "if (false)"),
    Mutant(
        "late reads sources at issue",
        _BULK,
        "  c.bulk->operations.push_back(std::move(op));",
        "  read_source(op);\n  c.bulk->operations.push_back(std::move(op));",
    ),
    Mutant("late is eager", _BULK, "if (job.asynchrony == Asynchrony::eager) {", "if (true) {"),
    Mutant("eager is late", _BULK, "if (job.asynchrony == Asynchrony::eager) {", "if (false) {"),
    Mutant("any copy will do for a waiting thread", _BULK, "if (awaited(c, operations[i])) {", "if (true) {"),
    Mutant(
        "random is late", _BULK, "if (job.asynchrony != Asynchrony::random || !c.bulk) return;", "return;"
    ),
    Mutant("seeds make no difference", _SCHEDULE, "c->random = job.seed +", "c->random ="),
    Mutant(
        "wait_group leaves one group more",
        _BULK,
        "op.group >= t.bulk_group - groups_left",
        "op.group + 1 >= t.bulk_group - groups_left",
    ),
    Mutant(
        "wait_group waits for all",
        _BULK,
        "op.group >= t.bulk_group - groups_left",
        "op.group >= t.bulk_group",
    ),
    Mutant(
        "wait_group.read reads nothing",
        _BULK,
        "    } else if (only_reads) {\n      read_source(op);",
        "    } else if (only_reads) {",
    ),
    Mutant("blocks may leave copies behind", _BULK, "if (op.to_block == &b)", "if (false)"),
    Mutant(
        "stores of a block that exits read later",
        _BULK,
        "&& op.group != no_group) read_source(op);",
        "&& false);",
    ),
    Mutant(
        "stores that nobody waits for are lost",
        _BULK,
        "while (c.bulk && !c.bulk->operations.empty()) perform_at(c, 0);",
        "if (c.bulk) c.bulk->operations.clear();",
    ),
    Mutant("bulk copies need no alignment", _BULK, "if (what) bulk_fault", "if (false) bulk_fault"),
    Mutant("boxes need no alignment", _BULK, "if (shared % 128) bulk_fault", "if (false) bulk_fault"),
    Mutant("no swizzle", _TMA, "return Swizzle(box.map.swizzle);", "return Swizzle::none;"),
    Mutant(
        "one bit of swizzle too few",
        "runtime/swizzle.hpp",
        "(1u << static_cast<uint32_t>(mode)) - 1",
        "(1u << static_cast<uint32_t>(mode)) / 2",
    ),
    Mutant(
        "the swizzle begins at the box",
        _BULK,
        "swizzled(window + i, swizzle) - shared_origin",
        "window + swizzled(i, swizzle) - shared_origin",
    ),
    Mutant(
        "rows in another order",
        _TMA,
        "address += uint64_t(c) * m.stride[k - 1];",
        "address += uint64_t(c) * m.stride[m.rank - 1 - k];",
    ),
    Mutant(
        "coordinates below zero",
        _TMA,
        "inside &= c >= 0 && c < dimension(m, k);",
        "inside &= c < dimension(m, k);",
    ),
    Mutant("coordinates past the end", _TMA, "c < dimension(m, k);", "c <= dimension(m, k);"),
    Mutant(
        "the inner coordinate past the end",
        _TMA,
        "n - c < width ? n - c : width",
        "n - c + 1 < width ? n - c + 1 : width",
    ),
    Mutant("the inner coordinate below zero", _TMA, "first = c < 0 ? -c : 0", "first = c < 0 ? -c - 1 : 0"),
    Mutant("steps are ignored", _TMA, "int64_t(index[k]) * m.step[k]", "int64_t(index[k])"),
    Mutant(
        "the number of steps is rounded down",
        _TMA,
        "(m.box[k] + m.step[k] - 1u) / m.step[k]",
        "m.box[k] / m.step[k]",
    ),
    Mutant("the fill is always zero", _TMA, "if (!m.fill) return 0;", "return 0;"),
    Mutant("tf32 is cut off", _TMA, "(bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu", "bits & ~0x1fffu"),
    Mutant("subnormal floats stay", _TMA, "if (m.type != type_tf32 && !exponent) bits &= 0x80000000u;", ""),
    Mutant(
        "a changed tensor map is taken",
        _TMA,
        "m.magic != tensor_magic || m.check != checksum(m)",
        "m.magic != tensor_magic",
    ),
    Mutant("stores write outside the tensor", _TMA, "    if (!inside) return;\n", ""),
    Mutant("tensor reductions store", _TMA, "    if (reduction == Reduction::none)\n", "    if (true)\n"),
    Mutant("no bounds of global memory", _TMA, "if (!r || address - r->lo + bytes > r->size ||", "if (!r ||"),
    Mutant(
        "inputs may be written",
        _TMA,
        " || (access != access_read && !r->writable))\n    fault",
        ")\n    fault",
    ),
    Mutant("minimum of halves is their maximum", _REDUCE, "HalfOp::min>(to", "HalfOp::max>(to"),
    Mutant(
        "signed minimum without sign",
        _REDUCE,
        "integer_reduction<int32_t>(r, false)",
        "integer_reduction<uint32_t>(r, false)",
    ),
    Mutant(
        "float sums keep subnormals", _REDUCE, "atomic_add_f32<true, true>", "atomic_add_f32<true, false>"
    ),
    Mutant(
        "red.async stores",
        "emit/cluster.py",
        "return _send(context, instruction, type_, 1, REDUCTIONS[operation], number)",
        'return _send(context, instruction, type_, 1, "none", number)',
    ),
    Mutant("st.async sends one element", "emit/cluster.py", "_v, sizeof _v, ", "_v, sizeof _v[0], "),
    Mutant(
        "coordinates outermost first",
        "emit/bulk.py",
        "for c in memory.coordinates)",
        "for c in reversed(memory.coordinates))",
    ),
    Mutant("extents one too large", "tensor_map.py", "d - 1 if d else 0", "d"),
    Mutant("arrive_drop is arrive", "emit/mbarrier.py", 'rest[0] == "arrive_drop"', "False"),
]
