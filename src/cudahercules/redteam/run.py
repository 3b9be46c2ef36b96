"""Try cases on a judge and compare what comes out with what must."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import ValidationError

from cudahercules import __version__
from cudahercules.build.candidate import load_candidate
from cudahercules.build.compile import build
from cudahercules.errors import HerculesError, MachineError, UsageError
from cudahercules.judge.grade import grade
from cudahercules.judge.verdict import Correct, Verdict
from cudahercules.redteam.corpus import REFUSED, Case, Device, Expected
from cudahercules.task.model import Model

LIMIT_S = 10.0
"""Wall seconds for one workload, as for the candidates that ship with families: endless kernels are cases."""
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

    On a CPU ``workers`` cases (default: one a processor) run at a time. On a GPU they run one after the
    other, while candidates that come later are compiled beside. Rows in the file ``resume`` that were as
    expected, of the same case and version, are yielded without a new run; new rows are added to it. Raises
    MachineError after GIVE_UP_AFTER machine errors in a row, UsageError for a file that holds no rows.
    """
    known = _finished(resume, device) if resume is not None else {}
    waiting = []
    for case in cases:
        row = known.get((case.name, case.sha256))
        if row is None:
            waiting.append(case)
        else:
            yield row
    cores = len(os.sched_getaffinity(0))
    at_a_time = 1 if device == "gpu" else workers or cores
    failures = 0
    with _compiling_ahead(waiting if device == "gpu" else (), workers or max(1, cores // 4)):
        for number, row in enumerate(_rows(waiting, device, at_a_time), 1):
            notify(f"{number} of {len(waiting)} cases tried")
            failures = failures + 1 if row.got == "machine_error" else 0
            if failures == GIVE_UP_AFTER:
                raise MachineError(row.message)
            if resume is not None:
                _append(resume, row)
            yield row


def _rows(cases: Sequence[Case], device: Device, at_a_time: int) -> Iterator[Row]:
    pool = ThreadPoolExecutor(at_a_time, "redteam")
    try:
        futures: list[Future[Row]] = [pool.submit(try_case, case, device) for case in cases]
        for future in as_completed(futures):
            yield future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def try_case(case: Case, device: Device) -> Row:
    """One case on one judge."""
    start = time.monotonic()
    verdict: Verdict | None = None
    got: str
    with tempfile.TemporaryDirectory(prefix="hercules-redteam-") as made:
        try:
            verdict = grade(case.task, case.candidate(Path(made)), device, limit_s=LIMIT_S)
            got, message = str(verdict.kind), getattr(verdict, "message", "")
        except UsageError as error:
            got, message = REFUSED, str(error)
        except MachineError as error:
            got, message = "machine_error", str(error)
        message = message.replace(made, "…")
    expected = case.expected[device]
    workload = getattr(verdict, "workload", "")
    speed, ratio = _speed(verdict)
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
        ratio=ratio,
        problem=difference(expected, got, message, workload, speed),
        machine=_machine(verdict),
        seconds=round(time.monotonic() - start, 2),
    )


def _machine(verdict: Verdict | None) -> str:
    if verdict is None:
        return ""
    mark = verdict.fingerprint
    driver = f", driver {mark.driver}" if mark.driver else ""
    return f"{mark.device}{driver}; {mark.compiler}, sm_{mark.architecture}; {mark.sandbox}"


def _speed(verdict: Verdict | None) -> tuple[str, float | None]:
    if isinstance(verdict, Correct) and verdict.timing.kind == "timed":
        return verdict.timing.outcome, verdict.timing.ratio
    return "", None


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


# --- compiling ahead of the card -------------------------------------------------------------------


@contextmanager
def _compiling_ahead(cases: Sequence[Case], workers: int) -> Iterator[None]:
    """Compile candidates into the cache while the card works on others; what fails here fails again later."""
    if not cases:
        yield
        return
    from cudahercules.judge.batch import give_way

    pool = ThreadPoolExecutor(workers, "compile", initializer=give_way)
    try:
        for case in cases:
            pool.submit(_compile, case)
        yield
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _compile(case: Case) -> None:
    from cudahercules.judge.device import find_gpu

    with tempfile.TemporaryDirectory(prefix="hercules-redteam-") as made, suppress(HerculesError):
        architecture = case.task.target.architecture or find_gpu().architecture
        build(load_candidate(case.candidate(Path(made))), case.task, architecture)


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
