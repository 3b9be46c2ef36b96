"""The PTX that is mutated: the tests' own kernels, the families' tuned examples, the toolkit's headers."""

from __future__ import annotations

import random
from collections.abc import Sequence

from emulated import KERNELS, compile_ptx
from mutation_units import Source, Unit

TESTS = {
    "80": ("basic", "calls", "lanes", "threads", "phases", "matrices", "mma_gemm", "wmma", "scalar_math",
           "cub"),
    "90a": ("hopper_cluster", "hopper_maps", "hopper_mbarrier", "hopper_tensor", "wgmma_gemm"),
}  # fmt: skip
QUICK = ("basic", "calls", "lanes", "threads", "matrices", "hopper_cluster")
"""Sources that compile in some seconds; other tests have them compiled as well."""


def own_kernels(names: Sequence[str] = ()) -> list[Source]:
    """Sources of tests/emulator/kernels, all or those named; CUB's block algorithms among them."""
    return [
        Source(name, compile_ptx(KERNELS / f"{name}.cu", architecture))
        for architecture, of in TESTS.items()
        for name in of
        if not names or name in names
    ]


def experts() -> list[Source]:
    """Files of the corpus that need nothing but the toolkit: what the families ship as tuned, the sort with
    CUB, cooperative groups, pipelines and barriers of libcu++."""
    from cudahercules.emulator.corpus.compiled import compiled
    from cudahercules.emulator.corpus.manifest import manifest

    found = []
    for file in manifest().files:
        target = "hopper" if "hopper" in file.targets else file.targets[0]
        if file.name.startswith(("own/", "toolkit/")) and (ptx := compiled(file, target).ptx) is not None:
            found.append(Source(file.name, ptx.read_text()))
    return found


def units_of(sources: Sequence[Source], seed: int, most: int = 400) -> list[Unit]:
    """At most ``most`` units of each source, chosen by ``seed``."""
    generator = random.Random(seed)
    units: list[Unit] = []
    for source in sources:
        of = list(source.units(generator))
        units += of if len(of) <= most else generator.sample(of, most)
    return units
