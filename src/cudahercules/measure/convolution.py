"""What the panels of convolutions share: axes as PyTorch and cuDNN count them, and a search.

The tasks' tensors have their channels last; PyTorch and cuDNN count axes as batch, channel, row, column and
find out from the strides that channels lie last. So they get views, and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ALGORITHMS = 32
"""Algorithms timed for a shape, the heuristics' best guesses first; PyTorch's own limit is 10. There are
more, and some are compiled when they are first met: a contestant must be ready in time."""


def channel_second(t: Any) -> Any:
    """(batch, row, column, channel) seen as (batch, channel, row, column)."""
    return t.permute(0, 3, 1, 2)


def channel_last(t: Any) -> Any:
    """(batch, channel, row, column) seen as (batch, row, column, channel)."""
    return t.permute(0, 2, 3, 1)


def geometry(scalars: Mapping[str, float]) -> tuple[list[int], list[int], list[int]]:
    """Stride, padding and dilation, one number an axis."""
    stride, padding, dilation = ([int(scalars[name])] * 2 for name in ("stride", "padding", "dilation"))
    return stride, padding, dilation


def search_algorithms(allow_tf32: bool = False) -> None:
    """From now on PyTorch times up to ALGORITHMS of cuDNN's algorithms for a shape when it first meets it."""
    import torch

    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.benchmark_limit = ALGORITHMS
    torch.backends.cudnn.allow_tf32 = allow_tf32


def versions() -> dict[str, str]:
    """Of PyTorch and of the cuDNN that it calls."""
    import torch

    return {"cudnn": str(torch.backends.cudnn.version()), "torch": torch.__version__}
