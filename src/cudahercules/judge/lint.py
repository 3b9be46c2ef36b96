"""``lint``: a task proves itself on this device.

Its honest candidates must pass, its mutants must fail as it says, and its tolerance must accept the
best answer that can be given with a margin of two while it rejects every answer made wrong by machine
(:mod:`cudahercules.judge.answers`). Experts are ranked and checked on a GPU only
(:mod:`cudahercules.judge.lint_gpu`).
"""

from __future__ import annotations

import datetime
import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field

from cudahercules.errors import UsageError
from cudahercules.judge.answers import CORRUPTIONS, Answer, store
from cudahercules.judge.bundled import Graded, bundled, grade_bundled
from cudahercules.judge.checks import check_output
from cudahercules.judge.grade import choose_device
from cudahercules.judge.operands import reference_of
from cudahercules.judge.protocol import CHECKED_ROLES, new_seed, sample_seed
from cudahercules.judge.verdict import OutputCheck
from cudahercules.measure.panel import Standing, TaskPanel
from cudahercules.task.family_code import only_standard_functions
from cudahercules.task.inputs import generate
from cudahercules.task.load import family_code, family_module, work
from cudahercules.task.model import Model, Task, Workload

MARGIN = 2.0
"""An honest answer's errors must be this many times smaller than the bounds."""


class LintRow(Model):
    """One requirement. ``outcome`` is ok, failed, or not_run (and ``detail`` says why). ``share`` is the
    largest error of what was accepted, as a fraction of its bound."""

    subject: str
    sort: Literal["honest", "mutant", "hostile", "answer", "expert", "mechanical"]
    expected: str
    got: str
    outcome: Literal["ok", "failed", "not_run"]
    detail: str = ""
    seconds: float = 0.0
    share: float | None = None


class LintReport(Model):
    """``content`` is :func:`content_hash` of the task, ``seed`` made the answers by machine (empty: they were
    left out). ``machine`` names the GPU and its driver and ``panel`` is its ranking: neither on a CPU.
    ``seconds`` says where the time went."""

    task: str
    release: str
    content: str = ""
    device: Literal["gpu", "cpu"]
    seed: str
    rows: tuple[LintRow, ...]
    date: str = ""
    machine: str = ""
    panel: TaskPanel | None = None
    seconds: dict[str, float] = Field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return all(row.outcome != "failed" for row in self.rows)


def lint(
    task: Task,
    device: str = "auto",
    *,
    seed: str | None = None,
    workers: int = 2,
    mechanical: bool = False,
    notify: Callable[[str], None] | None = None,
) -> LintReport:
    """Check the task's claims about itself; with ``mechanical`` also that mistakes made by machine in its
    honest solutions are seen (CPU judge). Raises UsageError, TaskError or MachineError like ``grade``."""
    if choose_device(device) == "gpu":
        if mechanical:
            raise UsageError("mistakes made by machine are tried on the CPU judge: add --device cpu")
        (report,) = lint_on_card([task], seed=seed, notify=notify)
        return report
    start = time.monotonic()
    _sound(task)
    seed = seed or new_seed()
    graded = sorted(
        grade_bundled(bundled(task), "cpu", workers=workers, notify=notify),
        key=lambda g: bundled(task).index(g.bundled),
    )
    rows = [candidate_row(g) for g in graded]
    rows += _answer_rows(task, seed)
    rows += _experts_not_run(task)
    if mechanical:
        from cudahercules.judge.mechanical import mechanical_rows

        rows += mechanical_rows(task, workers=workers, notify=notify)
    return LintReport(
        task=task.id,
        release=task.release,
        content=content_hash(task, mechanical),
        device="cpu",
        seed=seed,
        rows=tuple(rows),
        date=datetime.date.today().isoformat(),
        seconds={"all": round(time.monotonic() - start, 2)},
    )


def lint_on_card(
    tasks: Sequence[Task],
    *,
    seed: str | None = None,
    answers: bool = True,
    candidates: bool = True,
    deadline: float = float("inf"),
    notify: Callable[[str], None] | None = None,
) -> Iterator[LintReport]:
    """Each task's report as soon as it is done, until ``deadline`` (of ``time.monotonic``). Candidates are
    graded at their small sizes only. Without ``answers`` those made by machine are left out, without
    ``candidates`` the candidates: any machine's CPU can check them. Raises UsageError, TaskError or
    MachineError."""
    from cudahercules.judge.gpu import find_gpu
    from cudahercules.judge.lint_gpu import SAMPLE_S, START_S, prove_on_card
    from cudahercules.judge.station import Station

    for task in tasks:
        _sound(task)
    with Station(find_gpu(), start_s=START_S, sample_s=SAMPLE_S) as at:
        for proven in prove_on_card(
            tasks,
            at,
            cases=bundled if candidates else lambda _task: (),
            deadline=deadline,
            notify=notify or (lambda _text: None),
        ):
            mine = (seed or new_seed()) if answers else ""
            rows = [candidate_row(g) for g in proven.graded]
            rows += _answer_rows(proven.task, mine) if answers else []
            rows += [_standing_row(s) for s in proven.panel.standings]
            yield LintReport(
                task=proven.task.id,
                release=proven.task.release,
                content=content_hash(proven.task),
                device="gpu",
                seed=mine,
                rows=tuple(rows),
                date=proven.panel.date,
                machine=f"{at.gpu.name}, driver {at.gpu.driver}",
                panel=proven.panel,
                seconds=proven.seconds,
            )


NOT_PROVED = (
    *("directory", "prompt_text", "title", "domain"),
    *("provenance", "opponent_note", "released", "release", "digest"),
)
"""Fields of a task of which ``lint`` says nothing."""


def content_hash(task: Task, mechanical: bool = False) -> str:
    """Sixteen hex digits over what ``lint`` looks at: the task as it is loaded, and the family's code; a mark
    where mistakes were made by machine, too."""
    loaded = task.model_dump_json(exclude=set(NOT_PROVED), exclude_defaults=True)
    total = hashlib.sha256(loaded.encode())
    for path in sorted(p for p in task.directory.rglob("*") if p.suffix in (".cu", ".cuh", ".h", ".py")):
        name = path.relative_to(task.directory)
        if not any(part.startswith((".", "__")) for part in name.parts):
            total.update(f"\0{name.as_posix()}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return total.hexdigest()[:16] + (" mechanical" if mechanical else "")


def _sound(task: Task) -> None:
    """Raises UsageError or TaskError for a family that cannot be proved at all."""
    if not task.candidates:
        raise UsageError(f"{task.id} names no honest candidate, so nothing shows that it can be solved")
    family_module(task)
    only_standard_functions(family_code(task))
    for workload in task.workloads:
        work(task, workload)  # flops() is asked on a GPU only: its mistakes must show here


def candidate_row(graded: Graded) -> LintRow:
    case, verdict = graded.bundled, graded.verdict
    detail = case.reason if graded.as_expected else f"should be {case.expected}: {case.reason}"
    part = _largest_share(verdict.checks) if verdict.kind == "correct" else None
    if part is not None and case.expected == "correct":
        detail = f"errors at most {part:.0%} of their bounds"
    elif not graded.as_expected and verdict.kind != "correct":
        detail = f"should be {case.expected}, but: {verdict.message}"
    return LintRow(
        subject=case.file,
        sort=case.sort,
        expected=case.expected,
        got=verdict.kind,
        outcome="ok" if graded.as_expected else "failed",
        detail=detail,
        seconds=round(graded.seconds, 2),
        share=part if part is None else round(part, 4),
    )


def _largest_share(checks) -> float:
    return max((share(o) for row in checks for o in row.outputs), default=0.0)


def share(check: OutputCheck) -> float:
    """The largest error of an output as a fraction of its bound; 0 for exact outputs."""
    pairs = (
        (check.l2, check.l2_bound),
        (check.row_l2, check.row_l2_bound),
        (check.element, check.element_bound),
    )
    return max((error / bound for error, bound in pairs if bound > 0), default=0.0)


# --- answers made by machine ---------------------------------------------------------------------


@dataclass
class _Tally:
    """How one corruption of one output fared over the workloads to which it applies."""

    applies: int = 0
    rejected: int = 0
    accepted_in: list[str] = field(default_factory=list)


def _answer_rows(task: Task, seed: str) -> list[LintRow]:
    start = time.monotonic()
    tallies = {(t.name, name): _Tally() for t in task.outputs for name in CORRUPTIONS}
    largest = {t.name: (0.0, "") for t in task.outputs}
    for answer in _answers(task, seed):
        tolerance, name = task.tolerance[answer.tensor.name], answer.workload.name
        honest = check_output(answer.tensor, tolerance, answer.stored, answer.exact)
        part = share(honest) if isinstance(honest, OutputCheck) else float("inf")
        largest[answer.tensor.name] = max(largest[answer.tensor.name], (part, name))
        for corruption, make in CORRUPTIONS.items():
            wrong = make(answer)
            if wrong is None or wrong.tobytes() == answer.stored.tobytes():
                continue  # it does not apply, or it is the right answer here
            tally = tallies[answer.tensor.name, corruption]
            tally.applies += 1
            if isinstance(check_output(answer.tensor, tolerance, wrong, answer.exact), OutputCheck):
                tally.accepted_in.append(name)
            else:
                tally.rejected += 1
    rows = [_honest_row(output, *worst) for output, worst in largest.items()]
    rows += [_tally_row(output, name, tally) for (output, name), tally in tallies.items()]
    return [rows[0].model_copy(update={"seconds": round(time.monotonic() - start, 2)}), *rows[1:]]


def _answers(task: Task, seed: str) -> Iterator[Answer]:
    """The reference's answers to the smoke and check workloads, one output at a time."""
    family = family_module(task)
    for workload in task.workloads_of(*CHECKED_ROLES):
        values = _values(task, workload, seed)
        reference = reference_of(family, task, workload, values)
        for tensor in task.outputs:
            exact = reference[tensor.name]
            yield Answer(task, family, workload, tensor, values, exact, store(tensor, exact))


def _values(task: Task, workload: Workload, seed: str):
    number = sample_seed(seed, workload.name)
    return {t.name: generate(task, t, workload, number) for t in task.inputs}


def _honest_row(output: str, part: float, workload: str) -> LintRow:
    good = part <= 1 / MARGIN
    return LintRow(
        subject=f"{output}: the reference, rounded",
        sort="answer",
        expected="accepted",
        got="accepted" if part <= 1 else "rejected",
        outcome="ok" if good else "failed",
        detail=f"errors at most {part:.1%} of their bounds"
        + ("" if good else f" (in {workload}): the margin must be {MARGIN:g}"),
        share=round(part, 4),
    )


def _tally_row(output: str, name: str, tally: _Tally) -> LintRow:
    subject = f"{output}: {name}"
    if not tally.applies:
        return LintRow(
            subject=subject,
            sort="answer",
            expected="rejected",
            got="",
            outcome="not_run",
            detail="does not apply to this task",
        )
    accepted = f"; accepted in {', '.join(tally.accepted_in[:4])}" if tally.accepted_in else ""
    return LintRow(
        subject=subject,
        sort="answer",
        expected="rejected",
        got="rejected" if tally.rejected else "accepted",
        outcome="ok" if tally.rejected else "failed",
        detail=f"in {tally.rejected} of {tally.applies} workloads{accepted}",
    )


def _standing_row(standing: Standing) -> LintRow:
    error = standing.largest_error or 0.0
    if standing.outcome == "ranked":
        detail = f"{standing.microseconds:.1f} us; errors at most {error:.1%} of their bounds"
        outcome: Literal["ok", "failed", "not_run"] = "ok" if error <= 1 / MARGIN else "failed"
        detail += "" if outcome == "ok" else f": the margin must be {MARGIN:g}"
    else:
        outcome = "not_run" if standing.outcome in ("missing", "declined") else "failed"
        detail = standing.why
    return LintRow(
        subject=f"{standing.expert} on {standing.workload}",
        sort="expert",
        expected="accepted",
        got={"ranked": "accepted", "wrong": "rejected"}.get(standing.outcome, ""),
        outcome=outcome,
        detail=detail,
        seconds=standing.seconds,
        share=standing.largest_error,
    )


def _experts_not_run(task: Task) -> list[LintRow]:
    return [
        LintRow(
            subject=e.name,
            sort="expert",
            expected="accepted",
            got="",
            outcome="not_run",
            detail=f"{e.title}: experts run on a GPU",
        )
        for e in task.experts
    ]
