"""The scalar table against the GPU at hand, bit for bit."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
import scalar_harness as harness
from scalar_on_gpu import Gpu, assemble

from cudahercules.emulator.scalar.pattern import Variant
from cudahercules.emulator.scalar.table import APPROXIMATE

_FROM_CAPABILITY = {
    "8.0": "80",
    "8.6": "86",
    "8.9": "89",
    "9.0": "90a",
    "10.0": "100a",
    "10.3": "103a",
    "12.0": "120a",
}
_NOT_COMPARED = {"fns.b32", "cvt.rna.satfinite.tf32.f32"}  # see docs/emulator-coverage.md


def comparable(variant: Variant) -> bool:
    """Approximate functions are compared with their error bound in test_scalar_table.py instead."""
    return variant.row not in APPROXIMATE and variant.name not in _NOT_COMPARED


def differing(variant: Variant, ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """The tuples whose bits differ; any NaN of fp64 equals any other."""
    different = ours != theirs
    if variant.types[0] == "f64":
        nan = [(x[:, 0] & np.uint64(2**63 - 1)) > np.uint64(0x7FF << 52) for x in (ours, theirs)]
        different[:, 0] &= ~(nan[0] & nan[1])
    return np.nonzero(different.any(axis=1))[0]


@pytest.mark.gpu
def test_same_bits_as_the_gpu(tmp_path: Path) -> None:
    query = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader", "--id=0"]
    capability = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    variants = [variant for row in harness.ROWS for variant in row.variants() if comparable(variant)]
    cubin, accepted = assemble(variants, _FROM_CAPABILITY[capability], tmp_path)
    assert len(accepted) > 3000
    gpu, compiled = Gpu(cubin), harness.Compiled(variants, tmp_path, "-DPTX_CANONICAL_NAN=1")
    wrong = []
    for index in accepted:
        variant = variants[index]
        words = harness.inputs(variant, 100)
        ours, theirs = compiled.run(index, words), gpu.run(index, words, len(harness.destinations(variant)))
        wrong += [
            f"{variant.name} {[hex(word) for word in words[i].tolist()]}: "
            f"{[hex(word) for word in ours[i].tolist()]}, GPU {[hex(word) for word in theirs[i].tolist()]}"
            for i in differing(variant, ours, theirs)[:2]
        ]
    assert not wrong, "\n".join(wrong[:20])


@pytest.mark.slow
def test_ptxas_accepts_what_the_table_accepts(tmp_path: Path) -> None:
    """For some architecture; .sat of a cvt that cannot overflow is the only freedom the table takes."""
    variants = [variant for row in harness.ROWS for variant in row.variants()]
    accepted = set().union(
        *(assemble(variants, architecture, tmp_path)[1] for architecture in ("90a", "100a"))
    )
    refused = {variant.name for index, variant in enumerate(variants) if index not in accepted}
    refused = {name for name in refused if not name.startswith(("lop3.", "cvt.sat."))}
    assert refused == set()
