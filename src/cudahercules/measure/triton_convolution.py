"""Our own Triton kernels for convolutions with something fused: opponents where libraries need more passes.

Both are implicit matrix products over dense tensors with channels last, in fp16 with fp32 sums; the forward
one also in fp32, by three products of TF32. Operands are gathered by masked loads; activations (scale, shift,
rectifier) are made in registers between loading and multiplying. Tiles are autotuned. Importing this module
needs triton.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import triton
import triton.language as tl

Run = Callable[[], None]
ENOUGH_BLOCKS = 2 * 132
"""Blocks that a filter's gradient is cut into at least: two for each multiprocessor of an H200."""


@triton.jit
def forward_kernel(
    x,
    scale,
    shift,
    filter,
    bias,
    y,
    pixels,
    H: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    K: tl.constexpr,
    R: tl.constexpr,
    S: tl.constexpr,
    P: tl.constexpr,
    Q: tl.constexpr,
    STRIDE: tl.constexpr,
    PADDING: tl.constexpr,
    DILATION: tl.constexpr,
    ACTIVATE: tl.constexpr,
    RECTIFY: tl.constexpr,
    PRECISION: tl.constexpr,
    PIXELS: tl.constexpr,
    FILTERS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """A tile of PIXELS by FILTERS of y; programs that share pixels are neighbours."""
    tiles = tl.cdiv(K, FILTERS)
    pixel = tl.program_id(0) // tiles * PIXELS + tl.arange(0, PIXELS)
    k = tl.program_id(0) % tiles * FILTERS + tl.arange(0, FILTERS)
    first_row = pixel // Q % P * STRIDE - PADDING
    first_column = pixel % Q * STRIDE - PADDING
    image = pixel // (P * Q) * (H * W)
    steps: tl.constexpr = (C + CHANNELS - 1) // CHANNELS
    sums = tl.zeros((PIXELS, FILTERS), tl.float32)
    for step in range(R * S * steps):
        tap = step // steps
        c = step % steps * CHANNELS + tl.arange(0, CHANNELS)
        row = first_row + tap // S * DILATION
        column = first_column + tap % S * DILATION
        inside = pixel < pixels
        if PADDING > 0:  # without it every window lies within the image
            inside = inside & (row >= 0) & (row < H) & (column >= 0) & (column < W)
        seen = inside[:, None] & (c < C)[None, :]
        a = tl.load(x + (image + row * W + column)[:, None] * C + c[None, :], mask=seen, other=0.0)
        if ACTIVATE:
            by = tl.load(scale + c, mask=c < C, other=0.0)
            plus = tl.load(shift + c, mask=c < C, other=0.0)
            nothing = tl.zeros_like(a)  # in fp16: with 0.0 Triton would go on in fp32
            a = tl.where(seen, tl.maximum(tl.fma(a, by[None, :], plus[None, :]), nothing), nothing)
        b = tl.load(
            filter + k[None, :] * (R * S * C) + tap * C + c[:, None],
            mask=(c < C)[:, None] & (k < K)[None, :],
            other=0.0,
        )
        sums = tl.dot(a, b, sums, input_precision=PRECISION)
    if RECTIFY:
        sums = tl.maximum(sums + tl.load(bias + k, mask=k < K, other=0.0).to(tl.float32)[None, :], 0.0)
    written = (pixel < pixels)[:, None] & (k < K)[None, :]
    tl.store(y + pixel[:, None] * K + k[None, :], sums.to(y.dtype.element_ty), mask=written)


@triton.jit
def filter_gradient_kernel(
    dy,
    x,
    scale,
    shift,
    sums,
    pixels,
    H: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    K: tl.constexpr,
    R: tl.constexpr,
    S: tl.constexpr,
    P: tl.constexpr,
    Q: tl.constexpr,
    STRIDE: tl.constexpr,
    PADDING: tl.constexpr,
    DILATION: tl.constexpr,
    PIECE: tl.constexpr,
    PIXELS: tl.constexpr,
    FILTERS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Adds PIECE pixels, a multiple of PIXELS, to a tile of FILTERS by CHANNELS of one tap, in fp32."""
    slices = tl.cdiv(C, CHANNELS)
    tap = tl.program_id(0) // slices % (R * S)
    c = tl.program_id(0) % slices * CHANNELS + tl.arange(0, CHANNELS)
    k = tl.program_id(0) // (slices * R * S) * FILTERS + tl.arange(0, FILTERS)
    up = tap // S * DILATION - PADDING
    left = tap % S * DILATION - PADDING
    by = tl.load(scale + c, mask=c < C, other=0.0)
    plus = tl.load(shift + c, mask=c < C, other=0.0)
    total = tl.zeros((FILTERS, CHANNELS), tl.float32)
    for begin in range(0, PIECE, PIXELS):
        pixel = tl.program_id(1) * PIECE + begin + tl.arange(0, PIXELS)
        row = pixel // Q % P * STRIDE + up
        column = pixel % Q * STRIDE + left
        inside = pixel < pixels
        if PADDING > 0:
            inside = inside & (row >= 0) & (row < H) & (column >= 0) & (column < W)
        seen = inside[:, None] & (c < C)[None, :]
        at = pixel // (P * Q) * (H * W) + row * W + column
        t = tl.load(x + at[:, None] * C + c[None, :], mask=seen, other=0.0)
        nothing = tl.zeros_like(t)  # in fp16: with 0.0 Triton would go on in fp32
        t = tl.where(seen, tl.maximum(tl.fma(t, by[None, :], plus[None, :]), nothing), nothing)
        weight = tl.load(
            dy + pixel[:, None] * K + k[None, :],
            mask=(pixel < pixels)[:, None] & (k < K)[None, :],
            other=0.0,
        )
        total = tl.dot(tl.trans(weight), t, total)
    to = sums + (k[:, None] * (R * S) + tap) * C + c[None, :]
    tl.atomic_add(to, total, mask=(k < K)[:, None] & (c < C)[None, :], sem="relaxed")


def _tiles(shapes: Sequence[tuple[int, int, int, int]]) -> list[Any]:
    return [
        triton.Config(
            {"PIXELS": pixels, "FILTERS": filters, "CHANNELS": channels}, num_warps=warps, num_stages=stages
        )
        for pixels, filters, channels, warps in shapes
        for stages in (3, 4)
    ]


_KEY = ["pixels", "H", "W", "C", "K", "R", "S", "STRIDE", "PADDING", "DILATION"]
_forward = triton.autotune(
    configs=_tiles([(128, 64, 64, 4), (128, 128, 64, 8), (128, 256, 64, 8), (256, 128, 64, 8)]), key=_KEY
)(forward_kernel)
_forward_fp32 = triton.autotune(
    configs=_tiles([(128, 64, 32, 4), (64, 128, 32, 4), (128, 128, 32, 8), (128, 128, 16, 8)]), key=_KEY
)(forward_kernel)
_filter_gradient = triton.autotune(
    configs=_tiles([(64, 64, 64, 4), (64, 128, 64, 4), (64, 128, 128, 8), (64, 64, 128, 4)]),
    key=_KEY,
    reset_to_zero=["sums"],
)(filter_gradient_kernel)


def forward(
    x: Any, filter: Any, y: Any, geometry: Any, activate: Any = None, bias: Any = None, kernel: Any = None
) -> Run:
    """A function that convolves x (n, h, w, c) with filter (k, r, s, c) into y (n, p, q, k), all in fp16 or
    all in fp32.

    geometry   (stride, padding, dilation), one number each
    activate   (scale, shift): x becomes max(scale x + shift, 0) first, and stays 0 in the padding
    bias       one number a filter, added to the sum before a rectifier
    """
    n, h, w, c = x.shape
    k, r, s, _ = filter.shape
    _, p, q, _ = y.shape
    scale, shift = activate or (None, None)
    single = str(x.dtype) == "torch.float32"
    kernel = kernel or (_forward_fp32 if single else _forward)
    options = {
        "ACTIVATE": activate is not None,
        "RECTIFY": bias is not None,
        "PRECISION": "tf32x3" if single else "ieee",
    }

    def grid(chosen: Any) -> tuple[int]:
        return (triton.cdiv(n * p * q, chosen["PIXELS"]) * triton.cdiv(k, chosen["FILTERS"]),)

    def run() -> None:
        kernel[grid](
            x, scale, shift, filter, bias, y, n * p * q, h, w, c, k, r, s, p, q, *geometry, **options
        )

    return run


def filter_gradient(
    dy: Any, x: Any, scale: Any, shift: Any, dfilter: Any, geometry: Any, kernel: Any = _filter_gradient
) -> Run:
    """A function that writes the gradient (k, r, s, c) of the filter that x's activations were convolved
    with, from dy (n, p, q, k); all in fp16. Pieces of the pixels are added up atomically in fp32."""
    import torch

    n, h, w, c = x.shape
    k, r, s, _ = dfilter.shape
    _, p, q, _ = dy.shape
    pixels = n * p * q
    sums = torch.empty(dfilter.shape, dtype=torch.float32, device=dfilter.device)
    pieces = triton.cdiv(ENOUGH_BLOCKS, r * s * triton.cdiv(c, 128) * triton.cdiv(k, 128))
    piece = triton.cdiv(triton.cdiv(pixels, pieces), 64) * 64  # each tile's PIXELS divide 64

    def grid(chosen: Any) -> tuple[int, int]:
        tiles = r * s * triton.cdiv(c, chosen["CHANNELS"]) * triton.cdiv(k, chosen["FILTERS"])
        return tiles, triton.cdiv(pixels, piece)

    def run() -> None:
        sums.zero_()
        kernel[grid](dy, x, scale, shift, sums, pixels, h, w, c, k, r, s, p, q, *geometry, PIECE=piece)
        dfilter.copy_(sums)

    return run
