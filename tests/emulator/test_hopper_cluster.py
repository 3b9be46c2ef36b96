"""Clusters: special registers, addresses, distributed shared memory, barriers, multicast, misuse."""

from __future__ import annotations

import numpy as np
import pytest
from hopper import MODES, HopperProgram, line_of

from cudahercules.errors import PlanError

SOURCE = "hopper_cluster.cu"


@pytest.fixture
def program(tmp_path):
    return HopperProgram(SOURCE, tmp_path)


def registers(grid, cluster, explicit):
    """What each block reads, in order of blocks."""
    rows = []
    for z, y, x in np.ndindex(grid[2], grid[1], grid[0]):
        block = (x, y, z)
        inside = [b % c for b, c in zip(block, cluster, strict=True)]
        of = [b // c for b, c in zip(block, cluster, strict=True)]
        count = [g // c for g, c in zip(grid, cluster, strict=True)]
        rank = inside[0] + cluster[0] * (inside[1] + cluster[1] * inside[2])
        rows.append([*inside, *cluster, rank, int(np.prod(cluster)), *of, *count, int(explicit), 77])
    return np.array(rows, np.uint32)


@pytest.mark.parametrize(
    ("grid", "cluster"),
    [((4, 6, 2), (2, 3, 1)), ((4, 2, 2), (1, 2, 2)), ((8, 1, 1), (8, 1, 1)), ((3, 2, 1), (0, 0, 0))],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_special_registers(program, grid, cluster, threads):
    out = program.array("out", np.zeros((int(np.prod(grid)), 16), np.uint32))
    program.launch("identity", grid, 1, "out", cluster=cluster)
    program.complete(threads=threads)
    assert np.array_equal(out, registers(grid, cluster if cluster[0] else (1, 1, 1), cluster[0] > 0))


def test_cluster_dimensions_of_the_source(program):
    out = program.array("out", np.zeros((16, 16), np.uint32))
    program.launch("compiled_identity", (4, 2, 2), 1, "out")
    program.complete()
    assert np.array_equal(out, registers((4, 2, 2), (2, 1, 2), True))


@pytest.mark.parametrize(
    ("kernel", "grid", "cluster", "text"),
    [
        ("compiled_identity", (4, 2, 2), (2, 2, 1), "other cluster dimensions"),
        ("compiled_identity", (4, 2, 1), (0, 0, 0), "no multiple of the cluster"),
        ("identity", (3, 1, 1), (2, 1, 1), "no multiple of the cluster"),
        ("identity", (32, 1, 1), (32, 1, 1), "a cluster of 32 blocks"),
    ],
)
def test_launches_that_hardware_refuses(program, kernel, grid, cluster, text):
    program.array("out", np.zeros((32, 16), np.uint32))
    program.launch(kernel, grid, 1, "out", cluster=cluster)
    with pytest.raises(PlanError, match=text):
        program.run()


def test_addresses(program):
    out = program.array("out", np.zeros((4, 8), np.uint32))
    program.launch("addresses", 4, 1, "out", cluster=(2, 1, 1))
    program.complete()
    assert np.array_equal(out, np.tile([1, 1, 1, 1, 0, 1, 1, 1], (4, 1)))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("n", [2, 4, 8])
def test_distributed_shared_memory(program, n, threads):
    x = program.array("x", np.random.default_rng(3).integers(0, 1000, (3, n, 32)).astype(np.int32), "input")
    out = program.array("out", np.zeros((3, n, 32, 4), np.int32))
    program.launch("exchange", 3 * n, 32, "x", "out", cluster=(n, 1, 1))
    program.complete(threads=threads)
    got = np.roll(x, -1, 1)
    assert np.array_equal(out[..., 0], got)
    assert np.array_equal(out[..., 1], np.roll(x, -2, 1)[..., ::-1])
    assert np.array_equal(out[..., 2], np.roll(got * 100 + np.arange(n)[None, :, None], -1, 1))
    assert np.array_equal(out[:, 0, :, 3], np.repeat(x.sum((1, 2))[:, None], 32, 1))
    assert not out[:, 1:, :, 3].any()


def test_cooperative_groups_histogram(program):
    x = program.array("x", np.random.default_rng(4).integers(0, 64, 1000).astype(np.int32), "input")
    out = program.array("out", np.zeros(65, np.int32))
    program.launch("histogram", 4, 64, "x", np.int32(1000), "out", np.int32(16), shared=64, cluster=(4, 1, 1))
    program.complete()
    assert np.array_equal(out[:64], np.bincount(x, minlength=64)) and out[64] == 40


def test_cooperative_groups_sum(program):
    x = program.array("x", np.arange(8 * 32, dtype=np.float32), "input")
    out = program.array("out", np.zeros(2, np.float32))
    program.launch("cluster_sum", 8, 32, "x", "out", cluster=(4, 1, 1))
    program.complete()
    assert np.array_equal(out, x.reshape(2, -1).sum(1))


@pytest.mark.parametrize("n", [2, 5])
def test_arrivals_at_other_blocks(program, n):
    out = program.array("out", np.zeros((n, 32), np.int32))
    program.launch("remote_arrivals", n, 32, "out", cluster=(n, 1, 1))
    program.complete()
    assert np.array_equal(out, (10 * ((np.arange(n) + 1) % n))[:, None] + np.arange(32))


@pytest.mark.parametrize("mode", MODES)
def test_asynchronous_stores(program, mode):
    out = program.array("out", np.zeros((2, 11), np.int32))
    program.launch("async_stores", 2, 1, "out", cluster=(2, 1, 1))
    program.complete(mode)
    for r in range(2):
        o = 1 - r  # whoever wrote here
        number = 123456789012 + o
        expected = [o + 1, o + 2, o + 3, o + 4, number & 0xFFFFFFFF, number >> 32, o, 9, 5 + o + 1, 0x3C, 0]
        assert np.array_equal(out[r].view(np.uint32), np.array(expected, np.uint32))


@pytest.mark.parametrize("mode", MODES)
def test_copies_between_blocks(program, mode):
    x = program.array("x", np.arange(4 * 64, dtype=np.int32).reshape(4, 64), "input")
    out = program.array("out", np.zeros_like(x))
    program.launch("block_to_block", 4, 32, "x", "out", cluster=(4, 1, 1))
    program.complete(mode)
    source = np.roll(x, 1, 0)
    assert np.array_equal(out[:, :32], source[:, :32])
    assert np.array_equal(out[:, 32:], 1000 + source[:, 32:])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("n", [2, 4])
def test_multicast(program, n, mode):
    x = program.array("x", np.arange(n * 8 * 32, dtype=np.float32).reshape(n * 8, 32), "input")
    line = program.array("line", np.arange(128, dtype=np.float32) - 1000, "input")
    out = program.array("out", np.zeros((2, n, 256 * n + 128), np.float32))
    map_ = program.tensor_map("x", (32, 8))
    program.launch("multicast", 2 * n, 32, map_, "line", "out", shared=1024 * n + 512, cluster=(n, 1, 1))
    program.complete(mode)
    assert np.array_equal(out[..., : 256 * n], np.broadcast_to(x.reshape(-1), (2, n, 256 * n)))
    assert np.array_equal(out[:, :-1, 256 * n :], np.broadcast_to(line, (2, n - 1, 128)))
    assert (out[:, -1, 256 * n :] == -1).all()


def test_threads_that_have_left_are_not_waited_for(program):
    out = program.array("out", np.zeros(1, np.int32))
    program.launch("some_leave", 4, 64, "out", cluster=(2, 1, 1))
    program.complete()
    assert out[0] == 128


def test_a_block_alone(program):
    out = program.array("out", np.zeros(1, np.int32))
    program.launch("alone", 1, 1, "out")
    program.complete()
    assert out[0] == 5


# --- what is wrong ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "what", "text"),
    [
        ("access_after_exit", "cluster_misuse", "block 1 of the cluster, which has exited"),
        ("generic_access_after_exit", "cluster_misuse", "block 1 of the cluster, which has exited"),
        ("access_before_begin", "cluster_misuse", "block 1 of the cluster, which may not have begun"),
        ("rank_too_large", "cluster_misuse", "block 2 of a cluster of 2"),
        (
            "past_the_end",
            "out_of_bounds",
            "4-byte read at byte 32 (32 bytes of shared memory in block 1 of the",
        ),
        ("own_space_only", "cluster_misuse", "of the cluster where shared::cta is accessed"),
    ],
)
def test_misuse_of_addresses(program, kernel, what, text):
    program.array("out", np.zeros(1, np.int32))
    program.launch(kernel, 2, 1, "out", cluster=(2, 1, 1))
    fault = program.fault()
    assert fault.what == what and text in fault.message
    assert (fault.kernel, fault.file) == (kernel, SOURCE) and fault.line


@pytest.mark.parametrize(
    ("kernel", "text"),
    [
        ("barrier_in_another_block", "signals an mbarrier in another's"),
        ("mask_too_large", "the multicast mask 7 names blocks outside the cluster of 2"),
    ],
)
def test_misuse_of_copies(program, kernel, text):
    program.array("x", np.zeros(64, np.int32), "input")
    program.launch(kernel, 2, 1, "x", cluster=(2, 1, 1))
    fault = program.fault()
    assert fault.what == "bulk_copy" and text in fault.message


@pytest.mark.parametrize(
    ("kernel", "text"),
    [
        ("wait_without_arrive", "barrier.cluster.wait without barrier.cluster.arrive"),
        ("arrive_twice", "arrives at barrier.cluster twice"),
    ],
)
def test_misuse_of_the_barrier(program, kernel, text):
    program.launch(kernel, 2, 1, cluster=(2, 1, 1))
    fault = program.fault()
    assert fault.what == "cluster_misuse" and text in fault.message


_LINES = ("@!done bra again;", "barrier.cluster.arrive.release.aligned;")


def test_deadlock_over_two_blocks(program):
    program.launch("forgotten_arrival", 2, 1, cluster=(2, 1, 1))
    fault = program.fault()
    assert fault.what == "deadlock"
    assert "none of the 2 living threads (of 2) can go on" in fault.message
    waits = sorted(fault.threads)
    assert len(waits) == 2
    assert waits[0].startswith("1 thread of block 0 of the cluster waits on the mbarrier at byte ")
    assert "for the phase of parity 0 (1 of 2 arrivals missing, 0 bytes missing)" in waits[0]
    assert waits[1].startswith("1 thread of block 1 of the cluster waits at the cluster's barrier")
    assert all(f" at {SOURCE}:{line_of(SOURCE, text)}: " in w for w, text in zip(waits, _LINES, strict=True))
