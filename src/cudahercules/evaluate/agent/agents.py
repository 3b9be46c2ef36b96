"""Two agents for the tasks with tools.

``react`` is Inspect's loop of thoughts and tool calls with our tools. ``coder_and_judge`` has two roles: a
coder answers with whole programs as in refinement, and a judge (the model of the role ``judge``, or the same
one) reads the feedback and the profile between rounds and names one bottleneck and one change.
"""

from __future__ import annotations

from inspect_ai.agent import AgentPrompt, AgentSubmit, as_solver, react
from inspect_ai.model import ChatMessageUser, get_model
from inspect_ai.solver import Solver, solver

from cudahercules.evaluate.agent.tools import Bench, profile_of, submit_tool, toolbox
from cudahercules.evaluate.feedback import fenced
from cudahercules.evaluate.judging import Device
from cudahercules.evaluate.refine import rounds_of
from cudahercules.evaluate.trajectory import Trajectory
from cudahercules.task.model import Task

INSTRUCTIONS = """\
You write CUDA kernels that are as fast as those of the best human experts, and right. You have a workspace
and tools. Work in small steps: write, build, check, then find out what limits the speed and change that.
Results of tools end with what is left of your budgets: call submit before they run out."""
DIAGNOSIS = """\
## Diagnosis

You review the work of a CUDA programmer. Below are the task, the program, what the judge found, and a
profile. Name the one thing that keeps this program from being right or, if it is right, from being faster,
and the one change that you would make next. Two or three sentences, no code."""


def tool_agent(device: Device, limit_s: float, measurements: int) -> Solver:
    """The default agent: ReAct with all tools."""
    agent = react(
        prompt=AgentPrompt(instructions=INSTRUCTIONS, assistant_prompt=None),
        tools=toolbox(device, limit_s, measurements),
        submit=AgentSubmit(tool=submit_tool(), keep_in_messages=True),
    )
    return as_solver(agent)


@solver
def coder_and_judge(rounds: int, device: Device, limit_s: float, until_correct: bool) -> Solver:
    """The two-role agent (see the module)."""
    at = Bench(device, limit_s)

    async def review(task: Task, trajectory: Trajectory, found: str) -> str:
        files = trajectory.rounds[-1].files
        if not files:
            return ""
        right = trajectory.rounds[-1].outcome == "correct"
        profile = await profile_of(task, files, at) if right else "Only right programs are profiled."
        asked = "\n\n".join(
            (DIAGNOSIS, f"# The task\n\n{task.prompt_text.strip()}", f"# The program\n\n{fenced(files)}",
             f"# What the judge found\n\n{found}", f"# Profile\n\n{profile}")
        )  # fmt: skip
        answer = await get_model(role="judge").generate([ChatMessageUser(content=asked)])
        return f"A reviewer says: {answer.completion.strip()}" if answer.completion.strip() else ""

    return rounds_of(rounds, device, limit_s, until_correct, review)
