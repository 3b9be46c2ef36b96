"""Convolutions and multi-head attention: references against plain ones, and bounds that tell honest
arithmetic from wrong.

Arithmetic is simulated with NumPy in single precision; `hercules lint` repeats it with compiled candidates.
"""

import array_api_compat.numpy as xnp
import ml_dtypes
import numpy as np
import pytest

from cudahercules.judge.checks import check_output
from cudahercules.judge.verdict import OutputCheck
from cudahercules.replay.expert import load_experts
from cudahercules.task.inputs import generate
from cudahercules.task.load import BUNDLED, family_module, load_family
from cudahercules.task.model import WorkloadRole

f32 = np.float32
SMALL = (WorkloadRole.SMOKE, WorkloadRole.CHECK)


def tasks_of(family):
    return [t for t in load_family(BUNDLED / "kernel" / family) if t.target == "general"]


def each(tasks):
    return pytest.mark.parametrize("task", tasks, ids=[t.id for t in tasks])


FPROP = tasks_of("conv2d_fprop")
FP32, FP16 = (next(t for t in FPROP if t.member == m) for m in ("fp32", "fp16"))
(BIAS_RELU,) = tasks_of("conv2d_fprop_bias_relu")
(PROLOGUE,) = tasks_of("conv2d_fprop_prologue")
(WGRAD,) = tasks_of("conv2d_wgrad")
(DGRAD,) = tasks_of("conv2d_dgrad")
CONVOLUTIONS = [*FPROP, BIAS_RELU, PROLOGUE, WGRAD, DGRAD]


def fp32(x):
    return np.asarray(x, f32)


def fp16(x):
    return np.asarray(x, f32).astype(np.float16).astype(f32)


def bf16(x):
    return np.asarray(x, f32).astype(ml_dtypes.bfloat16).astype(f32)


def tf32(x):
    """Rounded to 11 significant bits, halves away from zero."""
    bits = np.ascontiguousarray(x, f32).view(np.uint32) + np.uint32(0x1000)
    return (bits & np.uint32(0xFFFFE000)).view(f32)


class Case:
    """One small workload with inputs and reference."""

    def __init__(self, task, workload, seed=11):
        self.task, self.workload, self.sizes = task, workload, task.sizes(workload)
        self.inputs = {t.name: generate(task, t, workload, seed) for t in task.inputs}
        wide = {name: x.astype(np.float64) for name, x in self.inputs.items()}
        self.reference = family_module(task).reference(wide, self.sizes, workload.scalars, xnp)

    @property
    def geometry(self):
        return tuple(int(self.workload.scalars[name]) for name in ("stride", "padding", "dilation"))

    def misses(self, outputs, margin=1.0):
        """Names of the outputs that miss their bound divided by ``margin``."""
        missed = []
        for tensor in self.task.outputs:
            tight = self.task.tolerance[tensor.name].tightened(margin)
            stored = np.asarray(outputs[tensor.name]).astype(tensor.dtype.numpy)
            if not isinstance(check_output(tensor, tight, stored, self.reference[tensor.name]), OutputCheck):
                missed.append(tensor.name)
        return missed


def cases(task, *names):
    wanted = [w for w in task.workloads_of(*SMALL) if not names or w.name in names]
    assert len(wanted) == len(names or wanted)
    return [Case(task, w) for w in wanted]


def windows(x, sizes, geometry):
    """What each output pixel sees of x (n, h, w, c): (pixels, r * s * c), zeros in the padding."""
    stride, padding, dilation = geometry
    taps = np.zeros((sizes["n"], sizes["p"], sizes["q"], sizes["r"], sizes["s"], sizes["c"]), x.dtype)
    for p in range(sizes["p"]):
        for q in range(sizes["q"]):
            for r in range(sizes["r"]):
                for s in range(sizes["s"]):
                    row = p * stride - padding + r * dilation
                    column = q * stride - padding + s * dilation
                    if 0 <= row < sizes["h"] and 0 <= column < sizes["w"]:
                        taps[:, p, q, r, s] = x[:, row, column]
    return taps.reshape(sizes["n"] * sizes["p"] * sizes["q"], -1)


def summed(a, b, rounded=fp32, group=16):
    """The product a b, ``group`` terms of the sum at a time, the running sum passed through ``rounded``."""
    total = np.zeros((a.shape[0], b.shape[1]), f32)
    for k in range(0, a.shape[1], group):
        total = rounded(total + a[:, k : k + group] @ b[k : k + group])
    return total


# --- all convolutions ----------------------------------------------------------------------------


@each(CONVOLUTIONS)
def test_the_extents_of_every_workload_fit_together(task):
    for workload in task.workloads:
        d = workload.dimensions
        stride, padding, dilation = (int(workload.scalars[n]) for n in ("stride", "padding", "dilation"))
        for image, taps, outputs in (("h", "r", "p"), ("w", "s", "q")):
            fits = (d[image] + 2 * padding - dilation * (d[taps] - 1) - 1) // stride + 1
            assert d[outputs] == fits, workload.name


@each(CONVOLUTIONS)
def test_flops_count_two_for_each_tap_and_channel(task):
    sizes = dict(zip("nhwckrspq", (2, 9, 9, 5, 7, 3, 2, 4, 6), strict=True))
    made = 3 * (2 * 9 * 9 * 5)
    beside = {"fprop_bias_relu": 2 * (2 * 4 * 6 * 7), "fprop_prologue": made, "wgrad": made}
    extra = beside.get(task.family.removeprefix("kernel/conv2d_"), 0)
    assert family_module(task).flops(sizes) == 2 * (2 * 4 * 6 * 7) * (3 * 2 * 5) + extra


# --- conv2d_fprop --------------------------------------------------------------------------------


def convolve(case, lower=fp32, rounded=fp32):
    """y in single precision, operands passed through ``lower`` and sums through ``rounded``."""
    seen = windows(lower(case.inputs["x"]), case.sizes, case.geometry)
    filters = lower(case.inputs["filter"]).reshape(case.sizes["k"], -1)
    return {"y": summed(seen, filters.T, rounded).reshape(case.reference["y"].shape)}


def three_products(case, left_out=()):
    """3xTF32: the products of large and small parts, without those ``left_out``."""
    x, filters = case.inputs["x"], case.inputs["filter"].reshape(case.sizes["k"], -1)
    parts_x = {"large": tf32(x), "small": tf32(x - tf32(x))}
    parts_f = {"large": tf32(filters), "small": tf32(filters - tf32(filters))}
    total = np.zeros((case.sizes["n"] * case.sizes["p"] * case.sizes["q"], case.sizes["k"]), f32)
    for a, b in (("small", "large"), ("large", "small"), ("large", "large")):
        if (a, b) not in left_out:
            total += summed(windows(parts_x[a], case.sizes, case.geometry), parts_f[b].T)
    return {"y": total.reshape(case.reference["y"].shape)}


@each(FPROP)
def test_convolution_agrees_with_a_plain_one(task):
    for case in cases(task, "smoke", "dilated_strided", "small_image", "wide_filter"):
        seen = windows(case.inputs["x"].astype(float), case.sizes, case.geometry)
        filters = case.inputs["filter"].astype(float).reshape(case.sizes["k"], -1)
        expected = np.einsum("pd,kd->pk", seen, filters).reshape(case.reference["y"].shape)
        np.testing.assert_allclose(case.reference["y"], expected, rtol=1e-11, atol=1e-11)


@each(CONVOLUTIONS)
def test_pieces_of_the_images_agree_with_the_whole(task, monkeypatch):
    (whole,) = cases(task, "odd")[0].reference.values()
    monkeypatch.setattr(family_module(task), "ELEMENTS", 1)
    (pieces,) = cases(task, "odd")[0].reference.values()
    np.testing.assert_allclose(pieces, whole, rtol=1e-12, atol=1e-12)


@each(FPROP)
def test_honest_convolutions_pass_with_a_margin_of_two(task):
    for case in cases(task):
        assert not case.misses(convolve(case), margin=2), case.workload.name


def test_three_products_pass_and_two_do_not():
    for case in cases(FP32):
        assert not case.misses(three_products(case), margin=2), case.workload.name
    for case in cases(FP32, "odd", "deep", "pointwise", "outliers", "pixels_scaled"):
        for left_out in (("small", "large"), ("large", "small")):
            assert case.misses(three_products(case, (left_out,))), case.workload.name


@pytest.mark.parametrize(("task", "lower"), [(FP32, tf32), (FP16, bf16)], ids=["fp32", "fp16"])
def test_the_lower_precision_of_operands_is_rejected(task, lower):
    for case in cases(task):
        if case.workload.name not in ("one_filter", "positive"):  # terms of one sign: errors average out
            assert case.misses(convolve(case, lower)), case.workload.name


def test_sums_in_half_precision_are_rejected_even_in_groups():
    for case in cases(FP16, "deep"):
        assert case.misses(convolve(case, rounded=fp16))


# --- conv2d_fprop_bias_relu ----------------------------------------------------------------------


def rectified(case, lower=fp32, before_bias=fp32, slope=0.0):
    """y in single precision; ``before_bias`` rounds the sum."""
    total = before_bias(convolve(case, lower)["y"]) + case.inputs["bias"].astype(f32)
    return {"y": np.where(total > 0, total, f32(slope) * total)}


def test_bias_and_rectifier_agree_with_plain_ones():
    for case in cases(BIAS_RELU, "smoke", "dilated_strided", "low_bias"):
        seen = windows(case.inputs["x"].astype(float), case.sizes, case.geometry)
        filters = case.inputs["filter"].astype(float).reshape(case.sizes["k"], -1)
        got = case.reference["y"].reshape(len(seen), -1)
        for pixel, row in zip(seen, got, strict=True):
            for k, value in enumerate(row):
                expected = max(0.0, float(pixel @ filters[k]) + float(case.inputs["bias"][k]))
                assert value == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("before_bias", [fp32, fp16])
def test_one_rounding_more_before_the_bias_is_allowed(before_bias):
    for case in cases(BIAS_RELU):
        outputs = rectified(case, before_bias=before_bias)
        assert not case.misses(outputs, margin=2), case.workload.name


def test_bf16_and_a_leaky_rectifier_are_rejected():
    for case in cases(BIAS_RELU):
        if case.workload.name in (
            "one_filter",
            "large_bias",
        ):  # errors average out, or the bias outweighs them
            continue
        assert case.misses(rectified(case, bf16)), case.workload.name
        assert case.misses(rectified(case, slope=0.01)), case.workload.name


# --- conv2d_fprop_prologue -----------------------------------------------------------------------


def activations(inputs, rounded=fp32):
    shifted = inputs["x"].astype(f32) * inputs["scale"].astype(f32) + inputs["bias"].astype(f32)
    return rounded(np.maximum(shifted, 0))


def convolve_activations(case, rounded=fp32, sums=fp32, padding_counts=False):
    """y in single precision from activations that are ``rounded``."""
    made, sizes, geometry = activations(case.inputs, rounded), dict(case.sizes), case.geometry
    if padding_counts:  # zeros of x are activated as well
        around = geometry[1]
        bordered = np.pad(case.inputs["x"], ((0, 0), (around, around), (around, around), (0, 0)))
        made = activations({**case.inputs, "x": bordered})
        sizes["h"], sizes["w"], geometry = bordered.shape[1], bordered.shape[2], (geometry[0], 0, geometry[2])
    filters = case.inputs["filter"].astype(f32).reshape(sizes["k"], -1)
    y = summed(windows(made, sizes, geometry), filters.T, sums)
    return {"y": y.reshape(case.reference["y"].shape)}


def test_activations_and_their_convolution_agree_with_plain_ones():
    for case in cases(PROLOGUE, "smoke", "dilated_strided", "small_image"):
        made = activations({name: x.astype(float) for name, x in case.inputs.items()}, rounded=lambda x: x)
        seen = windows(made.astype(float), case.sizes, case.geometry)
        filters = case.inputs["filter"].astype(float).reshape(case.sizes["k"], -1)
        expected = (seen @ filters.T).reshape(case.reference["y"].shape)
        scale = np.abs(expected).max()
        np.testing.assert_allclose(
            case.reference["y"], expected, atol=1e-6 * scale
        )  # activations in fp32 here


@pytest.mark.parametrize("rounded", [fp32, fp16])
def test_activations_may_be_rounded_to_half_precision(rounded):
    for case in cases(PROLOGUE):
        assert not case.misses(convolve_activations(case, rounded), margin=2), case.workload.name


def test_activations_in_bf16_are_rejected():
    for case in cases(PROLOGUE):
        if case.workload.name not in ("one_filter", "high_bias"):  # errors of one sign average out
            assert case.misses(convolve_activations(case, bf16)), case.workload.name


def test_padding_that_is_activated_is_rejected():
    padded = [
        c for c in cases(PROLOGUE) if c.geometry[1] and c.workload.name not in ("pixels_scaled", "low_bias")
    ]
    assert len(padded) >= 6
    for case in padded:
        assert case.misses(convolve_activations(case, padding_counts=True)), case.workload.name


def test_half_precision_sums_of_activations_are_rejected():
    for case in cases(PROLOGUE, "deep"):
        assert case.misses(convolve_activations(case, fp16, sums=fp16))


# --- conv2d_wgrad --------------------------------------------------------------------------------


def filter_gradient(case, rounded=fp32, sums=fp32, images=None, lower=fp32):
    """dfilter in single precision from activations that are ``rounded``, over the first ``images``."""
    sizes = case.sizes
    seen = windows(activations(case.inputs, rounded), sizes, case.geometry)
    dy = lower(case.inputs["dy"]).reshape(len(seen), -1)
    pixels = len(seen) if images is None else images * sizes["p"] * sizes["q"]
    gradient = summed(dy[:pixels].T, seen[:pixels], sums)
    return {"dfilter": gradient.reshape(case.reference["dfilter"].shape)}


def test_filter_gradients_agree_with_a_plain_loop():
    for case in cases(WGRAD, "smoke", "dilated_strided", "one_pixel"):
        x, scale, bias = (case.inputs[name].astype(float) for name in ("x", "scale", "bias"))
        dy, d, (stride, padding, dilation) = case.inputs["dy"].astype(float), case.sizes, case.geometry
        expected = np.zeros(case.reference["dfilter"].shape)
        for i, a, b in np.ndindex(d["n"], d["p"], d["q"]):
            for u, v in np.ndindex(d["r"], d["s"]):
                row, column = (at * stride - padding + tap * dilation for at, tap in ((a, u), (b, v)))
                if 0 <= row < d["h"] and 0 <= column < d["w"]:
                    made = np.maximum(x[i, row, column] * scale + bias, 0)
                    expected[:, u, v] += np.outer(dy[i, a, b], made)
        np.testing.assert_allclose(case.reference["dfilter"], expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("rounded", [fp32, fp16])
def test_filter_gradients_of_rounded_activations_pass_with_a_margin_of_two(rounded):
    for case in cases(WGRAD):
        assert not case.misses(filter_gradient(case, rounded), margin=2), case.workload.name


def test_filter_gradients_in_bf16_are_rejected():
    for case in cases(WGRAD):
        if case.workload.name not in ("one_channel", "high_bias"):  # errors of one sign average out
            assert case.misses(filter_gradient(case, rounded=bf16)), case.workload.name
        if case.workload.name != "one_channel":
            assert case.misses(filter_gradient(case, lower=bf16)), case.workload.name


def test_half_precision_sums_over_pixels_are_rejected():
    for case in cases(WGRAD, "many_pixels"):
        assert case.misses(filter_gradient(case, fp16, sums=fp16))


def test_an_image_left_out_is_rejected():
    several = [c for c in cases(WGRAD) if c.sizes["n"] > 1]
    assert len(several) >= 10
    for case in several:
        assert case.misses(filter_gradient(case, images=case.sizes["n"] - 1)), case.workload.name


# --- conv2d_dgrad --------------------------------------------------------------------------------


def image_gradient(case, lower=fp32, rounded=fp32, overlaps=fp32):
    """dx in single precision, window by window; ``overlaps`` rounds after each addition to an image."""
    sizes, (stride, padding, dilation) = case.sizes, case.geometry
    dy, filters = lower(case.inputs["dy"]), lower(case.inputs["filter"])
    dx = np.zeros(case.reference["dx"].shape, f32)
    shares = summed(dy.reshape(-1, sizes["k"]), filters.reshape(sizes["k"], -1), rounded)
    shares = shares.reshape(*dy.shape[:3], sizes["r"], sizes["s"], sizes["c"])
    for a, b, u, v in np.ndindex(sizes["p"], sizes["q"], sizes["r"], sizes["s"]):
        row, column = (at * stride - padding + tap * dilation for at, tap in ((a, u), (b, v)))
        if 0 <= row < sizes["h"] and 0 <= column < sizes["w"]:
            dx[:, row, column] = overlaps(dx[:, row, column] + overlaps(shares[:, a, b, u, v]))
    return {"dx": dx}


def test_image_gradients_agree_with_a_plain_loop():
    for case in cases(DGRAD, "smoke", "stride_three", "dilated_strided", "small_image"):
        dy, filters = case.inputs["dy"].astype(float), case.inputs["filter"].astype(float)
        d, (stride, padding, dilation) = case.sizes, case.geometry
        for y, x in np.ndindex(d["h"], d["w"]):
            expected = np.zeros((d["n"], d["c"]))
            for u, v in np.ndindex(d["r"], d["s"]):
                a, rest_a = divmod(y + padding - u * dilation, stride)
                b, rest_b = divmod(x + padding - v * dilation, stride)
                if rest_a == rest_b == 0 and 0 <= a < d["p"] and 0 <= b < d["q"]:
                    expected += np.einsum("nk,kc->nc", dy[:, a, b], filters[:, u, v])
            np.testing.assert_allclose(case.reference["dx"][:, y, x], expected, rtol=1e-10, atol=1e-12)


def test_transposed_convolution_is_the_transpose_of_the_forward_one():
    """<y, convolve(x)> = <transposed(y), x> for any x and y."""
    forward = family_module(FP16)
    for case in cases(DGRAD, "odd", "four_by_four", "dilated_three"):
        x = np.random.default_rng(5).normal(size=case.reference["dx"].shape)
        operands = {"x": x, "filter": case.inputs["filter"].astype(float)}
        y = forward.reference(operands, case.sizes, case.workload.scalars, xnp)["y"]
        assert np.vdot(case.inputs["dy"].astype(float), y) == pytest.approx(
            np.vdot(case.reference["dx"], x), rel=1e-9
        )


def test_honest_image_gradients_pass_with_a_margin_of_two():
    for case in cases(DGRAD):
        assert not case.misses(image_gradient(case), margin=2), case.workload.name


def test_image_gradients_in_bf16_are_rejected():
    for case in cases(DGRAD):
        if case.workload.name != "one_channel":  # terms of one sign: errors average out
            assert case.misses(image_gradient(case, bf16)), case.workload.name


def test_half_precision_sums_and_overlaps_of_image_gradients_are_rejected():
    for case in cases(DGRAD, "deep"):
        assert case.misses(image_gradient(case, rounded=fp16))
    for case in cases(DGRAD, "many_windows"):
        assert case.misses(image_gradient(case, overlaps=fp16)), case.workload.name


def test_the_matrix_product_declines_windows_that_overlap():
    product = load_experts(DGRAD).product_and_shuffle
    for workload in DGRAD.workloads_of(WorkloadRole.BENCH):
        if workload.name != "unet_up":
            with pytest.raises(NotImplementedError, match="do not overlap"):
                product({}, {}, DGRAD.sizes(workload), workload.scalars)
