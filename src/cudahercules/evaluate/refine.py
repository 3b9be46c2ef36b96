"""Iterative refinement: an answer, what guidance says of it, the next answer; the best one counts.

Each round's conversation is the task, the last answer's code and what it came to (with the best so far, if
that is another), so that its length does not grow with the number of rounds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from inspect_ai.model import ChatMessage, ChatMessageAssistant, ChatMessageUser, get_model
from inspect_ai.solver import Generate, Solver, TaskState, solver

from cudahercules.evaluate.diagnosis import diagnosis_if_any
from cudahercules.evaluate.feedback import feedback, fenced, round_heading, round_message
from cudahercules.evaluate.holdout import guidance, guidance_seed
from cudahercules.evaluate.judging import Device, builders, in_thread, judge
from cudahercules.evaluate.scorer import extract_from
from cudahercules.evaluate.state import Answer
from cudahercules.evaluate.trajectory import Trajectory
from cudahercules.task.load import load_task
from cudahercules.task.model import Task

DIAGNOSIS_LIMIT_S = 20.0
"""Wall seconds that the checking emulator may take for a wrong answer; it is slower than grading."""
Review = Callable[[Task, Trajectory, str], Awaitable[str]]
"""What a second role adds to the feedback on the last round (given in words); "" for nothing."""


async def no_review(task: Task, trajectory: Trajectory, found: str) -> str:
    return ""


@solver
def refining(rounds: int, device: Device, limit_s: float, until_correct: bool) -> Solver:
    """Ask up to ``rounds`` times; with ``until_correct`` end at the first right answer."""
    return rounds_of(rounds, device, limit_s, until_correct, no_review)


def rounds_of(rounds: int, device: Device, limit_s: float, until_correct: bool, review: Review) -> Solver:
    """The loop of :func:`refining`, with what ``review`` adds between rounds."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        task = load_task(str(state.sample_id))
        shown, seed = guidance(task), guidance_seed(task, state.epoch)
        asked = state.user_prompt.text
        trajectory, words = Trajectory(), ""
        for number in range(1, rounds + 1):
            state.messages = _conversation(asked, trajectory, words, number, rounds)
            state.output = await get_model().generate(state.messages)
            state.messages.append(state.output.message)
            extraction = extract_from(state)
            verdict = None
            if extraction.files:
                verdict = await judge(shown, extraction.files, device, seed=seed, limit_s=limit_s)
            trajectory = trajectory.extended(extraction.files, extraction.explanation(), verdict)
            words = feedback(shown, verdict, extraction.explanation())
            if verdict is not None and verdict.kind == "incorrect":
                look = partial(
                    diagnosis_if_any, shown, extraction.files, verdict.workload, seed, DIAGNOSIS_LIMIT_S
                )
                words = "\n\n".join(filter(None, (words, await in_thread(builders(), look))))
            settle(state, trajectory)
            if number == rounds or (until_correct and verdict is not None and verdict.kind == "correct"):
                break
            words = "\n\n".join(filter(None, (words, await review(shown, trajectory, words))))
        return state

    return solve


def settle(state: TaskState, trajectory: Trajectory) -> None:
    """Make the best round the sample's answer: a limit may end the solver at any time."""
    best = trajectory.best
    answer = state.store_as(Answer)
    answer.given = True
    answer.files = dict(best.files) if best is not None else {}
    answer.trajectory = trajectory.model_dump(mode="json")
    answer.explanation = (
        f"The answer of round {best.number} of {len(trajectory.rounds)}. {best.explanation}"
        if best is not None
        else f"No code in {len(trajectory.rounds)} rounds. {trajectory.rounds[-1].explanation}"
    )


def _conversation(asked: str, trajectory: Trajectory, words: str, number: int, of: int) -> list[ChatMessage]:
    if not trajectory.rounds:
        return [ChatMessageUser(content=f"{asked}\n{round_heading(number, of)}\n")]
    last = trajectory.rounds[-1]
    said = fenced(last.files) if last.files else "(an answer without code that could be taken)"
    return [
        ChatMessageUser(content=asked),
        ChatMessageAssistant(content=said),
        ChatMessageUser(content=round_message(trajectory, words, number, of)),
    ]
