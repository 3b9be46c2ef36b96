"""Which test programs do not run on the GPU, and how far results may lie from the hardware's.

Keys are tests without their parameters, or whole files. Everything that is not named here must give the
hardware's bits.
"""

from __future__ import annotations

from dataclasses import dataclass

RACE = "wrong on purpose: what comes out depends on time"
STARTS = "reads memory that nothing has written; the emulator fills it with poison"

EXCLUDED: dict[str, str] = {
    "test_core_faults.py": "tests of faults",
    "test_core_lanes.py::test_scratch_is_not_zero": STARTS,
    "test_core_lanes.py::test_nothing_stays_behind": STARTS,
    "test_core_lanes.py::test_special_registers_of_a_three_dimensional_launch": "clocks, the block's SM",
    "test_core_limits.py": "tests of limits",
    "test_core_phases.py::test_a_forgotten_wait_shows": RACE,
    "test_hopper_maps.py::test_map_in_global_memory_changed_in_place": "has the emulator's own map",
    "test_hopper_mbarrier.py::test_random_orders_differ": RACE,
    "test_hopper_mbarrier.py::test_waiting_for_another_barrier": RACE,
    "test_hopper_mbarrier.py::test_waiting_for_some_groups": RACE,
    "test_hopper_mistakes.py": RACE,
    "test_hopper_tensor.py::test_a_stage_that_is_filled_again_too_early": RACE,
    "test_hopper_tensor.py::test_reading_before_the_wait": RACE,
    "test_hopper_tensor.py::test_leaving_before_a_load_is_done": RACE,
    "test_hopper_tensor.py::test_a_source_that_is_written_too_early": RACE,
    "test_parameter_places.py": "parameters where no compiler puts them",
    "test_tensor_async.py::test_without_wait_or_commit_sums_are_poison": RACE,
    "test_tensor_async.py::test_a_chain_in_two_groups": RACE,
    "test_tensor_async.py::test_groups_end_in_order": RACE,
    "test_tensor_async.py::test_without_a_fence": RACE,
    "test_tensor_async.py::test_registers_moved_before_the_wait": RACE,
    "test_tensor_async.py::test_shared_memory_is_read_when_the_product_happens": RACE,
    "test_tensor_gemm.py::test_mma_gemm_without_the_wait_for_copies": RACE,
    "test_tensor_cutlass.py": "large; its instructions are covered by smaller programs",
}


def excluded(test: str) -> str | None:
    """Why a test (``file.py::function[parameters]``) does not run on the GPU; None if it does."""
    function = test.split("[")[0]
    return EXCLUDED.get(function) or EXCLUDED.get(function.split("::")[0])


OPAQUE: dict[str, tuple[str, ...]] = {
    "test_hopper_maps.py": ("made",),
    "test_hopper_tensor.py::test_maps_in_global_and_constant_memory": ("place",),
}
"""Arrays that hold tensor maps, whose 128 bytes have no meaning for programs: not compared."""


def opaque(test: str) -> tuple[str, ...]:
    """The arrays of a test that are not compared."""
    function = test.split("[")[0]
    return OPAQUE.get(function) or OPAQUE.get(function.split("::")[0]) or ()


@dataclass(frozen=True)
class Tolerance:
    """How far values of ``type`` in ``arrays`` may lie from the hardware's: ``of_largest`` times the largest
    magnitude in the array, plus ``relative`` times the value itself."""

    arrays: tuple[str, ...]
    type: str
    of_largest: float
    relative: float
    reason: str


TOLERANCES: dict[str, Tolerance] = {
    "test_core_basic.py::test_fft": Tolerance(
        ("y",), "f32", 1e-6, 0, "sin.approx and cos.approx; 6e-7 measured"
    ),
    "test_scalar_programs.py::test_double_functions": Tolerance(
        ("a2",), "f64", 0, 2.0**-51, "rcp.approx and rsqrt.approx, refined; 2.1e-16 measured"
    ),
    "test_scalar_programs.py::test_float_functions": Tolerance(
        ("a2",), "f32", 0, 2e-5, "approximate functions, __sinf close to its zeros; 1.7e-5 measured"
    ),
}


def tolerance(test: str) -> Tolerance | None:
    """What a test's results may differ by; None for not at all."""
    return TOLERANCES.get(test) or TOLERANCES.get(test.split("[")[0])


@dataclass(frozen=True)
class Distance:
    """How far an approximate function's result lies from the H200's at most: ``steps`` from one number of its
    type to the next, or ``absolute``."""

    steps: int
    absolute: float = 0.0


DISTANCES: dict[str, dict[str, Distance]] = {
    "f32": {
        **dict.fromkeys(("rcp", "sqrt", "rsqrt", "div"), Distance(1)),
        "ex2": Distance(2),
        "lg2": Distance(2, 2.0**-22),
        "sin": Distance(2, 2.0**-21),
        "cos": Distance(2, 2.0**-21),
        "tanh": Distance(128),
    },
    "f16": dict.fromkeys(("ex2", "tanh"), Distance(1)),
    "bf16": dict.fromkeys(("ex2", "tanh"), Distance(1)),
    "f64": {"rcp": Distance(1 << 32), "rsqrt": Distance(1 << 32)},
}
"""The largest distances measured, rounded up; of .approx.f64 only the upper word counts."""

SM_100 = "sm_100 and later only: checked against exact arithmetic (test_scalar_table.py)"
WITHOUT: dict[str, str] = {
    "min{.ftz}{.NaN}{.abs}.f32": SM_100,
    "max{.ftz}{.NaN}{.abs}.f32": SM_100,
    "add{.rnd}{.ftz}.f32x2": SM_100,
    "sub{.rnd}{.ftz}.f32x2": SM_100,
    "mul{.rnd}{.ftz}.f32x2": SM_100,
    "fma.rnd{.ftz}.f32x2": SM_100,
    "add{.rnd}{.sat}.f32.half": SM_100,
    "sub{.rnd}{.sat}.f32.half": SM_100,
    "fma.rnd{.sat}.f32.half": SM_100,
    "cvt.rn.satfinite{.relu}.fp6.f32": SM_100,
    "cvt.rn{.relu}.f16x2.fp6": SM_100,
    "cvt.rn.satfinite{.relu}.e2m1x2.f32": SM_100,
    "cvt.rn{.relu}.f16x2.e2m1x2": SM_100,
    "cvt.rz_rp{.satfinite}.ue8m0x2.f32": SM_100,
    "cvt.rz_rp{.satfinite}.ue8m0x2.bf16x2": SM_100,
    "cvt.rn.bf16x2.ue8m0x2": SM_100,
    "setmaxnreg": "without effect on values",
    "brkpt": "ends the kernel with an error",
}
"""Rows of the table that have no stored bits, and why: patterns of per-thread instructions, other opcodes."""
