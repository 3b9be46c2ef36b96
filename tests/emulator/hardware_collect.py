"""Keeps the programs that the tests run, so that a GPU can run them too.

With HERCULES_COLLECT_PROGRAMS=FOLDER, every program that completes in the emulator is written to FOLDER as
plain files (see hardware_pack.py), once for each ID. A program that gives other results in
another mode of asynchrony depends on time: it is listed in FOLDER/varying.txt and not sent to the GPU.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import hardware_pack as pack
from hardware_rules import excluded

VARIABLE = "HERCULES_COLLECT_PROGRAMS"
Arrays = Mapping[str, bytes]
LARGEST = 1 << 20
"""Bytes of all arrays of a program; larger ones stay here."""


def wanted() -> bool:
    """Whether programs are to be kept and the running test's are fit for it."""
    return VARIABLE in os.environ and excluded(_test()) is None


def keep_of_test(ptx: str, plan: str, before: Arrays, after: Arrays) -> None:
    """Write the program of the running test, unless it is large."""
    if sum(map(len, before.values())) <= LARGEST:
        keep(Path(os.environ[VARIABLE]), _test(), ptx, plan, before, after)


def keep(folder: Path, name: str, ptx: str, plan: str, before: Arrays, after: Arrays, **more: object) -> None:
    """Write one program: its PTX, its plan as JSON, its arrays before and after it ran here, and ``more``
    that its description is to have."""
    ptx_digest = pack.digest(ptx.encode())
    arrays = (part for n, data in sorted(before.items()) for part in (n.encode(), data))
    id_ = pack.digest(ptx.encode(), plan.encode(), *arrays)
    changed = {n: data for n, data in after.items() if data != before[n]}
    description = folder / "programs" / f"{id_}.json"
    if description.exists():
        earlier = {f.name: f.read_bytes() for f in (folder / "emulated" / id_).glob("*")}
        if earlier != changed:
            with (folder / "varying.txt").open("a") as stream:
                stream.write(f"{id_} {name}\n")
        return
    for kind, files in (("before", before), ("emulated", changed)):
        for array, data in files.items():
            _write(folder / kind / id_ / array, data)
    _write(folder / "ptx" / f"{ptx_digest}.ptx", ptx.encode())
    text = {"name": name, "ptx": ptx_digest, "plan": json.loads(plan), **more}
    _write(description, json.dumps(text, sort_keys=True).encode())


def _test() -> str:
    """``file.py::function[parameters]`` of the running test."""
    return os.environ.get("PYTEST_CURRENT_TEST", "").rsplit("/", 1)[-1].removesuffix(" (call)")


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
