"""``debug``: run one workload of a candidate in the emulator's checking build, say what is wrong."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np

from cudahercules.build.artifact import Artifact
from cudahercules.build.candidate import load_candidate
from cudahercules.emulator.asynchrony import LATE, parsed
from cudahercules.emulator.examine import Examination, examine
from cudahercules.emulator.findings import Finding, UnwrittenOutput
from cudahercules.emulator.outcome import Unsupported
from cudahercules.errors import HerculesError, PlanError
from cudahercules.judge.emulated import Operands
from cudahercules.judge.operands import reference_of
from cudahercules.judge.planning import find_workload, plan_candidate
from cudahercules.judge.protocol import checked_seed, new_seed, sample_seed
from cudahercules.judge.verdict import WrongOutput
from cudahercules.record.plan import LaunchPlan
from cudahercules.task.load import family_module, load_task
from cudahercules.task.model import Model, Task, Tensor, Workload

LIMIT_S = 60.0
REPORT_VERSION: Literal[1] = 1


class NotExamined(HerculesError):
    """The emulator cannot run the candidate (exit code 3)."""

    exit_code = 3


class DebugReport(Model):
    """What was found in one run. ``answer`` says whether the outputs were right (``unknown`` where the run
    did not end), ``wrong`` names the first that was not. ``seconds`` is the checked run's wall time."""

    version: Literal[1] = REPORT_VERSION
    kind: Literal["debug"] = "debug"
    task: str
    candidate: str
    candidate_sha256: str
    workload: str
    dimensions: dict[str, int]
    seed: str
    asynchrony: str
    ending: Literal["completed", "fault", "out_of_fuel"]
    answer: Literal["right", "wrong", "unknown"]
    wrong: WrongOutput | None = None
    findings: tuple[Finding, ...]
    printed: str = ""
    seconds: float

    @property
    def is_clean(self) -> bool:
        """Nothing was found and the answer is right."""
        return not self.findings and self.answer == "right"


def debug(
    task: Task | str,
    path: str | Path,
    workload: str | None = None,
    *,
    asynchrony: str = LATE,
    seed: str | None = None,
    limit_s: float = LIMIT_S,
    notify: Callable[[str], None] | None = None,
) -> DebugReport:
    """Examine the candidate at ``path`` in one workload, the first smoke one by default.

    ``asynchrony``  when asynchronous work takes effect: "eager", "late" or "random:SEED"
    ``seed``        of a grading whose inputs are to be used; else a new one
    ``limit_s``     wall seconds that the checked run may take

    Raises UsageError for what the caller got wrong, NoPlan for a candidate that does not compile or has no
    plan, NotExamined where the emulator does not know an instruction, MachineError for what this machine
    lacks.
    """
    parsed(asynchrony)
    seed = checked_seed(seed) if seed is not None else new_seed()
    notify = notify or (lambda _stage: None)
    task = load_task(task) if isinstance(task, str) else task
    chosen = find_workload(task, workload)
    candidate = load_candidate(Path(path))
    plan, artifact = plan_candidate(task, Path(path), chosen.name, notify=notify)
    operands = Operands.generate(task, chosen, sample_seed(seed, chosen.name))
    contents = operands.contents()
    notify(f"running {chosen.name}, checked")
    started = time.monotonic()
    found = _examined(plan, artifact, contents, limit_s, asynchrony)
    seconds = round(time.monotonic() - started, 3)
    wrong = None
    if found.ending == "completed":
        notify("checking the answer")
        result = operands.check(contents, reference_of(family_module(task), task, chosen, operands.values))
        wrong = result if isinstance(result, WrongOutput) else None
    return DebugReport(
        task=task.id,
        candidate=candidate.name,
        candidate_sha256=candidate.sha256,
        workload=chosen.name,
        dimensions=chosen.dimensions,
        seed=seed,
        asynchrony=asynchrony,
        ending=found.ending,
        answer="unknown" if found.ending != "completed" else "wrong" if wrong else "right",
        wrong=wrong,
        findings=tuple(_with_index(f, task, chosen) for f in found.findings),
        printed=found.printed,
        seconds=seconds,
    )


def _examined(
    plan: LaunchPlan, artifact: Artifact, contents: dict[str, np.ndarray], limit_s: float, asynchrony: str
) -> Examination:
    try:
        found = examine(plan, artifact, contents, limit_s, asynchrony=asynchrony)
    except PlanError as error:
        raise NotExamined(f"the plan cannot be run: {error}") from error
    if isinstance(found, Unsupported):
        first = found.instructions[0]
        place = f" at {first.file}:{first.line}" if first.line else ""
        raise NotExamined(
            f"the emulator does not know `{first.instruction}`{place}, so it cannot examine this candidate"
        )
    return found


def _with_index(finding: Finding, task: Task, workload: Workload) -> Finding:
    """An unwritten output's first byte as an index of the tensor."""
    if not isinstance(finding, UnwrittenOutput):
        return finding
    tensor = next(t for t in task.outputs if t.name == finding.output)
    index = _index(tensor, task, workload, finding.offset)
    text = finding.message + f", which is element {list(index)}" if index else finding.message
    return finding.model_copy(update={"index": index, "message": text})


def _index(tensor: Tensor, task: Task, workload: Workload, offset: int) -> tuple[int, ...]:
    shape = task.shape(tensor, workload)
    order: Literal["C", "F"] = "F" if tensor.layout == "column" else "C"
    return tuple(int(i) for i in np.unravel_index(offset // tensor.dtype.size, shape, order=order))
