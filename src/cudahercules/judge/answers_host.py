"""Right or wrong at small sizes while PyTorch still comes up: references with NumPy, in threads.

The same two calls as :class:`cudahercules.judge.answers_gpu.DeviceAnswers`.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, Future
from typing import Any

from cudahercules.judge.answers_gpu import KeptAnswer, side_effects
from cudahercules.judge.checks import check_output
from cudahercules.judge.operands import reference_of
from cudahercules.judge.protocol import sample_seed
from cudahercules.judge.timeline import Timeline
from cudahercules.judge.verdict import OutputCheck, WrongOutput
from cudahercules.replay.interface import Contestant, Sample
from cudahercules.task.inputs import generate
from cudahercules.task.load import family_module
from cudahercules.task.model import Task, Workload


class HostAnswers:
    """References of the one sample that each of ``workloads`` gets; ``seed`` is the grading's."""

    def __init__(
        self, task: Task, workloads: Sequence[Workload], seed: str, pool: Executor, timeline: Timeline
    ):
        self._timeline = timeline
        self._coming: dict[str, Future[dict[str, Any]]] = {
            w.name: pool.submit(self._reference, task, w, sample_seed(seed, w.name)) for w in workloads
        }

    def _reference(self, task: Task, workload: Workload, seed: int) -> dict[str, Any]:
        with self._timeline.beside(f"reference {workload.name}"):
            values = {t.name: generate(task, t, workload, seed) for t in task.inputs}
            return reference_of(family_module(task), task, workload, values)

    def copy(self, task: Task, workload: Workload, contestant: Contestant, sample: Sample) -> KeptAnswer:
        """The kept outputs of ``sample`` as NumPy arrays."""
        kept = contestant.outputs(sample)
        outputs = {t.name: kept.host(t.name).copy(order="K") for t in task.outputs}
        return KeptAnswer(sample.seed, outputs, sample.changed_inputs, sample.damaged_canaries)

    def check(
        self, task: Task, workload: Workload, answer: KeptAnswer
    ) -> tuple[OutputCheck, ...] | WrongOutput:
        """Every output's errors, or the first wrong output."""
        if problem := side_effects(task, answer.changed_inputs, answer.damaged):
            return problem
        reference = self._coming[workload.name].result()
        checks = []
        for tensor in task.outputs:
            check = check_output(
                tensor, task.tolerance[tensor.name], answer.outputs[tensor.name], reference[tensor.name]
            )
            if isinstance(check, WrongOutput):
                return check
            checks.append(check)
        return tuple(checks)
