"""Fuzz what reads data from strangers: plans, recordings, families, evidence, files of verdicts.

    python tests/fuzz/fuzz.py [--inputs 100000] [--workers 1] [--most-seconds S] [--seed 1] [--save FILE]

Each worker is a process with a seed of its own, and takes its share of the inputs.

Inputs are real ones with a few changes to their structure (mutate.py); one in ten is damaged as text. Each
must be accepted or be refused by the error that its reader promises, within seconds. An accepted plan
must come back from its own JSON. The acceptance rate says how deep the inputs get.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import repeat
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "record")]

import yaml  # noqa: E402
from mutate import damaged, mutated  # noqa: E402
from recording import COMMON, bench, read_cases  # noqa: E402

from cudahercules.cache import file_digest  # noqa: E402
from cudahercules.errors import PlanError, UsageError  # noqa: E402
from cudahercules.judge import evidence  # noqa: E402
from cudahercules.judge.batch import finished  # noqa: E402
from cudahercules.judge.grade import grade  # noqa: E402
from cudahercules.record import recorder  # noqa: E402
from cudahercules.record.parse import load_plan, plan_from_recording  # noqa: E402
from cudahercules.task.load import load_family, load_task  # noqa: E402
from cudahercules.task.model import WorkloadRole  # noqa: E402

SLOWEST_S = 10
TASK = "kernel/gemm/fp32@general"


class Slow(BaseException):
    """A reader took longer than SLOWEST_S: no promise of any reader allows that."""


@dataclass(frozen=True)
class Reader:
    """``read`` gets an input and says whether it was accepted; it raises only what is a finding. ``share`` of
    all inputs go to this one."""

    name: str
    share: float
    make: Callable[[random.Random], Any]
    read: Callable[[Any], bool]


@dataclass
class Tally:
    inputs: int = 0
    accepted: int = 0
    seconds: float = 0.0
    slowest_s: float = 0.0
    findings: Counter[str] = field(default_factory=Counter)


def _accepts(read: Callable[[], Any], *refusals: type[Exception]) -> bool:
    try:
        read()
    except refusals:
        return False
    return True


def plans() -> Iterator[Reader]:
    """Saved plans, and raw recordings, of one candidate that uses most of what a plan can hold."""
    rich = read_cases("hostile.cases")
    table = bench(COMMON, (("rich", rich["rich"][0]),), rich["prepare"][0])
    captured: list[tuple] = []

    def kept(*arguments):
        captured.append(arguments)
        return plan_from_recording(*arguments)

    recorder.plan_from_recording, original = kept, recorder.plan_from_recording
    try:
        plan = table.plan("rich")
    finally:
        recorder.plan_from_recording = original
    good = json.loads(plan.canonical_json())
    lines, blob, *rest = captured[0]
    raw = [json.loads(line) for line in lines]

    def plan_text(chance: random.Random) -> bytes:
        if chance.random() < 0.1:
            return damaged(json.dumps(good).encode(), chance)
        return json.dumps(mutated(good, chance)).encode()

    def read_plan(text: bytes) -> bool:
        def read() -> None:
            loaded = load_plan(text, table.artifact, table.task)
            if load_plan(loaded.canonical_json(), table.artifact, table.task) != loaded:
                raise AssertionError("an accepted plan does not come back from its own JSON")

        return _accepts(read, PlanError)

    def recording(chance: random.Random) -> tuple[list[bytes], bytes]:
        if chance.random() < 0.1:
            return damaged(b"\n".join(lines), chance).splitlines(), blob
        data = damaged(blob, chance) if chance.random() < 0.1 else blob
        return [json.dumps(line).encode() for line in mutated(raw, chance)], data

    def read_recording(given: tuple[list[bytes], bytes]) -> bool:
        return _accepts(lambda: plan_from_recording(*given, *rest), PlanError)

    yield Reader("plan", 0.48, plan_text, read_plan)
    yield Reader("recording", 0.48, recording, read_recording)


def families(scratch: Path) -> Iterator[Reader]:
    """``task.yaml`` of the families."""
    shutil.copytree(load_task(TASK).directory.parents[1], scratch / "tasks")
    files = sorted((scratch / "tasks").glob("*/*/task.yaml"))
    trees = [(file.parent, file.read_bytes(), yaml.safe_load(file.read_text())) for file in files]

    def make(chance: random.Random) -> tuple[Path, bytes]:
        place, text, tree = chance.choice(trees)
        if chance.random() < 0.1:
            return place, damaged(text, chance)
        return place, yaml.safe_dump(mutated(tree, chance), sort_keys=False, allow_unicode=True).encode()

    def read(given: tuple[Path, bytes]) -> bool:
        place, text = given
        (place / "task.yaml").write_bytes(text)
        return _accepts(lambda: load_family(place), UsageError)

    yield Reader("family", 0.01, make, read)


def verdicts(scratch: Path) -> Iterator[Reader]:
    """Evidence directories whose sums are right although their content is not, and files of verdicts."""
    task = load_task(TASK)
    place = scratch / "evidence"
    grade(task, task.directory / "naive.cu", "cpu", evidence=place, roles=(WorkloadRole.SMOKE,))
    good = json.loads((place / "verdict.json").read_text())
    manifest = json.loads((place / "manifest.json").read_text())
    file = scratch / "verdicts.jsonl"

    def make_evidence(chance: random.Random) -> tuple[bytes, bytes]:
        verdict, sums = json.dumps(good).encode(), manifest
        if chance.random() < 0.1:
            verdict = damaged(verdict, chance)
        elif chance.random() < 0.9:
            verdict = json.dumps(mutated(good, chance)).encode()
        if chance.random() < 0.1:
            sums = mutated(manifest, chance)
        return verdict, json.dumps(sums).encode()

    def read_evidence(given: tuple[bytes, bytes]) -> bool:
        verdict, sums = given
        (place / "verdict.json").write_bytes(verdict)
        tree = json.loads(sums)
        if (
            isinstance(tree, dict)
            and isinstance(tree.get("sha256"), dict)
            and "verdict.json" in tree["sha256"]
        ):
            tree["sha256"]["verdict.json"] = file_digest(place / "verdict.json")
        (place / "manifest.json").write_text(json.dumps(tree))
        found: list[tuple[str, ...]] = []
        return _accepts(lambda: found.append(evidence.verify(place)), UsageError) and not found[0]

    def make_file(chance: random.Random) -> bytes:
        several = [
            mutated(good, chance) if chance.random() < 0.3 else good for _ in range(chance.randrange(1, 4))
        ]
        text = b"".join(json.dumps(v).encode() + b"\n" for v in several)
        return damaged(text, chance) if chance.random() < 0.2 else text

    def read_file(text: bytes) -> bool:
        file.write_bytes(text)
        return _accepts(lambda: finished(file, task), UsageError)

    yield Reader("evidence", 0.01, make_evidence, read_evidence)
    yield Reader("file of verdicts", 0.02, make_file, read_file)


@contextmanager
def _deadline() -> Iterator[None]:
    def late(_number: int, _frame: Any) -> None:
        raise Slow

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, SLOWEST_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def try_one(reader: Reader, tally: Tally, given: Any) -> None:
    """Let ``reader`` read ``given`` and count what came of it."""
    start = time.perf_counter()
    try:
        with _deadline():
            tally.accepted += reader.read(given)
    except Slow:
        tally.findings[f"took longer than {SLOWEST_S} s: {str(given)[:300]}"] += 1
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(at.filename).name}:{at.lineno}"
        tally.findings[f"{type(error).__name__} at {where}: {str(error)[:200]}"] += 1
    seconds = time.perf_counter() - start
    tally.inputs += 1
    tally.seconds += seconds
    tally.slowest_s = max(tally.slowest_s, seconds)


def fuzz(inputs: int, seed: int, scratch: Path, most_s: float = 1e9) -> dict[str, Tally]:
    """``inputs`` inputs, shared among the readers; fewer if ``most_s`` seconds pass before."""
    readers = [*plans(), *families(scratch), *verdicts(scratch)]
    tallies = {reader.name: Tally() for reader in readers}
    chance = random.Random(seed)
    end = time.monotonic() + most_s
    shares = [reader.share for reader in readers]
    for _ in range(inputs):
        (reader,) = chance.choices(readers, shares)
        try_one(reader, tallies[reader.name], reader.make(chance))
        if time.monotonic() > end:
            break
    return tallies


def _worker(inputs: int, seed: int, most_s: float) -> dict[str, Tally]:
    with tempfile.TemporaryDirectory(prefix="fuzz.") as scratch:
        return fuzz(inputs, seed, Path(scratch), most_s)


def together(parts: Iterable[dict[str, Tally]]) -> dict[str, Tally]:
    """What several workers found, as one."""
    total: dict[str, Tally] = {}
    for part in parts:
        for name, tally in part.items():
            whole = total.setdefault(name, Tally())
            whole.inputs += tally.inputs
            whole.accepted += tally.accepted
            whole.seconds += tally.seconds
            whole.slowest_s = max(whole.slowest_s, tally.slowest_s)
            whole.findings += tally.findings
    return total


def row(tally: Tally) -> dict[str, Any]:
    return {
        "inputs": tally.inputs,
        "accepted": round(tally.accepted / max(1, tally.inputs), 4),
        "ms_each": round(1000 * tally.seconds / max(1, tally.inputs), 2),
        "slowest_s": round(tally.slowest_s, 3),
        "findings": dict(tally.findings.most_common(20)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--most-seconds", type=float, default=1e9)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    start = time.monotonic()
    share = -(-options.inputs // options.workers)
    seeds = range(options.seed, options.seed + options.workers)
    with ProcessPoolExecutor(options.workers) as pool:
        tallies = together(pool.map(_worker, repeat(share), seeds, repeat(options.most_seconds)))
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    result = {
        "what": "fuzzing of what reads strangers' data; accepted is a share of the inputs",
        "inputs": sum(t.inputs for t in tallies.values()),
        "asked_for": options.inputs,
        "seeds": list(seeds),
        "readers": {name: row(tally) for name, tally in tallies.items()},
        "seconds": round(time.monotonic() - start),
        "machine": f"{system}, {os.cpu_count()} processors",
        "python": platform.python_version(),
        "date": datetime.now(UTC).date().isoformat(),
    }
    print(json.dumps(result, indent=1))
    if options.save:
        options.save.parent.mkdir(parents=True, exist_ok=True)
        options.save.write_text(json.dumps(result, indent=1) + "\n")
    if any(t.findings for t in tallies.values()):
        raise SystemExit("there are findings")


if __name__ == "__main__":
    main()
