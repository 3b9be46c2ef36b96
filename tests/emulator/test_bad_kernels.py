"""Kernels and launches that want to break the judge: each ends in an error or an outcome that says why."""

from __future__ import annotations

import resource

import numpy as np
import pytest
from emulated import KERNELS, Program, compile_ptx

from cudahercules.emulator.check import unsupported
from cudahercules.emulator.emit.context import FUNCTION_BASE
from cudahercules.emulator.outcome import OutOfFuel, Unsupported
from cudahercules.errors import PlanError
from cudahercules.record.plan import KernelLaunch

SOURCE = KERNELS / "bad_input.cu"
HEAD = ".version 8.4\n.target sm_90a\n.address_size 64\n"


def line_of(text: str) -> int:
    lines = SOURCE.read_text().splitlines()
    (found,) = (n for n, line in enumerate(lines, 1) if text in line)
    return found


@pytest.fixture
def program(tmp_path):
    made = Program(compile_ptx(SOURCE), tmp_path)
    made.array("out", np.zeros(1024, np.uint32))
    return made


def written(body: str, tmp_path, parameters: str = ".param .u64 p") -> Program:
    made = Program(f"{HEAD}.visible .entry k({parameters}) {{\n{body}\nret;\n}}\n", tmp_path)
    made.array("out", np.zeros(1024, np.uint32))
    return made


# --- endless work and endless memory ---------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 256])
def test_endless_recursion_is_a_stack_overflow_with_a_line(program, threads):
    program.launch("recurse_for_ever", 2, threads, "out")
    fault = program.fault()
    assert fault.what == "stack_overflow"
    assert fault.line in [line_of(f"int {name}(int n, volatile int* p) {{") for name in ("down", "up")]


def test_endless_recursion_through_a_pointer(program):
    program.launch("recurse_by_pointer", 1, 1, "out")
    assert program.fault().what == "stack_overflow"


def test_two_to_the_forty_iterations_run_out_of_fuel_at_the_hot_line(program):
    program.array("numbers", np.ones(2, np.uint64))
    program.launch("count_far", 1, 32, "numbers", np.uint64(1 << 40))
    outcome = program.run(wall_s=0.5)
    assert isinstance(outcome, OutOfFuel)
    assert (outcome.kernel, outcome.limit) == ("count_far", "0.5 s")
    assert abs(outcome.line - line_of("// the hot line")) <= 1


def test_all_the_local_memory_that_hardware_gives(program):
    """400 kB a thread is legal. A kilobyte of each is touched, and no more than that is taken."""
    program.launch("much_local", 4, 1024, "out", np.int32(256))
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    program.complete()
    assert (program.arrays["out"] == 255).sum() >= 1
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    assert peak <= max(before, 1 << 20), f"{peak >> 10} MiB"


@pytest.mark.parametrize("size", [(512 << 10) + 16, 1 << 30, (1 << 32) - 1])
def test_more_local_memory_than_hardware_gives_is_refused(size, tmp_path):
    program = written(f".local .align 8 .b8 deep[{size}];\n.reg .b64 %a;\nmov.u64 %a, deep;", tmp_path)
    program.launch("k", 1, 1, "out")
    outcome = program.run()
    assert isinstance(outcome, Unsupported)
    assert (
        "bytes of local memory in a thread, where 524288 is the most" in outcome.instructions[0].instruction
    )


@pytest.mark.parametrize(
    "declaration",
    [
        ".local .b8 deep[1099511627776];",
        ".shared .b8 wide[1048576][1048576];",
        ".reg .b32 %r<1000000000>;",
        ".local .align 3 .b8 odd[8];",
        ".local .align 0 .b8 odd[8];",
        ".reg .b1 %bit;",
    ],
)
def test_declarations_beyond_reason_name_their_line(declaration):
    (found,) = unsupported(f"{HEAD}.visible .entry k() {{\n{declaration}\nret;\n}}\n")
    assert "PTX line 5: " in found.instruction


@pytest.mark.parametrize("size", [228 << 10, 1 << 31])
def test_more_shared_memory_than_a_block_has_is_refused(size):
    body = f".shared .b8 wide[{size}];\n.reg .b32 %a;\nmov.u32 %a, wide;"
    (found,) = unsupported(f"{HEAD}.visible .entry k() {{\n{body}\nret;\n}}\n")
    assert "bytes of shared memory in a block, where 232448 is the most" in found.instruction


def test_module_variables_of_gigabytes(tmp_path):
    text = f"{HEAD}.global .b8 a[4000000000];\n.visible .entry k(.param .u64 p) {{\nret;\n}}\n"
    program = Program(text, tmp_path)
    program.array("out", np.zeros(4, np.uint32))
    program.launch("k", 1, 1, "out")
    outcome = program.run()
    assert isinstance(outcome, Unsupported)
    assert "GiB of device memory" in outcome.instructions[0].instruction


@pytest.mark.parametrize(
    "text",
    [
        "{" * 5000,
        "mov.b32 %r1, " + "{" * 5000 + "0" + "}" * 5000 + ";",
        "mov.pred " + "%p1|" * 5000 + "%p1;",
        "call " + "(" * 5000 + ";",
    ],
)
def test_nesting_without_end_is_refused(text):
    (found,) = unsupported(f"{HEAD}.visible .entry k() {{\n.reg .pred %p1;\n{text}\nret;\n}}\n")
    assert found.instruction.startswith("PTX line 6: ") and "nests too deeply" in found.instruction


def test_comments_without_an_end():
    """Each one is looked at once, not up to the end of the text again and again."""
    (found,) = unsupported(HEAD + "\n" + "/*" * 200_000)
    assert found.instruction == "PTX line 5: a comment without an end"


# --- wild function pointers ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "handle",
    [
        *(0, 1, 2**32, 2**63, 2**64 - 1),
        *(FUNCTION_BASE - 16, FUNCTION_BASE + 8, FUNCTION_BASE + 16 * 100_000, FUNCTION_BASE + (1 << 40)),
    ],
)
def test_wild_function_pointers(handle, tmp_path):
    program = Program(compile_ptx(KERNELS / "faults.cu"), tmp_path)
    program.array("out", np.zeros(64, np.float32))
    program.launch("bad_function", 1, 32, "out", np.uint64(handle))
    fault = program.fault()
    assert fault.what == "invalid_function"
    assert f"call of {handle:#x}" in fault.message


def test_a_pointer_to_data_is_no_function(tmp_path):
    program = Program(compile_ptx(KERNELS / "faults.cu"), tmp_path)
    program.array("out", np.zeros(64, np.float32))
    program.launch("bad_function", 1, 32, "out", np.uint64(program.buffers[0].address))
    assert program.fault().what == "invalid_function"


def test_a_function_of_other_parameters_is_not_called(tmp_path):
    """``deep(int, int*)`` has a valid handle, but the call passes one float."""
    ptx = compile_ptx(KERNELS / "faults.cu")
    program = Program(ptx, tmp_path)
    number = [f.name for f in program.module.functions.values() if not f.is_kernel].index("_Z4deepiPVi")
    program.array("out", np.zeros(64, np.float32))
    program.launch("bad_function", 1, 1, "out", np.uint64(FUNCTION_BASE + 16 * number))
    assert program.fault().what == "invalid_function"


# --- launch shapes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grid", "block"),
    [
        ((1, 65535, 1), 1),
        ((1, 1, 65535), 1),
        ((65535, 1, 1), 1),
        (1, (1024, 1, 1)),
        (1, (1, 1024, 1)),
        (1, (1, 1, 64)),
        (1, (16, 1, 64)),
        (3, (33, 31, 1)),
    ],
)
def test_shapes_at_the_limits_run(program, grid, block):
    program.launch("any_shape", grid, block, "out")
    program.complete()
    assert program.arrays["out"][0] == np.prod(grid)


@pytest.mark.parametrize(
    ("grid", "block", "text"),
    [
        ((2**31, 1, 1), 1, "grid dimensions that no device takes"),
        ((2**32 + 1, 1, 1), 1, "grid dimensions that no device takes"),
        ((1, 65536, 1), 1, "grid dimensions that no device takes"),
        ((1, 1, 65536), 1, "grid dimensions that no device takes"),
        ((0, 1, 1), 1, "grid dimensions that no device takes"),
        ((1, 0, 1), 1, "grid dimensions that no device takes"),
        ((1, 1, 0), 1, "grid dimensions that no device takes"),
        (1, (1025, 1, 1), "a block of 1025 threads"),
        (1, (1, 1025, 1), "a block of 1025 threads"),
        (1, (1, 1, 65), "a block of 65 threads"),
        (1, (33, 32, 1), "a block of 1056 threads"),
        (1, (0, 1, 1), "a block of 0 threads"),
        (1, (1, 0, 1), "a block of 0 threads"),
        (1, (1, 1, 0), "a block of 0 threads"),
        (1, (2**32 + 1, 1, 1), "a block of 4294967295 threads"),
    ],
)
def test_shapes_over_the_limits_are_refused(program, grid, block, text):
    program.launch("any_shape", grid, block, "out")
    with pytest.raises(PlanError, match=text):
        program.run()
    assert not program.arrays["out"].any()


def test_the_last_byte_of_shared_memory(program):
    most = 227 << 10
    program.launch("shared_to_the_end", 1, 1, "out", np.uint32(most), shared=most)
    program.complete()
    assert program.arrays["out"][0] == 7


@pytest.mark.parametrize("shared", [(227 << 10) + 1, 1 << 31, 1 << 32, (1 << 32) + 16])
def test_more_dynamic_shared_memory_than_there_is(program, shared):
    program.launch("shared_to_the_end", 1, 1, "out", np.uint32(16), shared=shared)
    with pytest.raises(PlanError, match="more than 227 KiB of shared memory"):
        program.run()


def with_cluster(program: Program, grid: int | tuple[int, int, int], cluster: tuple[int, int, int]) -> None:
    program.launch("k", grid, 1, "out")
    launch = program.operations[0]
    assert isinstance(launch, KernelLaunch)
    program.operations[0] = launch.model_copy(update={"cluster": cluster})


@pytest.mark.parametrize(
    ("grid", "cluster"), [(16, (16, 1, 1)), (8, (8, 1, 1)), ((2, 2, 4), (2, 2, 4)), (4, (1, 1, 1))]
)
def test_clusters_at_the_limits_run(grid, cluster, tmp_path):
    program = written("barrier.cluster.arrive;\nbarrier.cluster.wait;", tmp_path)
    with_cluster(program, grid, cluster)
    program.complete()


@pytest.mark.parametrize(
    ("grid", "cluster", "text"),
    [
        (17, (17, 1, 1), "a cluster of 17 blocks"),
        ((4, 4, 2), (4, 4, 2), "a cluster of 32 blocks"),
        (7, (2, 1, 1), "the grid is no multiple of the cluster"),
        ((2**31 - 1, 1, 1), (2**31 - 1, 1, 1), "a cluster of 2147483647 blocks"),
        (1, (2**32 + 1, 1, 1), "the grid is no multiple of the cluster"),
    ],
)
def test_clusters_over_the_limits_are_refused(grid, cluster, text, tmp_path):
    program = written("barrier.cluster.arrive;\nbarrier.cluster.wait;", tmp_path)
    with_cluster(program, grid, cluster)
    with pytest.raises(PlanError, match=text):
        program.run()


# --- parameters ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "body", "what"),
    [
        (".param .u64 p", ".reg .b32 %r;\nld.param.u32 %r, [p+8];", "access outside a parameter"),
        (".param .u64 p", ".reg .b64 %r;\nld.param.u64 %r, [p-4];", "access outside a parameter"),
        (".param .u64 p", ".reg .b64 %r;\nld.param.u64 %r, [q];", "parameter q"),
        (".param .u64 p", "st.param.u32 [p], 1;", "store to a parameter"),
        (".param .b8 p[32768]", "", "32768 bytes of parameters, where 32764 is the most"),
        (".param .align 3 .b8 p[4]", "", "PTX line 4: an alignment of 3"),
        (".param .b8 p[99999999999]", "", "PTX line 4: "),
        (".param .b7 p", "", "PTX line 4: "),
        (".param .u64", "", "PTX line 4: "),
        (".param .u64 p", "}", "PTX line 6: "),
    ],
)
def test_misdeclared_parameters_are_refused(parameters, body, what):
    found = unsupported(f"{HEAD}.visible .entry k({parameters}) {{\n{body}\nret;\n}}\n")
    assert what in found[0].instruction


@pytest.mark.parametrize("size", [0, 7])
def test_a_launch_with_fewer_bytes_than_the_kernel_declares(size, tmp_path):
    program = written("", tmp_path)
    program.launch("k", 1, 1, "out")
    launch = program.operations[0]
    program.operations[0] = launch.model_copy(update={"parameters": bytes(size), "relocations": ()})
    with pytest.raises(PlanError, match=f"{size} bytes of parameters, not 8"):
        program.run()


def test_a_launch_of_a_kernel_that_is_not_there(tmp_path):
    program = written("", tmp_path)
    program.launch("k", 1, 1, "out")
    program.operations[0] = program.operations[0].model_copy(update={"kernel": "other"})
    with pytest.raises(PlanError, match="other"):
        program.run()
