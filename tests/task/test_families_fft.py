"""Transforms of real signals and of two and three dimensions: references against the sums that define them,
bounds against honest arithmetic and against what they must reject."""

import math

import numpy as np
import pytest
from test_families import reference, wide_inputs

from cudahercules.judge.checks import check_output
from cudahercules.judge.verdict import OutputCheck
from cudahercules.task.inputs import generate
from cudahercules.task.load import all_tasks, load_task
from cudahercules.task.model import WorkloadRole

c64 = np.complex64
FAMILIES = ("module/fft_r2c_1d", "module/fft_c2c_2d", "module/fft_c2c_3d")
TASKS = [t for t in all_tasks() if t.family in FAMILIES]
each = pytest.mark.parametrize("task", TASKS, ids=[t.id for t in TASKS])


def named(task, name):
    return next(w for w in task.workloads if w.name == name)


def passes(task, workload, y, expected, margin=1.0):
    (tensor,) = task.outputs
    tight = task.tolerance["y"].tightened(margin)
    return isinstance(check_output(tensor, tight, y.astype(c64), expected), OutputCheck)


# --- the sums that define a transform ------------------------------------------------------------


def waves(frequency, length):
    """exp(-2 pi i n frequency / length), with the angle reduced in integers."""
    turns = np.arange(length) * frequency % length
    return np.exp(-2j * np.pi * turns / length)


def by_definition(x, frequency):
    """One frequency of x, one axis after the other, the last axis first."""
    for k in reversed(frequency):
        x = x @ waves(k, x.shape[-1])
    return x


@each
def test_reference_agrees_with_the_definition(task):
    workload = named(task, "smoke")
    inputs = wide_inputs(task, workload)
    got = reference(task, workload, inputs)["y"]
    assert got.shape == task.shape(task.outputs[0], workload)
    (signal,) = inputs["x"]
    random = np.random.default_rng(1)
    extents = got.shape[1:]
    chosen = [tuple(0 for _ in extents), tuple(e - 1 for e in extents)]
    chosen += [tuple(int(random.integers(e)) for e in extents) for _ in range(20)]
    for frequency in chosen:
        assert got[(0, *frequency)] == pytest.approx(by_definition(signal, frequency), rel=1e-9)


# --- honest arithmetic, every operation rounded to single precision -------------------------------


def along_last_axis(v, lower=lambda w: w):
    """Stockham's stages of radix 2."""
    shape, length = v.shape, v.shape[-1]
    v = v.reshape(-1, length)
    for half in (1 << s for s in range(length.bit_length() - 1)):
        twiddles = lower(np.exp(-1j * np.pi * np.arange(half) / half).astype(c64))
        a, b = v[:, : length // 2].reshape(len(v), -1, half), v[:, length // 2 :].reshape(len(v), -1, half)
        turned = b * twiddles
        v = np.concatenate([a + turned, a - turned], axis=2).reshape(len(v), length)
    assert v.dtype == c64
    return v.reshape(shape)


def honest(task, x, lower=lambda w: w):
    if task.family == "module/fft_r2c_1d":
        return along_last_axis(x.astype(c64), lower)[:, : task.constants["bins"]]
    for axis in range(x.ndim - 1, 0, -1):
        x = np.moveaxis(along_last_axis(np.ascontiguousarray(np.moveaxis(x, axis, -1)), lower), -1, axis)
    return x


def made(task, workload, seed=3):
    """The input in storage dtype and the reference's answer."""
    x = generate(task, task.inputs[0], workload, seed)
    return x, reference(task, workload, wide_inputs(task, workload, seed))["y"]


@each
def test_honest_arithmetic_passes_with_a_margin_of_two(task):
    for workload in task.workloads_of(WorkloadRole.SMOKE, WorkloadRole.CHECK):
        if workload.name == "pair":  # as smoke, with twice the numbers
            continue
        x, expected = made(task, workload)
        assert passes(task, workload, honest(task, x), expected, margin=2.0), workload.name


@each
def test_twiddles_of_half_precision_and_rounded_inputs_fail(task):
    workload = named(task, "smoke")
    x, expected = made(task, workload)
    halved = honest(task, x, lambda w: w.real.astype(np.float16) + 1j * w.imag.astype(np.float16).astype(c64))
    assert not passes(task, workload, halved, expected)
    rounded = x.view(np.uint32) + np.uint32(0x1000) & np.uint32(0xFFFFE000)  # to TF32
    assert not passes(task, workload, honest(task, rounded.view(x.dtype)), expected)


@each
def test_a_missing_or_exchanged_axis_fails(task):
    """Each axis left out by itself; height and width exchanged; a real transform's last bin zeroed."""
    workload = named(task, "smoke")
    _, expected = made(task, workload)
    wrong = [np.fft.ifft(expected, axis=axis) for axis in range(1, expected.ndim)]
    if expected.ndim > 2:
        wrong.append(np.swapaxes(expected, -1, -2))
    else:
        last = expected.copy()
        last[:, -1] = 0
        wrong += [last, np.conj(expected)]
    assert passes(task, workload, expected, expected)
    for y in wrong:
        assert not passes(task, workload, y, expected)


def test_bins_are_half_the_length_and_one():
    for task in TASKS:
        if task.family == "module/fft_r2c_1d":
            assert task.constants["bins"] == task.constants["length"] // 2 + 1


def test_the_usual_count_of_operations():
    from cudahercules.task.load import work

    task = load_task("module/fft_c2c_3d")
    assert work(task, named(task, "smoke")).flops == 5 * 64**3 * math.log2(64**3)
