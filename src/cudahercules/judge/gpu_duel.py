"""One bench workload of one candidate against one opponent: the sides of a paired measurement, and the
inspectors that check the outputs it keeps."""

from __future__ import annotations

import time
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cudahercules.errors import MachineError
from cudahercules.judge import paired
from cudahercules.judge.answers_gpu import KeptAnswer
from cudahercules.judge.protocol import sample_seed
from cudahercules.judge.verdict import Checked, OutputCheck, WrongOutput
from cudahercules.replay.interface import CannotReplay, Contestant, ContestantFault, ContestantHang, Sample
from cudahercules.task.model import Workload

if TYPE_CHECKING:
    from cudahercules.judge.gpu_grading import Grading

ANOTHER_OPPONENT = 1 << 20
"""Numbers of samples set aside for each opponent: no inputs come twice."""


@dataclass
class Inspector:
    """Checks the outputs that a measurement keeps."""

    grading: Grading
    workload: Workload
    waiting: list[KeptAnswer] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    worst: tuple[OutputCheck, ...] = ()

    def take(self, contestant: Contestant, sample: Sample) -> None:
        with self.grading.case.watch.timeline.stage("hand-over"):
            answers = self.grading.at.answers
            self.waiting.append(answers.copy(self.grading.task, self.workload, contestant, sample))

    def judge(self) -> None:
        start = time.monotonic()
        answers = self.grading.at.answers
        with self.grading.case.watch.timeline.stage("reference"):
            while self.waiting:
                answer = self.waiting.pop()
                checks = answers.check(self.grading.task, self.workload, answer)
                if isinstance(checks, WrongOutput):
                    self.grading.reject(self.workload, checks)
                else:
                    self.seeds.append(answer.seed)
                    self.worst = _worse(self.worst, checks)
            answers.close()
        self.grading.case.watch.check += time.monotonic() - start

    def row(self, seconds: float) -> Checked:
        return self.grading.checked_row(self.workload, self.seeds, self.worst, seconds)


def _worse(known: tuple[OutputCheck, ...], new: tuple[OutputCheck, ...]) -> tuple[OutputCheck, ...]:
    """Output by output the larger of each error: what is reported for all samples together."""
    if not known:
        return new
    return tuple(
        a.model_copy(
            update={
                "l2": max(a.l2, b.l2),
                "row_l2": max(a.row_l2, b.row_l2),
                "element": max(a.element, b.element),
            }
        )
        for a, b in zip(known, new, strict=True)
    )


@dataclass
class BothSides:
    """Hands kept samples to the inspector of the side that they came from."""

    candidates: Inspector
    rivals: Inspector
    duel: Duel

    def take(self, contestant: Contestant, sample: Sample) -> None:
        rivals = any(contestant is c for c in self.duel.opponents)
        (self.rivals if rivals else self.candidates).take(contestant, sample)

    def judge(self) -> None:
        self.candidates.judge()
        self.rivals.judge()


@dataclass
class Duel:
    """The sides of a measurement. Both open at the same time: nothing is timed meanwhile.

    ``attempt`` counts the opponents that were tried on this workload before."""

    grading: Grading
    workload: Workload
    opponent: str
    attempt: int = 0
    last_seed: int = 0
    opponents: list[Contestant] = field(default_factory=list)  # a rival's contestant, the latest one
    _coming: Future[Contestant] | None = None

    def candidate(self) -> Contestant:
        self._coming = self.grading.openers.submit(self._open_opponent)
        try:
            return self.grading.open_candidate(self.workload)
        except BaseException:
            wait((self._coming,))  # a process must not be closed while it is being opened
            raise

    def expert(self) -> Contestant:
        if self._coming is None:
            raise RuntimeError("the expert opens together with the candidate")
        return self._coming.result()

    def _open_opponent(self) -> Contestant:
        rival = self.grading.rival
        if rival is None:
            return self.grading.at.open_expert(self.grading.task, self.opponent, self.workload)
        self.opponents = [rival.open_candidate(self.workload)]
        return self.opponents[0]

    def _seed(self, number: int) -> int:
        number += self.attempt * ANOTHER_OPPONENT
        self.last_seed = sample_seed(self.grading.case.seed, self.workload.name, number)
        return self.last_seed

    def run(self) -> paired.Measured:
        """The measurement. Raises Ended with what it means for the candidate (or its rival) if it ends
        otherwise, and paired.ExpertFailed if an expert failed."""
        grading, case, start = self.grading, self.grading.case, time.monotonic()
        own = Inspector(grading, self.workload)
        rival = grading.rival
        theirs = Inspector(rival, self.workload) if rival is not None else None
        checked_before = case.watch.check
        try:
            measured = paired.measure(
                self,
                own if theirs is None else BothSides(own, theirs, self),
                grading.at.counters,
                self._seed,
                grading.secret(self.workload.name),
                check_both=rival is not None,
                stage=case.watch.timeline.stage,
            )
        except paired.ExpertFailed as error:
            cause = error.__cause__
            if rival is not None and isinstance(cause, Exception):
                rival.end(rival.failure(self.workload, cause, self.last_seed), error)
            raise
        except paired.InvalidMeasurement as error:
            grading.end(case.invalid_measurement(f"{self.workload.name}: {error}"), error)
        except (ContestantFault, ContestantHang, CannotReplay, MachineError) as error:
            grading.end(grading.failure(self.workload, error, self.last_seed), error)
        finally:
            case.watch.run += time.monotonic() - start - (case.watch.check - checked_before)
        grading.passed.append(own.row(time.monotonic() - start))
        if rival is not None and theirs is not None:
            rival.passed.append(theirs.row(time.monotonic() - start))
        return measured
