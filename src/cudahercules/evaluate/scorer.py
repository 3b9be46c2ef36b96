"""The judge as an Inspect scorer: the typed verdict as score and metadata, and the headline metrics.

``hercules score`` computes all metrics from the logs; what Inspect shows while an evaluation runs are the
means of the same values, each task and each family equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inspect_ai.model import StopReason
from inspect_ai.scorer import (
    Metric,
    SampleScore,
    Score,
    Scorer,
    Target,
    Value,
    bootstrap_stderr,
    mean,
    metric,
    scorer,
)
from inspect_ai.solver import TaskState

from cudahercules.evaluate.extraction import Extraction, extract
from cudahercules.evaluate.judging import Device, judge
from cudahercules.evaluate.state import Answer
from cudahercules.evaluate.trajectory import Trajectory
from cudahercules.judge.verdict import Verdict
from cudahercules.report.paragraph import explanation
from cudahercules.score.metrics import THRESHOLDS
from cudahercules.score.record import NO_CODE, Record, compiles, identity, speed_of
from cudahercules.task.load import load_task

NAME = "judge"
CUT_OFF: tuple[StopReason, ...] = ("max_tokens", "model_length")


@metric
def family_mean() -> Metric:
    """The mean over families of the mean over their tasks."""

    def compute(scores: list[SampleScore]) -> Value:
        by_family: dict[str, list[float]] = {}
        for score in scores:
            family = (score.sample_metadata or {}).get("family", "")
            by_family.setdefault(family, []).append(score.score.as_float())
        means = [sum(values) / len(values) for values in by_family.values()]
        return sum(means) / len(means) if means else float("nan")

    return compute


@scorer(metrics={"*": [mean(), family_mean(), bootstrap_stderr()]}, name=NAME)
def judged(device: Device, setting: str, limit_s: float) -> Scorer:
    """Grade the candidate that the solver settled on, or the code in the last message.

    The value has ``compiled`` and ``correct`` (0 or 1) and, on a GPU, ``speed`` and ``fast_p``; it is
    unscored (NaN) where the verdict says nothing about the answer. Raises NotJudged.
    """

    async def score(state: TaskState, target: Target) -> Score:
        task = load_task(str(state.sample_id))
        answer = state.store_as(Answer)
        files, words = answer.files, answer.explanation
        if not answer.given:
            extraction = extract_from(state)
            files, words = extraction.files, extraction.explanation()
        verdict = await judge(task, files, device, limit_s=limit_s) if files else None
        record = Record(
            model=str(state.model),
            setting=setting,
            epoch=state.epoch,
            outcome=verdict.kind if verdict is not None else NO_CODE,
            compiled=compiles(verdict),
            device=device,
            speed=speed_of(verdict) if verdict is not None else None,
            **identity(task),
            **_of_rounds(answer),
        )
        return Score(
            value=value_of(record),
            answer=_shown(files),
            explanation=f"{words} {explanation(verdict)}" if verdict is not None else words,
            metadata={
                "record": record.model_dump(mode="json"),
                "verdict": verdict.model_dump(mode="json") if verdict is not None else None,
                "files": files,
                "extraction": words,
                "trajectory": _trajectory(answer, verdict),
            },
        )

    return score


def extract_from(state: TaskState) -> Extraction:
    """The candidate in the model's last message."""
    return extract(state.output.completion, cut_off=state.output.stop_reason in CUT_OFF)


def value_of(record: Record) -> Value:
    """The score's value (see :func:`judged`)."""
    if not record.judged:
        return float("nan")
    value: dict[str, str | int | float | bool | None] = {
        "compiled": float(record.compiled),
        "correct": float(record.correct),
    }
    if record.device == "gpu":
        ratio = record.speed.ratio if record.speed is not None else float("nan") if record.correct else 0.0
        value["speed"] = ratio
        value.update({f"fast_{p:g}": ratio if ratio != ratio else float(ratio >= p) for p in THRESHOLDS})
    return value


def _shown(files: dict[str, str]) -> str:
    texts = list(files.values())
    return texts[0] if len(texts) == 1 else "\n".join(f"// file: {n}\n{t}" for n, t in files.items())


def _of_rounds(answer: Answer) -> dict[str, Any]:
    if answer.trajectory is None:
        return {}
    return Trajectory.model_validate(answer.trajectory).record_fields()


def _trajectory(answer: Answer, verdict: Verdict | None) -> dict[str, Any] | None:
    """The rounds, and what the final verdict says beside the guidance."""
    if answer.trajectory is None:
        return None
    return {**answer.trajectory, "gap": Trajectory.model_validate(answer.trajectory).gap(verdict)}


def reducers(samples: int) -> Sequence[str]:
    """How Inspect combines the answers to one task: their mean, and pass@k as far as they reach."""
    return ["mean", *(f"pass_at_{k}" for k in (3, 5, 10) if k <= samples)]
