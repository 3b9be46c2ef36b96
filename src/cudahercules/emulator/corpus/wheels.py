"""Packages from PyPI by name and hash: fetched by pip once, unpacked in the cache, never installed."""

from __future__ import annotations

import os
import sys
import zipfile
from functools import lru_cache
from pathlib import Path

from cudahercules.cache import digest, entry, file_digest
from cudahercules.emulator.corpus.manifest import Wheel
from cudahercules.errors import MachineError
from cudahercules.process import Limits, run_limited

_LIMITS = Limits(wall_s=600, output=1 << 20)


@lru_cache(maxsize=32)
def unpacked(wheel: Wheel) -> Path:
    """The directory with the wheel's ``keep`` folders. Raises MachineError if pip cannot get it."""
    key = digest("wheel", wheel.sha256, *wheel.keep)
    directory, _ = entry("wheels", key, lambda private: _make(wheel, private))
    return directory


def include_directories(wheel: Wheel) -> list[Path]:
    root = unpacked(wheel)
    return [root / folder for folder in wheel.include]


def _make(wheel: Wheel, private: Path) -> None:
    archive = _fetched(wheel, private)
    if (found := file_digest(archive)) != wheel.sha256:
        raise MachineError(f"{wheel.file} has the SHA-256 {found} instead of {wheel.sha256}: not used")
    with zipfile.ZipFile(archive) as members:
        for member in members.namelist():
            if member.startswith(tuple(wheel.keep)) and not member.endswith("/"):
                members.extract(member, private)
    archive.unlink()


def _fetched(wheel: Wheel, directory: Path) -> Path:
    python, abi, platform = wheel.file.removesuffix(".whl").split("-")[-3:]
    tags = ["--platform", *" --platform ".join(platform.split(".")).split()] if platform != "any" else []
    if platform != "any":
        tags += ["--python-version", python.removeprefix("cp").removeprefix("py") or "3"]
        tags += ["--implementation", "cp" if python.startswith("cp") else "py", "--abi", abi]
    done = run_limited(
        [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:",
         "--disable-pip-version-check", *tags, "--dest", directory, f"{wheel.package}=={wheel.version}"],
        _LIMITS,
        env=dict(os.environ),  # pip's own settings: index, proxy, certificates
    )  # fmt: skip
    found = sorted(directory.glob("*.whl"))
    if done.status != 0 or len(found) != 1:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        reason = said[-1] if said else f"{len(found)} wheels came"
        raise MachineError(
            f"pip could not fetch {wheel.package}=={wheel.version} ({reason}): a network and "
            f"`{sys.executable} -m pip` are needed once"
        )
    return found[0]
