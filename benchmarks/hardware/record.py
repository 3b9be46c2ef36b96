"""Runs packed test programs on the GPU at hand and keeps the raw bytes of everything that they write.

    python benchmarks/hardware/record.py KIT.tar.xz --out FOLDER [--limit-s 80]

Needs Python, the NVIDIA driver and nothing else: cubins lie in the kit. A worker process runs one program
after another, each of them twice; one that faults or hangs costs its worker and no other program. What is
there already in FOLDER (from a call that ran out of time) is not run again. Writes

    measured.tar.xz   measured/ID/ARRAY for every array that a program changed, and results.json
    table.txt         one line a program: equal to the emulator, different, varying, faulted, hung

``--pretend`` answers with the emulator's own results instead of a GPU's (``--flip N`` with one bit of the
N-th program changed, ``--hang N`` and ``--crash N`` with one that never answers or dies).
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "emulator"), str(Path(__file__).parent)]

import hardware_pack as pack  # noqa: E402

PER_PROGRAM_S = 6.0
START_S = 60.0
"""A worker's first answer may take this long: reading the kit, creating the context."""
MOST_RESTARTS = 20


class Worker:
    """A process that runs programs by ID. Answers come through a pipe of their own: kernels may print."""

    def __init__(self, arguments: list[str]):
        ours, theirs = os.pipe()
        self.process = subprocess.Popen(
            [
                sys.executable,
                str(Path(__file__).with_name("worker.py")),
                *arguments,
                "--answers",
                str(theirs),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=(theirs,),
            text=True,
        )
        os.close(theirs)
        self.answers, self.rest = ours, b""

    def hear(self, limit_s: float) -> dict | None:
        """The next answer; None if the process ended or the time is up."""
        end = time.monotonic() + limit_s
        while b"\n" not in self.rest:
            ready, _, _ = select.select([self.answers], [], [], max(0.0, end - time.monotonic()))
            data = os.read(self.answers, 1 << 16) if ready else b""
            if not data:
                return None
            self.rest += data
        line, _, self.rest = self.rest.partition(b"\n")
        return json.loads(line)

    def ask(self, id_: str) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(id_ + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # hear() tells

    def end(self) -> str:
        """Kills the process; says how it ended before that."""
        try:
            status = self.process.wait(0.5)
        except subprocess.TimeoutExpired:
            status = None
        self.process.kill()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            print("a worker does not die", flush=True)
        os.close(self.answers)
        return "hung" if status is None else f"ended with status {status}"


def run(ids: list[str], arguments: list[str], limit_s: float) -> Iterator[tuple[str, dict]]:
    """(ID, answer) for as many programs as the time allows. Ends early after MOST_RESTARTS lost workers."""
    end = time.monotonic() + limit_s
    worker, restarts = None, 0
    try:
        for id_ in ids:
            if time.monotonic() > end or restarts > MOST_RESTARTS:
                return
            if worker is None:
                worker = Worker(arguments)
                if (hello := worker.hear(START_S)) is None or hello["status"] != "ready":
                    print(f"no worker: {hello or worker.end()}", flush=True)
                    return
                yield "", hello
            worker.ask(id_)
            answer = worker.hear(PER_PROGRAM_S)
            if answer is None:
                answer = {"status": "lost", "text": worker.end()}
                worker, restarts = None, restarts + 1
            elif answer["status"] == "fault":  # its context is unusable
                worker.end()
                worker, restarts = None, restarts + 1
            yield id_, answer
    finally:
        if worker is not None:
            worker.end()


def compared(id_: str, answer: dict, files: pack.Files, measured: pack.Files) -> str:
    """What the table says about a program."""
    if answer["status"] != "done":
        return f"{answer['status']}: {answer.get('text', '')}"
    before, ours = pack.arrays(files, "before", id_), pack.arrays(files, "emulated", id_)
    parts = []
    for name in sorted(before):
        x, y = ours.get(name, before[name]), measured.get(name, before[name])
        wrong = [i for i in range(len(x)) if x[i] != y[i]] if x != y else []
        if wrong:
            at = wrong[0] // 8 * 8
            parts.append(
                f"{name}: {len(wrong)} of {len(x)} bytes, first at {wrong[0]}: "
                f"emulator {x[at : at + 8].hex()}, GPU {y[at : at + 8].hex()}"
            )
    return "different: " + "; ".join(parts) if parts else "equal"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("kit", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--limit-s", type=float, default=80.0, help="seconds for running programs")
    parser.add_argument("--only", default="", help="programs whose name contains this")
    for name in ("--pretend", "--flip", "--hang", "--crash"):
        kind = {"action": "store_true"} if name == "--pretend" else {"type": int, "default": -1}
        parser.add_argument(name, **kind)  # type: ignore[arg-type]
    options = parser.parse_args()
    if not options.kit.is_file():
        sys.exit(f"there is no {options.kit}: prepare.py makes it")
    options.out.mkdir(parents=True, exist_ok=True)
    files = pack.read(options.kit)
    descriptions = pack.programs(files)
    store = options.out / "measured.tar.xz"
    kept = pack.read(store) if store.exists() else {}
    results = json.loads(kept.pop("results.json", b'{"programs": {}, "machine": {}}'))
    ids = [i for i, d in descriptions.items() if options.only in d["name"] and i not in results["programs"]]
    arguments = [str(options.kit.resolve())]
    if options.pretend:
        chosen = {n: getattr(options, n) for n in ("flip", "hang", "crash")}
        arguments += ["--pretend", *(f"--{n}={ids[i]}" for n, i in chosen.items() if i >= 0)]
    start = time.monotonic()
    for id_, answer in run(ids, arguments, options.limit_s):
        if not id_:
            results["machine"] = answer
            continue
        measured = {name: bytes.fromhex(text) for name, text in answer.pop("arrays", {}).items()}
        kept |= {f"measured/{id_}/{name}": data for name, data in measured.items()}
        line = compared(id_, answer, files, measured)
        results["programs"][id_] = {
            "name": descriptions[id_]["name"],
            "status": answer["status"],
            "line": line,
        }
    print(f"{time.monotonic() - start:.1f} s")
    text = json.dumps(results, indent=1, sort_keys=True)
    pack.write(store, kept | {"results.json": text.encode()}, preset=2)
    missing = [d["name"] for i, d in descriptions.items() if i not in results["programs"]]
    table = list(tabulated(results, missing))
    (options.out / "table.txt").write_text("\n".join(table) + "\n")
    print("\n".join([line for line in table if not line.startswith(("equal", "not run |"))][:60]))
    if missing:
        sys.exit("some programs were not run: call again with the same --out")


def tabulated(results: dict, missing: list[str]) -> Iterator[str]:
    """The machine, the counts, and a line a program."""
    rows = sorted((row["line"], row["name"], id_) for id_, row in results["programs"].items())
    yield json.dumps(results["machine"])
    yield f"{dict(Counter(line.split(':')[0] for line, _, _ in rows))}, not run: {len(missing)}"
    yield from (f"{line[:300]} | {name} | {id_}" for line, name, id_ in rows)
    yield from (f"not run | {name}" for name in missing)


if __name__ == "__main__":
    main()
