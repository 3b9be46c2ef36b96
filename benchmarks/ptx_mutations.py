"""Structure-aware mutations of real PTX: every one must be refused with a line or run to a verdict.

Three depths: parser, check and emitter for all mutants; g++ over every STRIDE-th of those that were accepted
(the check must refuse what does not compile); and a sample that is compiled, launched in the confined
emulator, or graded by the whole CPU judge. Same seed and same sources, same mutants. A finding is an
exception that is no typed error, a translation that does not compile, a host program that dies or does not
end, a verdict that blames the judge; the exit status is 1 if there is one.

    nice python benchmarks/ptx_mutations.py [--count 100000] [--json results/ptx_mutations.json]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "emulator"), str(ROOT / "src")]

import mutation_judge  # noqa: E402
import mutation_native as on_cpu  # noqa: E402
from mutation_check import Made, Tally, run  # noqa: E402
from mutation_kinds import KINDS  # noqa: E402
from mutation_seeds import experts, own_kernels, units_of  # noqa: E402
from mutation_units import Statement, Unit  # noqa: E402

OUTCOMES = ("accepted", "refused", "unreadable", "finding")
STRIDE = 8
FILE_OF = 500
"""Translations that g++ reads as one file."""
MODULE_OF = 60
"""Mutants that are compiled as one module and launched one by one."""


class Sample:
    """Accepted kernels gathered by target until they fill a module, which is then run."""

    def __init__(self, most: int, seed: int):
        self.left, self.seed = most, seed
        self.waiting: dict[Statement, list[Made]] = {}
        self.ended: list[on_cpu.Ended] = []

    def add(self, made: Made) -> None:
        if self.left <= 0 or ".entry" not in made.unit.signature or made.mutant[0] != made.unit.header:
            return
        group = self.waiting.setdefault(made.unit.header, [])
        group.append(made)
        self.left -= 1
        if len(group) == MODULE_OF:
            self.run(self.waiting.pop(made.unit.header))

    def run(self, group: Sequence[Made]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.ended += on_cpu.run_together(group, self.seed, Path(folder))

    def finish(self) -> None:
        for group in self.waiting.values():
            self.run(group)
        self.waiting.clear()


def mutated(units: Sequence[Unit], options: argparse.Namespace) -> dict[str, Any]:
    """All mutants through the first depth, samples of them through the others."""
    tally, sample = Tally(), Sample(options.run, options.seed)
    compiled: list[Made] = []
    read, findings, seconds, accepted = 0, [], 0.0, 0
    every = max(1, options.count // max(1, 3 * options.run))
    for made, took in run(units, options.seed, options.count):
        tally.add(made)
        seconds += took
        tally.slowest_s = max(tally.slowest_s, took)
        if made.outcome == "finding":
            findings.append(f"{made.number} {made.kind}: {made.detail}")
        if made.outcome == "accepted":
            accepted += 1
            if accepted % STRIDE == 0:
                compiled.append(made)
            if accepted % every == 0:
                sample.add(made)
        if len(compiled) == FILE_OF or (made.number + 1 == options.count and compiled):
            read += len(compiled)
            findings += [f"{m.number} {m.kind}: g++: {c}" for m, c in on_cpu.refused_by_compiler(compiled)]
            compiled = []
        if (made.number + 1) % 5000 == 0:
            print(
                f"{made.number + 1} mutants, {len(findings)} findings", *findings[-3:], sep="\n  ", flush=True
            )
    sample.finish()
    findings += [
        f"{e.made.number} {e.made.kind}: {e.outcome}: {e.finding}" for e in sample.ended if e.finding
    ]
    return {
        "kinds": {k: {o: tally.outcomes.get(k, Counter())[o] for o in OUTCOMES} for k in KINDS},
        "accepted_share": round(accepted / options.count, 3),
        "seconds_each": round(seconds / options.count, 5),
        "slowest_s": round(tally.slowest_s, 2),
        "read_by_compiler": read,
        "run_in_emulator": dict(on_cpu.counted(sample.ended).most_common()),
        "findings": findings,
    }


def graded(count: int, seed: int) -> dict[str, Any]:
    """Mutants of tuned examples before the whole CPU judge."""
    verdicts: Counter[str] = Counter()
    findings = []
    with tempfile.TemporaryDirectory() as folder:
        for one in mutation_judge.grade_mutants(seed, count, Path(folder)):
            verdicts[one.verdict] += 1
            if one.finding:
                findings.append(f"{one.example} {one.kind}: {one.verdict}: {one.finding}")
    return {"graded_by_judge": dict(verdicts.most_common()), "findings": findings}


def machine() -> dict[str, Any]:
    model = next(
        (
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)),
        "load_average": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "commit": commit.stdout.strip(),
        "date": date.today().isoformat(),
    }


def table(kinds: dict[str, dict[str, int]]) -> str:
    lines = [f"{'mutation':28}{'mutants':>9}{'accepted':>10}" + "".join(f"{o:>12}" for o in OUTCOMES[1:])]
    total = {o: sum(row[o] for row in kinds.values()) for o in OUTCOMES}
    for kind, row in (*kinds.items(), ("all", total)):
        number = sum(row.values())
        share = f"{100 * row['accepted'] / max(1, number):.1f} %"
        lines.append(f"{kind:28}{number:9}{share:>10}" + "".join(f"{row[o]:12}" for o in OUTCOMES[1:]))
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100_000, help="mutants in all")
    parser.add_argument(
        "--run", type=int, default=1_000, help="accepted ones to run in the emulator, at most"
    )
    parser.add_argument("--judge", type=int, default=40, help="mutants for the whole CPU judge")
    parser.add_argument("--seed", type=int, default=20260101)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    start = time.monotonic()
    sources = [*own_kernels(), *experts()]
    units = units_of(sources, options.seed)
    print(f"{len(sources)} files of PTX in {len(units)} units", flush=True)
    result = mutated(units, options)
    judged = graded(options.judge, options.seed)
    result["findings"] += judged.pop("findings")
    result = {
        "machine": machine(),
        "seed": options.seed,
        "sources": [s.seed for s in sources],
        "units": len(units),
        "mutants": options.count,
        "wall_s": round(time.monotonic() - start),
        **result,
        **judged,
    }
    print(table(result["kinds"]))
    print(f"g++ read {result['read_by_compiler']} translations; in the emulator: {result['run_in_emulator']}")
    print(f"judge: {result['graded_by_judge']}")
    print(f"{len(result['findings'])} findings", *result["findings"], sep="\n  ")
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return 1 if result["findings"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
