"""The names of the tasks that the release of CUDAHercules holds (arXiv 2605.08467), from ``released.txt``."""

from __future__ import annotations

import difflib
from functools import cache
from pathlib import Path

NAMES = Path(__file__).parent / "released.txt"


@cache
def released_names() -> dict[str, bool]:
    """``SLICE/NAME`` (as ``class1/hopper/57_hopper_grouped_gemm``) -> whether it is in the current 195, in
    the release's order; False for those of the first release that were dropped."""
    names, part = {}, ""
    for line in NAMES.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            part = line.strip("[]")
        elif line and not line.startswith("#"):
            names[f"{part}/{line.removesuffix('*')}"] = not line.endswith("*")
    return names


@cache
def slices() -> dict[str, tuple[str, ...]]:
    """Slice (``class1/hopper``, ``class3``) -> its current names in full."""
    found: dict[str, list[str]] = {}
    for name, current in released_names().items():
        if current:
            found.setdefault(slice_of(name), []).append(name)
    return {part: tuple(names) for part, names in found.items()}


def slice_of(name: str) -> str:
    """``class1/hopper`` of a class 1 or 2 name, ``class3`` or ``class4`` of others."""
    first, second, *_ = name.split("/")
    return f"{first}/{second}" if first in ("class1", "class2") else first


def unknown(name: str) -> str:
    """What to say of a name that the release does not hold: the nearest one, where there is one."""
    near = difflib.get_close_matches(name, released_names(), n=1, cutoff=0.4)
    return "is no task of the release" + (f"; did you mean {near[0]}?" if near else "")
