"""FP8 products: references against plain loops, and bounds that tell the tensor core's arithmetic from wrong.

The tensor core is simulated: it keeps of 32 products and the sum so far what lies within 13 bits of the
largest.
"""

import math

import array_api_compat.numpy as xnp
import ml_dtypes
import numpy as np
import pytest

from cudahercules.judge.checks import check_output
from cudahercules.judge.verdict import OutputCheck
from cudahercules.task.inputs import generate
from cudahercules.task.load import BUNDLED, family_module, load_family
from cudahercules.task.model import WorkloadRole

SMALL = (WorkloadRole.SMOKE, WorkloadRole.CHECK)
FP8 = load_family(BUNDLED / "kernel/gemm_fp8")


def each(tasks):
    return pytest.mark.parametrize("task", tasks, ids=[t.member for t in tasks])


class Case:
    """One small workload: operands in float64, and the reference."""

    def __init__(self, task, workload, seed):
        self.task, self.workload, self.sizes = task, workload, task.sizes(workload)
        self.x = {t.name: generate(task, t, workload, seed).astype(np.float64) for t in task.inputs}
        self.reference = family_module(task).reference(self.x, self.sizes, {}, xnp)["c"]

    def accepts(self, c, margin=1.0):
        (tensor,) = self.task.outputs
        tolerance = self.task.tolerance["c"].tightened(margin)
        if tensor.dtype.value == "fp8_e4m3":
            c = np.clip(c, -448, 448)
        stored = np.asarray(c, np.float32).astype(tensor.dtype.numpy)
        return isinstance(check_output(tensor, tolerance, stored, self.reference), OutputCheck)


def cases(task, *names, seeds=(1,)):
    wanted = [w for w in task.workloads_of(*SMALL) if not names or w.name in names]
    return [Case(task, w, seed) for w in wanted for seed in seeds]


def tensor_core(a, b, bits=13):
    """a @ b.T as FP8 instructions sum it, 32 products at a time."""
    total = np.zeros((a.shape[0], b.shape[0]))
    for p in range(0, a.shape[1], 32):
        terms = np.concatenate([a[:, None, p : p + 32] * b[None, :, p : p + 32], total[:, :, None]], axis=2)
        unit = np.ldexp(1.0, np.frexp(np.abs(terms).max(axis=2))[1] - 1 - bits)[:, :, None]
        total = (np.trunc(terms / unit) * unit).sum(axis=2)
    return total


def scaled(case, products):
    return products * case.x["a_scale"][:, None] * case.x["b_scale"][None, :]


def e5m2(x):
    return x.astype(ml_dtypes.float8_e5m2).astype(np.float64)


@each(FP8)
def test_scaled_product_agrees_with_a_plain_one(task):
    for case in cases(task, "smoke", "smallest", "past_the_range"):
        x, rows = case.x, case.sizes["row_scales"]
        for i, row in enumerate(x["a"].tolist()):
            for j, column in enumerate(x["b"].tolist()):
                scale = x["a_scale"][i if rows else 0] * x["b_scale"][j if rows else 0]
                expected = scale * math.fsum(p * q for p, q in zip(row, column, strict=True))
                if task.member == "e4m3":
                    expected = max(-448.0, min(448.0, expected))
                assert case.reference[i, j] == pytest.approx(expected, rel=1e-12, abs=1e-13)


@each(FP8)
def test_sums_of_the_tensor_core_pass_with_a_margin_of_two(task):
    for case in cases(task):
        assert case.accepts(scaled(case, tensor_core(case.x["a"], case.x["b"])), 2), case.workload.name


@each(FP8)
def test_operands_in_e5m2_are_rejected(task):
    for case in cases(task):
        if case.workload.name not in ("smallest", "past_the_range"):
            assert not case.accepts(scaled(case, e5m2(case.x["a"]) @ e5m2(case.x["b"]).T)), case.workload.name


@each([t for t in FP8 if t.member != "e4m3"])
def test_sums_in_sixteen_bits_are_rejected(task):
    for case in cases(task, "deep"):
        a, b = (case.x[name].astype(np.float32) for name in "ab")
        for dtype in (ml_dtypes.bfloat16, np.float16):
            total = np.zeros((a.shape[0], b.shape[0]), np.float32)
            with np.errstate(over="ignore", invalid="ignore"):
                for p in range(0, a.shape[1], 32):
                    total = (total + a[:, p : p + 32] @ b[:, p : p + 32].T).astype(dtype).astype(np.float32)
                assert not case.accepts(scaled(case, total)), dtype


def test_saturation_matters_and_bench_sizes_stay_below_it():
    task = next(t for t in FP8 if t.member == "e4m3")
    (case,) = cases(task, "past_the_range", seeds=(1,))
    assert 0.02 < np.mean(np.abs(case.reference) == 448) < 0.2
    largest = max(w.dimensions["k"] for w in task.workloads_of(WorkloadRole.BENCH))
    scale = next(t for t in task.tensors if t.name == "a_scale").values.high
    assert 6 * (60 * scale) ** 2 * math.sqrt(largest) < 448


# --- scales of blocks ----------------------------------------------------------------------------

BLOCKWISE = load_family(BUNDLED / "kernel/gemm_fp8_blockwise")


def by_blocks(case, lower=lambda x: x, part=lambda x: x, total=lambda x: x):
    """Blocks of 128 along k: each summed in the tensor core, scaled, and added in fp32."""
    x, rows = case.x, case.sizes["b_rows"]
    result = np.zeros(case.reference.shape, np.float32)
    for q in range(case.sizes["k_blocks"]):
        a, b = (lower(x[name][:, 128 * q : 128 * q + 128]) for name in "ab")
        of_b = np.repeat(x["b_scale"][:, q], rows)[: b.shape[0]]
        block = part(tensor_core(a, b).astype(np.float32)) * x["a_scale"][:, q, None].astype(np.float32)
        result = total((result + block * of_b.astype(np.float32)).astype(np.float32))
    return result


def bf16(x):
    return x.astype(ml_dtypes.bfloat16).astype(np.float32)


@each(BLOCKWISE)
def test_product_of_scaled_blocks_agrees_with_a_plain_one(task):
    for case in cases(task, "smoke", "smallest", "odd"):
        x, rows = case.x, case.sizes["b_rows"]
        a = [[v * x["a_scale"][i, p // 128] for p, v in enumerate(row)] for i, row in enumerate(x["a"])]
        b = [
            [v * x["b_scale"][j // rows, p // 128] for p, v in enumerate(row)] for j, row in enumerate(x["b"])
        ]
        for i, j in ((0, 0), (4, 31), (len(a) - 1, len(b) - 1), (len(a) // 2, len(b) // 3)):
            expected = math.fsum(p * q for p, q in zip(a[i], b[j], strict=True))
            assert case.reference[i, j] == pytest.approx(expected, rel=1e-11)


@each(BLOCKWISE)
def test_blocks_promoted_to_fp32_pass_with_a_margin_of_two(task):
    for case in cases(task):
        assert case.accepts(by_blocks(case), 2), case.workload.name


@each(BLOCKWISE)
def test_lower_precision_of_operands_or_of_the_running_sum_is_rejected(task):
    for case in cases(task):
        assert not case.accepts(by_blocks(case, lower=e5m2)), case.workload.name
    for case in cases(task, "deep"):
        assert not case.accepts(by_blocks(case, total=bf16)), case.workload.name


@each(BLOCKWISE)
def test_blocks_are_counted_as_the_prompt_says(task):
    for workload in task.workloads:
        sizes = workload.dimensions
        assert sizes["k_blocks"] == -(-sizes["k"] // 128) and sizes["n_blocks"] == -(-sizes["n"] // 128)
        assert sizes["n"] % 16 == sizes["k"] % 16 == 0
