"""The three settings as Inspect tasks: ``cudahercules/oneshot``, ``/refine`` and ``/agent``.

All of them take the options of :class:`Options`, on Inspect's command line as ``-T name=value``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

from inspect_ai import Epochs, Task, task
from inspect_ai.solver import Generate, Solver, TaskState, generate, solver, use_tools
from pydantic import Field, ValidationError

from cudahercules.errors import UsageError
from cudahercules.evaluate.agent.agents import coder_and_judge, tool_agent
from cudahercules.evaluate.agent.tools import MEASUREMENTS, submit_tool, toolbox
from cudahercules.evaluate.judging import Device, architecture_of
from cudahercules.evaluate.prompts import ANSWER_FORMAT, TOOLS_FORMAT, Level, level_of, task_prompt
from cudahercules.evaluate.refine import refining
from cudahercules.evaluate.samples import FAMILIES, dataset, select
from cudahercules.evaluate.scorer import judged, reducers
from cudahercules.evaluate.state import Seat
from cudahercules.judge.grade import LIMIT_S, choose_device
from cudahercules.task import model as tasks_model


class Options(tasks_model.Model):
    """What all settings share.

    ``tasks``      families (one member of each), demo (of four families), all, or names separated by commas
    ``target``     keep the tasks for this target
    ``samples``    answers a task: the pool from which pass@k is estimated
    ``device``     auto, gpu or cpu: where answers are judged
    ``level``      full, algorithm or name: how much the prompt tells
    ``strategy``   add the family's expert strategy in words
    ``exemplars``  solved tasks of other families before the task
    ``limit_s``    wall seconds that one workload may run
    """

    tasks: str | list[str] = FAMILIES
    target: str | None = None
    samples: int = Field(1, ge=1)
    device: str = "auto"
    level: str = Level.FULL
    strategy: bool = False
    exemplars: int = Field(0, ge=0)
    limit_s: float = Field(LIMIT_S, gt=0)

    def label(self, setting: str) -> str:
        """The setting's name in tables, with what differs from the plain one."""
        extras = [self.level] if self.level != Level.FULL else []
        extras += ["strategy"] if self.strategy else []
        extras += [f"{self.exemplars} exemplars"] if self.exemplars else []
        return f"{setting} ({', '.join(extras)})" if extras else setting

    @classmethod
    def given(cls, options: dict[str, Any]) -> Self:
        """From the arguments of an Inspect task. Raises UsageError for the first bad one."""
        try:
            return cls.model_validate(options)
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(map(str, first["loc"]))
            raise UsageError(
                f"option {name}: {first['msg']}; there are {', '.join(cls.model_fields)}"
            ) from None


@task
def oneshot(**options: Any) -> Task:
    """One answer without feedback; ``samples`` of them give pass@k. ``options``: see :class:`Options`."""
    return build_task("oneshot", Options.given(options), generate())


class RefineOptions(Options):
    """``rounds`` counts answers, the first one included. ``until`` is when to end: ``rounds`` (all of them),
    ``correct`` (at the first right answer), or ``auto``: all on a GPU, the first right answer on the CPU,
    where no speed can guide what comes after it."""

    rounds: int = Field(10, ge=1)
    until: Literal["auto", "rounds", "correct"] = "auto"


@task
def refine(**options: Any) -> Task:
    """Answers with feedback between them; the best one is judged. ``options``: see :class:`RefineOptions`."""
    given = RefineOptions.given(options)
    device = choose_device(given.device)
    solving = refining(given.rounds, device, given.limit_s, _until_correct(given, device))
    return build_task(f"refine@{given.rounds}", given, solving)


class AgentOptions(RefineOptions):
    """``agent`` is ``react`` (tools) or ``coder_and_judge`` (two roles, as in refinement). ``rounds`` counts
    the model's turns; ``measurements`` how often an agent may use the GPU."""

    rounds: int = Field(20, ge=1)
    measurements: int = Field(MEASUREMENTS, ge=0)
    agent: Literal["react", "coder_and_judge"] = "react"


@task
def agent(**options: Any) -> Task:
    """A workspace with tools and budgets. ``options``: see :class:`AgentOptions`.

    Another agent of Inspect's takes the place of the default one with ``--solver``; it finds the tools in the
    sample's state, or calls :func:`cudahercules.evaluate.agent.toolbox`."""
    given = AgentOptions.given(options)
    device = choose_device(given.device)
    tools = use_tools(*toolbox(device, given.limit_s, given.measurements), submit_tool().as_tool())
    if given.agent == "coder_and_judge":
        solving = coder_and_judge(given.rounds, device, given.limit_s, _until_correct(given, device))
        return build_task(f"coder_and_judge@{given.rounds}", given, solving)
    solving = tool_agent(device, given.limit_s, given.measurements)
    built = build_task(f"agent@{given.rounds}", given, solving, answer_format=TOOLS_FORMAT, setup=(tools,))
    built.turn_limit = given.rounds
    return built


def _until_correct(options: RefineOptions, device: Device) -> bool:
    return options.until == "correct" or (options.until == "auto" and device == "cpu")


def build_task(
    setting: str,
    options: Options,
    chosen: Solver,
    *,
    answer_format: str = ANSWER_FORMAT,
    setup: Sequence[Solver] = (),
) -> Task:
    """An Inspect task that asks the chosen tasks and has the judge score the answers.

    Raises UsageError for what the options get wrong, MachineError for a GPU that cannot be used."""
    on: Device = choose_device(options.device)
    level = level_of(options.level)

    def prompt(asked: tasks_model.Task) -> str:
        return task_prompt(
            asked,
            architecture_of(asked, on),
            level=level,
            strategy=options.strategy,
            exemplars=options.exemplars,
            answer_format=answer_format,
        )

    return Task(
        dataset=dataset(select(options.tasks, options.target), prompt),
        setup=[take_seat(), *setup],
        solver=chosen,
        scorer=judged(device=on, setting=options.label(setting), limit_s=options.limit_s),
        epochs=Epochs(options.samples, list(reducers(options.samples))),
        continue_on_fail=True,  # samples that could not be judged are left to a resumption
        metadata={"setting": options.label(setting), "device": on},
    )


@solver
def take_seat() -> Solver:
    """Note in the store which task and which answer a sample is."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        seat = state.store_as(Seat)
        seat.task, seat.epoch = str(state.sample_id), state.epoch
        return state

    return solve
