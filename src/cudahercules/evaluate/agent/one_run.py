"""``python -m cudahercules.evaluate.agent.one_run TASK PATH WORKLOAD``: one replay of one workload on the
GPU, for Nsight Compute and compute-sanitizer to look at.

The workload is run as a checked one: replayed once on fresh inputs by the judge's own replayer and compared,
never timed. Prints the verdict's kind and message; the exit code is that of ``hercules grade``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from cudahercules.judge.grade import grade
from cudahercules.judge.verdict import exit_code
from cudahercules.report.paragraph import explanation
from cudahercules.task.load import load_task
from cudahercules.task.model import Task, WorkloadRole


def only(task: Task, name: str) -> Task:
    """``task`` with one workload, which is checked and not timed, whatever it was."""
    chosen = next(w for w in task.workloads if w.name == name)
    return task.model_copy(update={"workloads": (chosen.model_copy(update={"role": WorkloadRole.CHECK}),)})


def main(arguments: list[str]) -> int:
    task, path, workload = arguments
    verdict = grade(only(load_task(task), workload), Path(path), "gpu", roles=(WorkloadRole.CHECK,))
    print(verdict.kind, explanation(verdict))
    return exit_code(verdict)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
