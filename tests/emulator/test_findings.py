"""The checking build: a small wrong kernel for each thing that it looks for, and the same one sound.

Kernels take (in, out, sound); lines that a report must name bear a mark in the source."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from emulated import KERNELS, Program, compile_ptx

from cudahercules.emulator import native
from cudahercules.emulator.examine import Examination, examine
from cudahercules.emulator.findings import Finding, Place

MODES = ("late", "eager", "random:1")

# Kernel: kind, and the marks of the lines that the finding names.
MISTAKES = {
    "barrier_missing": ("race", "write", "read"),
    "second_barrier_missing": ("race", "write", "read"),
    "warp_barrier_missing": ("race", "write", "read"),
    "shuffle_is_no_barrier": ("race", "write", "read"),
    "two_writers": ("race", "write", "write"),
    "neighbouring_bytes": ("race", "write", "write"),
    "wrong_named_barrier": ("race", "write", "read"),
    "histogram_barrier_missing": ("race", "write", "atomic"),
    "tile_barrier_missing": ("race", "write", "read"),
    "inlined": ("race", "put", "read"),
    "undefined_shared": ("uninitialised", "read"),
    "undefined_maximum": ("uninitialised", "read"),
    "undefined_scratch": ("uninitialised", "read"),
    "unwritten": ("unwritten",),
    "copy_not_waited_for": ("missing_wait", "copy", "read"),
    "too_few_copies_waited_for": ("missing_wait", "copy", "read"),
    "copy_without_barrier": ("missing_wait", "copy", "read"),
    "copy_over_readers": ("missing_wait", "read", "copy"),
    "past_the_end": ("out_of_bounds", "write"),
    "past_shared": ("out_of_bounds", "write"),
    "misaligned": ("misaligned", "read"),
    "half_of_the_barrier": ("deadlock", "first", "second"),
    "divergent": ("barrier_divergence", "first", "second"),
    "masks": ("mismatched_mask", "shuffle"),
    "endless": ("out_of_fuel", "loop"),
}
HOPPER = {
    "load_not_waited_for": ("missing_wait", "copy", "read"),
    "stage_filled_too_early": ("missing_wait", "copy", "read"),
    "stored_source_overwritten": ("missing_wait", "copy", "write"),
    "stored_before_the_barrier": ("missing_wait", "write", "copy"),
    "stored_without_fence": ("missing_fence", "write", "copy"),
    "stored_with_one_fence": ("missing_fence", "write", "copy"),
    "operands_not_fenced": ("missing_fence", "write", "product"),
    "used_before_init_is_seen": ("mbarrier_misuse", "init", "arrive"),
    "never_initialised": ("mbarrier_misuse", "arrive"),
    "operands_overwritten": ("missing_wait", "product", "write"),
    "accumulators_read_early": ("missing_wait", "read"),
    "neighbour_read_early": ("race", "write", "read"),
}
SOURCES = {**dict.fromkeys(MISTAKES, "mistakes.cu"), **dict.fromkeys(HOPPER, "mistakes_hopper.cu")}
CASES = {**MISTAKES, **HOPPER}


def examined(tmp_path, name: str, sound: bool, mode: str = "late", wall_s: float = 20) -> Examination:
    source = SOURCES.get(name, "mistakes.cu")
    hopper = source == "mistakes_hopper.cu"
    program = Program(compile_ptx(KERNELS / source, "90a" if hopper else "80"), tmp_path)
    threads = 128 if hopper else 32 if name == "masks" else 256
    rng = np.random.default_rng(3)
    program.array("in", rng.integers(1, 1000, max(threads, 128), dtype=np.int32), "input")
    size = 64 if name == "stage_filled_too_early" else 32 if "histogram" in name else threads
    first = 64 if name == "wrong_named_barrier" else 0
    out = np.full(size, 0x7FC00000, np.int32)
    program.array("out", out, "inout" if first else "output")
    arguments: list[object] = ["in", "out", np.int32(sound)]
    if name == "undefined_scratch":
        program.array("scratch", np.full(threads, 0x7FFF7FFF, np.int32), "scratch")
        arguments.append("scratch")
    blocks = 2 if name == "neighbour_read_early" else 1
    if name == "wrong_named_barrier":
        threads = 128
    program.launch(name, blocks, threads, *arguments, shared=32768 if name == "many_atomics" else 0)
    contents = {name: array for name, array in program.contents().items() if name != "scratch"}
    found = examine(program.plan(), program.artifact, contents, wall_s, asynchrony=mode)
    assert isinstance(found, Examination), found
    return found


def marks(name: str) -> dict[str, int]:
    """The marked lines of a kernel, by what the mark says."""
    lines = (KERNELS / SOURCES[name]).read_text().splitlines()
    found = [(re.search(rf"// mark: {name} (\w+)$", line), number) for number, line in enumerate(lines, 1)]
    return {match[1]: number for match, number in found if match}


def places(finding: Finding) -> Iterator[Place]:
    """Every place that the finding names."""
    yield finding.place
    for name in ("first", "second"):
        if touch := getattr(finding, name, None):
            yield touch.place
    if other := getattr(finding, "other", None):
        yield other
    for group in getattr(finding, "groups", ()):
        yield group.place


@pytest.mark.parametrize("name", CASES)
def test_mistakes_are_found_with_their_lines(name, tmp_path):
    kind, *wanted = CASES[name]
    found = examined(tmp_path, name, sound=False, wall_s=1.5 if name == "endless" else 20)
    assert [f.kind for f in found.findings] == [kind], found.findings
    (finding,) = found.findings
    lines = {line for place in places(finding) for line in (place.line, *_call_lines(place))}
    assert {marks(name)[mark] for mark in wanted} <= lines, finding
    assert finding.cause.endswith(".") and finding.message
    for place in places(finding):
        assert not place.line or (place.kernel == name and place.file == SOURCES[name])


def _call_lines(place: Place) -> list[int]:
    return [int(caller.rpartition(":")[2]) for caller in place.callers]


SOUND = [
    (name, mode)
    for name in (*CASES, "undefined_and_unused", "many_atomics")
    for mode in (MODES if name in HOPPER or "cop" in name else MODES[:1])
]


@pytest.mark.parametrize(("name", "mode"), SOUND)
def test_without_the_mistake_nothing_is_found(name, mode, tmp_path):
    found = examined(tmp_path, name, sound=True, mode=mode)
    assert (found.ending, found.findings) == ("completed", ())


ASYNCHRONOUS = [name for name, (kind, *_) in CASES.items() if kind == "missing_wait"]


@pytest.mark.parametrize("mode", ["eager", "random:1"])
@pytest.mark.parametrize("name", ASYNCHRONOUS)
def test_missing_waits_are_found_in_every_order(name, mode, tmp_path):
    found = examined(tmp_path, name, sound=False, mode=mode)
    # A producer that runs too far ahead of its consumers may also leave them behind.
    kinds = {f.kind for f in found.findings}
    assert kinds == {"missing_wait"} or (name, kinds) == ("stage_filled_too_early", {"deadlock"})


# --- what is said beside the lines ----------------------------------------------------------------


def test_a_race_names_two_threads_and_the_bytes(tmp_path):
    (race,) = examined(tmp_path, "barrier_missing", sound=False).findings
    assert race.kind == "race"
    writer, reader = sorted((race.first, race.second), key=lambda touch: touch.touch, reverse=True)
    assert (writer.touch, reader.touch, race.size) == ("write", "read", 4)
    assert writer.place.thread[0] * 4 == race.offset == (reader.place.thread[0] + 33) % 256 * 4
    assert race.count > 100 and "__syncthreads()" in race.cause


def test_findings_name_the_variable_in_shared_memory(tmp_path):
    (race,) = examined(tmp_path, "second_barrier_missing", sound=False).findings
    assert (
        f"byte {race.offset} of shared memory (s{f' + {race.offset}' if race.offset else ''})" in race.message
    )


def test_a_race_within_warps_asks_for_a_warp_barrier(tmp_path):
    (race,) = examined(tmp_path, "warp_barrier_missing", sound=False).findings
    assert "__syncwarp()" in race.cause


def test_a_race_between_blocks_names_both_and_asks_for_a_cluster_barrier(tmp_path):
    (race,) = examined(tmp_path, "neighbour_read_early", sound=False).findings
    assert {race.first.place.block, race.second.place.block} == {(0, 0, 0), (1, 0, 0)}
    assert "of block 0,0,0" in race.message and "of block 1,0,0" in race.message
    assert "barrier.cluster" in race.cause


def test_inlined_code_names_its_call_site(tmp_path):
    (race,) = examined(tmp_path, "inlined", sound=False).findings
    writer = next(t for t in (race.first, race.second) if t.touch == "write")
    lines = marks("inlined")
    assert writer.place.line == lines["put"]
    assert writer.place.callers == (f"mistakes.cu:{lines['call']}",)
    assert f"called at mistakes.cu:{lines['call']}" in race.message


def test_out_of_bounds_has_buffer_offset_and_distance(tmp_path):
    (fault,) = examined(tmp_path, "past_the_end", sound=False).findings
    assert (fault.memory, fault.name, fault.offset, fault.extent) == ("buffer", "out", 1024, 1024)
    assert (fault.distance, fault.access, fault.size, fault.place.thread) == (4, "write", 4, (255, 0, 0))
    (fault,) = examined(tmp_path, "past_shared", sound=False).findings
    assert (fault.memory, fault.offset, fault.extent, fault.distance) == ("shared", 1024, 1024, 4)


def test_a_deadlock_has_groups_by_line(tmp_path):
    (deadlock,) = examined(tmp_path, "half_of_the_barrier", sound=False).findings
    lines = marks("half_of_the_barrier")
    groups = {(group.place.line, group.count) for group in deadlock.groups}
    assert groups == {(lines["first"], 128), (lines["second"], 128)}
    assert deadlock.groups[0].threads[0] == ((0, 0, 0), (127, 0, 0))


def test_unwritten_output_names_the_first(tmp_path):
    (missing,) = examined(tmp_path, "unwritten", sound=False).findings
    assert (missing.output, missing.offset, missing.missing, missing.extent) == ("out", 1000, 24, 1024)


def test_a_missing_barrier_after_a_wait_is_told_from_a_missing_wait(tmp_path):
    (alone,) = examined(tmp_path, "copy_not_waited_for", sound=False).findings
    (others,) = examined(tmp_path, "copy_without_barrier", sound=False).findings
    assert "barrier" not in alone.cause and "barrier" in others.cause


def test_a_process_that_dies_is_a_finding(tmp_path, monkeypatch):
    monkeypatch.setattr(native, "host_program", lambda *_: Path("/bin/false").resolve())
    found = examined(tmp_path, "unwritten", sound=True)
    assert found.ending == "fault" and "status 1" in found.findings[0].message


def test_a_refused_module_is_said_to_be_unsupported(tmp_path):
    ptx = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\nfoo.bar;\nret;\n}\n"
    program = Program(ptx, tmp_path)
    program.launch("k", 1, 1)
    found = examine(program.plan(), program.artifact, program.contents(), 5)
    assert found.kind == "unsupported" and found.instructions[0].instruction.startswith("foo.bar")


def test_a_refused_instruction_has_the_source_line_without_the_builds_directory(tmp_path):
    source = tmp_path / "refused.cu"
    source.write_text(
        'extern "C" __global__ void f(int* out) {\n'
        '  asm volatile("multimem.red.relaxed.sys.global.add.u32 [%0], 1;" ::"l"(out));\n'
        "}\n"
    )
    program = Program(compile_ptx(source, "90a"), tmp_path)
    program.array("out", np.zeros(1, np.int32), "output")
    program.launch("f", 1, 1, "out")
    found = examine(program.plan(), program.artifact, program.contents(), 20)
    assert found.kind == "unsupported"
    assert [(u.file, u.line) for u in found.instructions] == [("refused.cu", 2)]
