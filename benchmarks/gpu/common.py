"""What the evidence scripts share: tasks of their own, plans of two sources against each other, a
state file that a later call takes up again, and short tables."""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
os.environ["HERCULES_TASKS"] = os.pathsep.join(
    p for p in (str(HERE / "tasks"), os.environ.get("HERCULES_TASKS", "")) if p
)
sys.path.insert(0, str(HERE.parents[1] / "src"))

from cudahercules.build.artifact import Artifact  # noqa: E402
from cudahercules.build.candidate import load_candidate  # noqa: E402
from cudahercules.build.compile import BuildFailure, build  # noqa: E402
from cudahercules.judge import paired  # noqa: E402
from cudahercules.judge.device import find_gpu  # noqa: E402
from cudahercules.judge.station import Lane, Lanes, Station  # noqa: E402
from cudahercules.judge.verdict import WrongOutput  # noqa: E402
from cudahercules.record.plan import LaunchPlan  # noqa: E402
from cudahercules.replay.interface import Contestant, Sample, start_replay, warm_process  # noqa: E402
from cudahercules.task.model import Task, Workload  # noqa: E402


class Budget:
    """Seconds that a script may still spend; a trial starts only if there is room for another."""

    def __init__(self, seconds: float):
        self.end = time.monotonic() + seconds
        self._longest = 0.0

    @property
    def left(self) -> float:
        return self.end - time.monotonic()

    def allows(self, estimate: float = 0.0) -> bool:
        return self.left > max(estimate, 1.5 * self._longest)

    def timed(self, function: Callable[[], Any]) -> Any:
        start = time.monotonic()
        try:
            return function()
        finally:
            self._longest = max(self._longest, time.monotonic() - start)


class State:
    """Results by key in ``<out>/<name>.json``; what ``earlier`` holds is not measured again."""

    def __init__(self, name: str, out: Path, earlier: Path | None = None):
        self.path = out / f"{name}.json"
        self.data: dict[str, Any] = {}
        for directory in (earlier, out):
            if directory is not None and (directory / f"{name}.json").is_file():
                self.data.update(json.loads((directory / f"{name}.json").read_text())["results"])

    def __contains__(self, key: str) -> bool:
        return key in self.data

    def put(self, key: str, value: Any) -> None:
        self.data[key] = value
        self.save()

    def save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"environment": environment(), "results": self.data}, indent=1)
        private = self.path.with_suffix(".part")
        private.write_text(text + "\n")
        private.replace(self.path)


_environment: dict[str, Any] = {}


def environment() -> dict[str, Any]:
    """GPU, driver, versions and date, read once."""
    if not _environment:
        import datetime

        from cudahercules import __version__
        from cudahercules.build.toolchain import find_toolchain
        from cudahercules.errors import MachineError
        from cudahercules.measure.counters import Card

        gpu = find_gpu()
        try:
            card = Card(gpu.index).describe()
        except MachineError as error:
            card = {"unavailable": str(error)}
        _environment.update(
            gpu=gpu.name,
            cuda_driver=gpu.driver,
            card=card,
            compiler=str(find_toolchain()),
            harness=__version__,
            python=platform.python_version(),
            processors=os.cpu_count(),
            date=datetime.date.today().isoformat(),
        )
    return _environment


def built(task: Task, source: Path, at: Station, define: str = "") -> Artifact:
    """The artifact of ``source``, with ``#define <define>`` before its first line if given."""
    if define:
        with tempfile.TemporaryDirectory() as directory:
            changed = Path(directory) / source.name
            changed.write_text(f"#define {define}\n{source.read_text()}")
            candidate = load_candidate(changed)
    else:
        candidate = load_candidate(source)
    artifact = build(candidate, task, task.target.architecture or at.gpu.architecture)
    if isinstance(artifact, BuildFailure):
        raise SystemExit(f"{source} does not build: {artifact.message}")
    return artifact


class Entry:
    """One source as a contestant: artifact, plan and processes of its own."""

    def __init__(self, at: Station, task: Task, workload: Workload, artifact: Artifact):
        self.at, self.task, self.workload, self.artifact = at, task, workload, artifact
        self.plan: LaunchPlan = at.record_here(artifact, task, workload)

    def start(self, lanes: Lanes) -> Contestant:
        return lanes.open(
            lambda process: start_replay(
                self.plan, self.artifact, self.task, self.workload, self.at.gpu.index, process=process
            )
        )


class PlanSides:
    """Two plans of one workload as candidate and expert. The processes serve many trials; every
    instance of every trial lies on fresh memory."""

    def __init__(self, at: Station):
        self.lanes = {
            side: Lanes([Lane(warm_process("candidate", at.gpu.index)) for _ in range(2)])
            for side in ("candidate", "expert")
        }
        self.entries: dict[str, Entry] = {}

    def play(self, candidate: Entry, expert: Entry) -> PlanSides:
        self.entries = {"candidate": candidate, "expert": expert}
        return self

    def candidate(self) -> Contestant:
        return self.entries["candidate"].start(self.lanes["candidate"])

    def expert(self) -> Contestant:
        return self.entries["expert"].start(self.lanes["expert"])

    def close(self) -> None:
        for lanes in self.lanes.values():
            lanes.close()


class Checker:
    """Checks the kept outputs as a grading does."""

    def __init__(self, at: Station, task: Task, workload: Workload):
        self.at, self.task, self.workload = at, task, workload
        self.waiting: list[Any] = []

    def take(self, contestant: Contestant, sample: Sample) -> None:
        self.waiting.append(self.at.answers.copy(self.task, self.workload, contestant, sample))

    def judge(self) -> None:
        while self.waiting:
            result = self.at.answers.check(self.task, self.workload, self.waiting.pop())
            if isinstance(result, WrongOutput):
                raise SystemExit(f"{self.task.id} {self.workload.name}: {result.message}")


def trial(
    at: Station, sides: PlanSides, task: Task, workload: Workload, number: int, seed: int
) -> dict[str, Any]:
    """One whole paired measurement as a row; an invalid one says why."""
    from cudahercules.judge.protocol import sample_seed

    start = time.monotonic()
    try:
        m = paired.measure(
            sides,
            Checker(at, task, workload),
            at.counters,
            lambda k: sample_seed(f"evidence {seed} {number}", workload.name, k),
            sample_seed(f"evidence secret {seed} {number}", workload.name) >> 1,
        )
    except paired.InvalidMeasurement as error:
        return {"outcome": "invalid", "why": str(error), "seconds": round(time.monotonic() - start, 3)}
    return summary(m, time.monotonic() - start)


def summary(m: paired.Measured, seconds: float) -> dict[str, Any]:
    """The figures of one measurement that the tables and the archive need."""
    per_instance = [
        round(float(r), 5) for r in m.samples.log_ratios.reshape(m.samples.instances, -1).mean(axis=1)
    ]
    readings = [b.after for b in m.blocks]
    clocks = [r.sm_clock_mhz for r in readings if r.sm_clock_mhz is not None]
    powers = [r.power_w for r in readings if r.power_w is not None]
    return {
        "outcome": m.outcome,
        "ratio": round(m.estimate.ratio, 5),
        "low": round(m.estimate.low, 5),
        "high": round(m.estimate.high, 5),
        "half_width": round(m.estimate.half_width, 5),
        "looks": m.looks,
        "instances": m.samples.instances,
        "pairs": m.samples.pairs,
        "design": m.design.name,
        "candidate_us": round(m.candidate_us, 2),
        "expert_us": round(m.expert_us, 2),
        "warm_us": [round(m.warm_candidate_us or 0, 2), round(m.warm_expert_us or 0, 2)],
        "outside_clock": {k: round(v, 4) for k, v in m.outside_clock.items()},
        "instance_log_ratios": per_instance,
        "clock_mhz": [min(clocks), max(clocks)] if clocks else [],
        "power_w": [round(min(powers)), round(max(powers))] if powers else [],
        "throttle_ns": m.throttle_ns,
        "repeated": m.repeated,
        "flags": m.flags,
        "seconds": round(seconds, 3),
    }


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under a title, columns aligned."""
    cells = [[str(c) for c in row] for row in (header, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    print(f"\n{title}")
    for row in cells:
        print("  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip())
    sys.stdout.flush()
