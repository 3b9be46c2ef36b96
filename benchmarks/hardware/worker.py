"""Runs programs of a kit by ID from standard input; answers are JSON lines to file descriptor --answers.

Answers: ``ready`` (with GPU and driver), ``done`` (with the arrays that changed, in hexadecimal), ``varying``
(two runs gave different bytes), ``refused`` (the driver does not take the module or the launch), ``fault``
(the context is lost: the worker ends).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "emulator"), str(Path(__file__).parent)]

import hardware_pack as pack  # noqa: E402
from gpu import DriverError, Gpu  # noqa: E402


class Machine(Protocol):
    def about(self) -> dict: ...

    def execute(self, id_: str) -> pack.Files: ...


class Pretended:
    """Answers with what the emulator gave, but for the programs that are to go wrong."""

    def __init__(self, files: pack.Files, flip: str, hang: str, crash: str):
        self.files, self.flip, self.hang, self.crash = files, flip, hang, crash

    def about(self) -> dict:
        return {"gpu": "pretended"}

    def execute(self, id_: str) -> pack.Files:
        if id_ == self.hang:
            time.sleep(3600)
        if id_ == self.crash:
            os._exit(3)
        arrays = pack.arrays(self.files, "emulated", id_)
        if id_ == self.flip:
            name = min(arrays)
            data = bytearray(arrays[name])
            data[len(data) // 2] ^= 1
            arrays[name] = bytes(data)
        return arrays


class Real:
    """The first GPU: every program on fresh modules and the same memory, whatever ran before."""

    def __init__(self, files: pack.Files):
        self.files = files
        self.descriptions = pack.programs(files)
        plans = [d["plan"] for d in self.descriptions.values()]
        end = max(b["address"] + b["size"] for p in plans for b in p["buffers"])
        self.gpu = Gpu(plans[0]["arena_base"], end)

    def about(self) -> dict:
        return self.gpu.about()

    def execute(self, id_: str) -> pack.Files:
        description = self.descriptions[id_]
        cubin = self.files[f"cubin/{description['ptx']}.cubin"]
        before = pack.arrays(self.files, "before", id_)
        after = self.gpu.run(description["plan"], description["places"], cubin, before)
        return {name: data for name, data in after.items() if data != before[name]}


def answer(machine: Machine, id_: str) -> dict:
    first = machine.execute(id_)
    second = machine.execute(id_)
    arrays = {name: data.hex() for name, data in first.items()}
    if first != second:
        names = [n for n in sorted({*first, *second}) if first.get(n) != second.get(n)]
        return {"status": "varying", "text": f"two runs differ in {', '.join(names)}", "arrays": arrays}
    return {"status": "done", "arrays": arrays}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kit", type=Path)
    parser.add_argument("--answers", type=int, required=True)
    parser.add_argument("--pretend", action="store_true")
    for name in ("--flip", "--hang", "--crash"):
        parser.add_argument(name, default="")
    options = parser.parse_args()

    def say(value: dict) -> None:
        data = json.dumps(value).encode() + b"\n"
        while data:
            data = data[os.write(options.answers, data) :]

    files = pack.read(options.kit)
    machine: Machine = (
        Pretended(files, options.flip, options.hang, options.crash) if options.pretend else Real(files)
    )
    say({"status": "ready", "date": datetime.now(UTC).isoformat(timespec="seconds"), **machine.about()})
    for line in sys.stdin:
        try:
            say(answer(machine, line.strip()))
        except DriverError as error:
            say({"status": "fault" if error.sticky else "refused", "text": str(error)})
            if error.sticky:
                return
        except Exception as error:  # a program that this script cannot run costs no other one
            say({"status": "refused", "text": repr(error)})


if __name__ == "__main__":
    main()
