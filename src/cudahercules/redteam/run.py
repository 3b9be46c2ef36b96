"""Try cases on a judge and compare what comes out with what must."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path

from pydantic import ValidationError

from cudahercules import __version__
from cudahercules.build.candidate import load_candidate
from cudahercules.errors import HerculesError, MachineError, UsageError
from cudahercules.judge.grade import grade
from cudahercules.judge.verdict import Correct, Verdict
from cudahercules.redteam.corpus import REFUSED, Case, Device, Expected
from cudahercules.task.model import Model

LIMIT_S = 10.0
"""Wall seconds for one workload, as for the candidates that ship with families: endless kernels are cases."""
MACHINE_ERROR = "machine_error"
"""What comes out where this machine lacks something: no verdict, and always a difference."""
GIVE_UP_AFTER = 3
"""So many machine errors in a row are the machine's, not those of a case that provoked one."""


class Row(Model):
    """What came of one case on one device. ``sha256`` is the case's, ``problem`` is "" if all is as it must
    be. ``speed`` is a timed verdict's outcome with its ratio (opponent's time / candidate's time).
    ``machine`` is what judged ("" where there was no verdict): device, driver, compiler, sandbox."""

    case: str
    sha256: str
    harness: str
    device: str
    expected: Expected
    got: str
    message: str = ""
    workload: str = ""
    speed: str = ""
    ratio: float | None = None
    problem: str = ""
    machine: str = ""
    seconds: float = 0.0

    @property
    def as_expected(self) -> bool:
        return not self.problem


def run(
    cases: Sequence[Case],
    device: Device,
    *,
    workers: int | None = None,
    resume: Path | None = None,
    notify: Callable[[str], None] = lambda _text: None,
) -> Iterator[Row]:
    """Grade ``cases`` and yield a row for each as it comes.

    On a CPU ``workers`` cases (default: one a processor) run at a time. On a GPU the cases of one task are a
    batch: ``workers`` threads compile beside the card. Rows in the file ``resume`` that were as expected, of
    the same case and version, are yielded without a new run; new rows are added to it. Raises MachineError
    after GIVE_UP_AFTER machine errors in a row, UsageError for a file that holds no rows.
    """
    known = _finished(resume, device) if resume is not None else {}
    waiting = []
    for case in cases:
        row = known.get((case.name, case.sha256))
        if row is None:
            waiting.append(case)
        else:
            yield row
    failures = 0
    rows = _on_the_card(waiting, workers) if device == "gpu" else _on_this_cpu(waiting, workers)
    for number, row in enumerate(rows, 1):
        notify(f"{number} of {len(waiting)} cases tried")
        failures = failures + 1 if row.got == MACHINE_ERROR else 0
        if failures == GIVE_UP_AFTER:
            raise MachineError(row.message)
        if resume is not None:
            _append(resume, row)
        yield row


def _on_this_cpu(cases: Sequence[Case], workers: int | None) -> Iterator[Row]:
    pool = ThreadPoolExecutor(workers or len(os.sched_getaffinity(0)), "redteam")
    try:
        futures: list[Future[Row]] = [pool.submit(try_case, case) for case in cases]
        for future in as_completed(futures):
            yield future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def try_case(case: Case) -> Row:
    """One case on the CPU judge."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hercules-redteam-") as made:
        try:
            verdict = grade(case.task, case.candidate(Path(made)), "cpu", limit_s=LIMIT_S)
        except (UsageError, MachineError) as error:
            return _without_verdict(case, "cpu", error, made)
    return _row(case, "cpu", verdict, time.monotonic() - start)


def _on_the_card(cases: Sequence[Case], workers: int | None) -> Iterator[Row]:
    """Batches, one a task; a row's seconds are compiling and judging, not the wait for the card."""
    from cudahercules.judge.batch import judge_many_on_gpu
    from cudahercules.judge.gpu import station

    with tempfile.TemporaryDirectory(prefix="hercules-redteam-") as made:
        for task in dict.fromkeys(case.task.id for case in cases):
            batch: list[tuple[Case, Path]] = []
            for case in (c for c in cases if c.task.id == task):
                folder = Path(made) / case.name
                folder.mkdir(parents=True)
                try:
                    path = case.candidate(folder)
                    load_candidate(path)
                except UsageError as error:
                    yield _without_verdict(case, "gpu", error, str(folder))
                else:
                    batch.append((case, path))
            if batch:
                paths = [path for _, path in batch]
                verdicts = judge_many_on_gpu(
                    batch[0][0].task, paths, station(), compilers=workers, limit_s=LIMIT_S
                )
                for number, verdict in verdicts:
                    yield _row(batch[number][0], "gpu", verdict, verdict.seconds.total)


def _without_verdict(case: Case, device: Device, error: HerculesError, made: str) -> Row:
    got = REFUSED if isinstance(error, UsageError) else MACHINE_ERROR
    return _compared(case, device, got, str(error).replace(made, "…"))


def _row(case: Case, device: Device, verdict: Verdict, seconds: float) -> Row:
    timed = verdict.timing if isinstance(verdict, Correct) and verdict.timing.kind == "timed" else None
    row = _compared(
        case,
        device,
        verdict.kind,
        getattr(verdict, "message", ""),
        getattr(verdict, "workload", ""),
        timed.outcome if timed is not None else "",
    )
    ratio = timed.ratio if timed is not None else None
    return row.model_copy(update={"ratio": ratio, "machine": _machine(verdict), "seconds": round(seconds, 2)})


def _compared(case: Case, device: Device, got: str, message: str, workload: str = "", speed: str = "") -> Row:
    expected = case.expected[device]
    return Row(
        case=case.name,
        sha256=case.sha256,
        harness=__version__,
        device=device,
        expected=expected,
        got=got,
        message=message,
        workload=workload,
        speed=speed,
        problem=difference(expected, got, message, workload, speed),
    )


def _machine(verdict: Verdict) -> str:
    mark = verdict.fingerprint
    driver = f", driver {mark.driver}" if mark.driver else ""
    compiler = f"{mark.compiler}, sm_{mark.architecture}; " if mark.compiler else ""
    return f"{mark.device}{driver}; {compiler}{mark.sandbox}"


def difference(expected: Expected, got: str, message: str, workload: str, speed: str) -> str:
    """What is not as it must be, in a few words; "" if nothing."""
    if got not in expected.verdict.split(" or "):
        return f"{got} instead of {expected.verdict}"
    if expected.says and got != "correct" and not re.search(expected.says, message):
        return f"another reason than `{expected.says}`"
    if expected.workload and workload not in expected.workload.split(" or "):
        return f"found in workload {workload} instead of {expected.workload}"
    if expected.speed == "not_faster" and speed == "faster":
        return "faster than the opponent: the attack gained time"
    if expected.speed == "on_par" and speed and speed != "on_par":
        return f"{speed} instead of on_par"
    return ""


# --- the resume file -------------------------------------------------------------------------------


def _finished(path: Path, device: Device) -> dict[tuple[str, str], Row]:
    """Rows of this version and device that were as expected, by case and its SHA-256. A line that was cut
    off at the end is dropped from the file."""
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return {}
    if lines and not lines[-1].endswith(b"\n"):
        lines.pop()
        path.write_bytes(b"".join(lines))
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            rows.append(Row.model_validate_json(line))
        except ValidationError as error:
            raise UsageError(
                f"--resume {path}: line {number} is no row of redteam; name another file"
            ) from error
    usable = (r for r in rows if r.device == device and r.harness == __version__ and r.as_expected)
    return {(r.case, r.sha256): r for r in usable}


def _append(path: Path, row: Row) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(row.model_dump_json() + "\n")
        file.flush()
        os.fsync(file.fileno())
