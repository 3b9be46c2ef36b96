"""What the evidence scripts share: tasks of their own, plans of two sources against each other, a
state file that a later call takes up again, and short tables."""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
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
from cudahercules.judge.lanes import Lane, Lanes  # noqa: E402
from cudahercules.judge.station import Station  # noqa: E402
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
        """Whether a step of ``estimate`` seconds fits (or one like the longest so far)."""
        return self.left > max(estimate, 1.2 * self._longest)

    def timed(self, function: Callable[[], Any]) -> Any:
        start = time.monotonic()
        try:
            return function()
        finally:
            self._longest = max(self._longest, time.monotonic() - start)


@dataclass
class Section:
    """What a section's ``run`` is given. ``complete`` is what it says when nothing is left to do."""

    name: str
    out: Path
    budget: Budget
    rehearsal: bool = False
    earlier: Path | None = None
    complete: bool = False

    @cached_property
    def state(self) -> State:
        return State(self.name, self.out, self.earlier)

    @cached_property
    def at(self) -> Station:
        """The station, made when it is first wanted: a grading in a process of its own must not find
        our contexts on the card."""
        return Station(find_gpu())

    def close(self) -> None:
        if "at" in self.__dict__:
            self.at.close()

    def attempt(self, key: str, function: Callable[[], dict[str, Any] | None]) -> dict[str, Any] | None:
        """The result under ``key``: known already, or now made and saved. A failure is a result, too:
        its last line is kept, its traceback goes to the log, and the section goes on."""
        if key in self.state:
            return self.state.data[key]
        try:
            result = self.budget.timed(function)
        except (Exception, SystemExit) as error:
            print(f"{self.name}: {key} failed", flush=True)
            traceback.print_exc()
            result = {"failed": f"{type(error).__name__}: {error}"[:400]}
        if result is not None:
            self.state.put(key, result)
        return result


class State:
    """Results by key in ``<out>/<name>.json``, a line each; what ``earlier`` holds and did not fail
    is not measured again."""

    def __init__(self, name: str, out: Path, earlier: Path | None = None):
        self.path = out / f"{name}.json"
        self.data: dict[str, Any] = {}
        self._lock = threading.Lock()
        for directory in (earlier, out):
            path = None if directory is None else directory / f"{name}.json"
            if path is not None and path.is_file():
                known = json.loads(path.read_text())["results"]
                self.data.update({k: v for k, v in known.items() if "failed" not in v})

    def __contains__(self, key: str) -> bool:
        return key in self.data

    def put(self, key: str, value: Any) -> None:
        with self._lock:
            self.data[key] = value
            self.save()

    def save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        rows = ",\n".join(f"{json.dumps(k)}: {json.dumps(v, default=str)}" for k, v in self.data.items())
        text = f'{{"environment": {json.dumps(environment(), default=str)},\n"results": {{\n{rows}\n}}}}\n'
        private = self.path.with_suffix(".part")
        private.write_text(text)
        private.replace(self.path)


_environment: dict[str, Any] = {}


def environment() -> dict[str, Any]:
    """GPU, driver, versions and date, read once. What cannot be read is said, not raised."""
    if not _environment:
        import datetime

        from cudahercules import __version__
        from cudahercules.build.toolchain import find_toolchain
        from cudahercules.measure.counters import Card

        def known(read: Callable[[], Any]) -> Any:
            try:
                return read()
            except Exception as error:
                return f"unavailable: {error}"[:200]

        _environment.update(
            gpu=known(lambda: find_gpu().name),
            cuda_driver=known(lambda: find_gpu().driver),
            card=known(lambda: Card(find_gpu().bus).describe()),
            compiler=known(lambda: find_toolchain().title),
            harness=__version__,
            python=platform.python_version(),
            processors=os.cpu_count(),
            date=datetime.date.today().isoformat(),
        )
    return _environment


def defined(source: Path, define: str, directory: Path) -> Path:
    """``source`` with ``#define <define>`` before its first line, in ``directory``."""
    changed = directory / source.name
    changed.write_text(f"#define {define}\n{source.read_text()}")
    return changed


def built(task: Task, source: Path, architecture: str, define: str = "") -> Artifact:
    """The artifact of ``source``, with ``#define <define>`` before its first line if given."""
    with tempfile.TemporaryDirectory() as directory:
        candidate = load_candidate(defined(source, define, Path(directory)) if define else source)
    artifact = build(candidate, task, task.target.architecture or architecture)
    if isinstance(artifact, BuildFailure):
        raise RuntimeError(f"{source} does not build: {artifact.message}")
    return artifact


def in_parallel(
    jobs: Iterable[Callable[[], Any]], workers: int | None = None, deadline: float | None = None
) -> list[Exception]:
    """Run ``jobs`` in threads and wait for them until ``deadline`` (of time.monotonic); what failed.
    Jobs that have not begun by then never do."""
    pool = ThreadPoolExecutor(max_workers=workers or os.cpu_count() or 2)
    futures: list[Future[Any]] = [pool.submit(job) for job in jobs]
    failed: list[Exception] = []
    for future in futures:
        try:
            future.result(None if deadline is None else max(0.01, deadline - time.monotonic()))
        except Exception as error:
            failed.append(error)
    pool.shutdown(wait=False, cancel_futures=True)
    return failed


class Entry:
    """One source as a contestant: artifact and plan."""

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
    """A plan as candidate, and a plan or an expert of the panel (by its name) as opponent. The
    processes serve many trials; every instance of every trial lies on fresh memory. Both sides open
    at the same time."""

    def __init__(self, at: Station):
        self.at = at
        self.lanes = {side: self._fresh() for side in ("candidate", "expert")}
        self.pool = ThreadPoolExecutor(max_workers=1)
        self.sides: tuple[Entry, Entry | str] | None = None
        self._coming: Future[Contestant] | None = None

    def _fresh(self) -> Lanes:
        return Lanes([Lane(warm_process("candidate", self.at.gpu.index)) for _ in range(2)])

    def play(self, candidate: Entry, expert: Entry | str) -> PlanSides:
        self.sides = (candidate, expert)
        return self

    def candidate(self) -> Contestant:
        assert self.sides is not None
        entry, opponent = self.sides
        self._coming = self.pool.submit(self._open, entry, opponent)
        try:
            return entry.start(self.lanes["candidate"])
        except BaseException:
            self._coming.exception()  # wait: a lane must not be opened twice at a time
            raise

    def _open(self, entry: Entry, opponent: Entry | str) -> Contestant:
        if isinstance(opponent, str):
            return self.at.open_expert(entry.task, opponent, entry.workload)
        return opponent.start(self.lanes["expert"])

    def expert(self) -> Contestant:
        assert self._coming is not None
        return self._coming.result()

    def renew(self) -> None:
        """New processes after a failure."""
        for lanes in self.lanes.values():
            lanes.close()
        self.lanes = {side: self._fresh() for side in self.lanes}

    def close(self) -> None:
        self.pool.shutdown(wait=False, cancel_futures=True)
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
                raise RuntimeError(f"{self.task.id} {self.workload.name}: {result.message}")


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
    except Exception:
        sides.renew()
        raise
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
