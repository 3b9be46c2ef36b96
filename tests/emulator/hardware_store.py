"""The bits that a GPU gave (tests/emulator/hardware), and what the emulator makes of the same programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import hardware_pack as pack
import numpy as np
from hardware_rules import Tolerance, opaque, tolerance
from tensor_values import NP, decode

from cudahercules.build.artifact import Artifact, DeviceModule
from cudahercules.emulator.outcome import Completed
from cudahercules.emulator.run import emulate
from cudahercules.record.plan import LaunchPlan

FOLDER = Path(__file__).parent / "hardware"
PROGRAMS, SCALAR = FOLDER / "programs.tar.xz", FOLDER / "scalar.tar.xz"


@dataclass(frozen=True)
class Stored:
    """A program, what its arrays held before, and what the GPU left in all of them."""

    id: str
    name: str
    ptx: str
    plan: LaunchPlan
    before: Mapping[str, bytes]
    after: Mapping[str, bytes]

    @property
    def kernels(self) -> set[str]:
        return {launch.kernel for launch in self.plan.launches}

    def emulated(self, tmp_path: Path, asynchrony: str = "late") -> dict[str, bytes]:
        """What the emulator leaves in every array."""
        (tmp_path / f"{self.id}.ptx").write_text(self.ptx)
        module = DeviceModule(
            source="m.cu", cubin="none", ptx=f"{self.id}.ptx", fatbin_hash="0", kernels=(), symbols=()
        )
        artifact = Artifact(
            key="test", architecture="80", directory=tmp_path, host_object="none", has_prepare=False,
            modules=(module,), compiler="nvcc", flags=(), seconds=0,
        )  # fmt: skip
        contents = {name: np.frombuffer(data, np.uint8).copy() for name, data in self.before.items()}
        outcome = emulate(self.plan, artifact, contents, 20, asynchrony=asynchrony)
        assert isinstance(outcome, Completed), (self.name, outcome)
        return {name: array.tobytes() for name, array in contents.items()}

    def complaint(self, ours: Mapping[str, bytes]) -> str:
        """How ``ours`` differs from what the GPU gave, beyond what is allowed; empty if it does not."""
        allowed = tolerance(self.name)
        found = []
        for name, theirs in self.after.items():
            if ours[name] == theirs or name in opaque(self.name):
                continue
            if allowed is not None and name in allowed.arrays:
                found.append(_apart(ours[name], theirs, allowed))
            else:
                found.append(_first_difference(name, ours[name], theirs))
        return "; ".join(text for text in found if text)


def stored(files: Mapping[str, bytes]) -> Iterator[Stored]:
    """The programs of a pack."""
    for id_, description in pack.programs(files).items():
        before = pack.arrays(files, "before", id_)
        yield Stored(
            id_,
            description["name"],
            files[f"ptx/{description['ptx']}.ptx"].decode(),
            LaunchPlan.model_validate(description["plan"]),
            before,
            before | pack.arrays(files, "measured", id_),
        )


def _values(data: bytes, type_: str) -> np.ndarray:
    return decode(np.frombuffer(data, NP[type_]), type_)


def _apart(ours: bytes, theirs: bytes, allowed: Tolerance) -> str:
    x, y = _values(ours, allowed.type), _values(theirs, allowed.type)
    scale = float(np.abs(y[np.isfinite(y)]).max(initial=0))
    return _limited(
        x, y, lambda v: np.full(v.shape, allowed.of_largest * scale) + allowed.relative * np.abs(v)
    )


def _limited(x: np.ndarray, y: np.ndarray, limit) -> str:  # type: ignore[no-untyped-def]
    if not np.array_equal(np.isnan(x), np.isnan(y)):
        return "NaNs in other places"
    numbers = ~np.isnan(x) & (x != y)
    error, most = np.abs(x - y)[numbers], limit(y)[numbers]
    wrong = ~(error <= most)
    if not wrong.any():
        return ""
    with np.errstate(divide="ignore", invalid="ignore"):
        worst = np.max(error[wrong] / most[wrong])
    return f"{wrong.sum()} of {x.size} values are too far apart, the worst {worst:.3g} times the bound"


def _first_difference(name: str, ours: bytes, theirs: bytes) -> str:
    x, y = np.frombuffer(ours, np.uint8), np.frombuffer(theirs, np.uint8)
    wrong = np.nonzero(x != y)[0]
    at = int(wrong[0]) // 8 * 8
    return (
        f"{name}: {len(wrong)} of {len(x)} bytes differ, first at {wrong[0]}: "
        f"emulator {ours[at : at + 8].hex()}, GPU {theirs[at : at + 8].hex()}"
    )
