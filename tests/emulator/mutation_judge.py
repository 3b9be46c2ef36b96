"""Mutants of tuned examples before the whole CPU judge: each must end in a verdict, and not in one that
blames the judge."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mutation_kinds import KINDS, Pool, mutate
from mutation_units import Source

from cudahercules.build.artifact import Artifact
from cudahercules.build.candidate import Candidate, load_candidate
from cudahercules.build.compile import build
from cudahercules.build.toolchain import resolve_architecture
from cudahercules.judge.cpu import judge_on_cpu
from cudahercules.judge.evidence import Evidence
from cudahercules.judge.grade import new_case
from cudahercules.measure.profiles import load_profile
from cudahercules.task.load import load_task
from cudahercules.task.model import Task, WorkloadRole

EXAMPLES = (
    ("kernel/rotary/hd128_halved@general", "tuned.cu"),
    ("module/layernorm_fwd/fp32_1024@general", "tuned.cu"),
    ("kernel/sort_keys/general@general", "tuned.cu"),
    ("kernel/gemm/bf16@hopper", "tuned_hopper.cu"),
)
LIMIT_S = 5.0
TOO_LONG_S = 240.0
"""Wall seconds of one grading on a busy machine after which the judge counts as hanging."""


@dataclass(frozen=True, slots=True)
class Graded:
    """``finding`` says what is wrong with how it ended, if anything is."""

    example: str
    kind: str
    verdict: str
    finding: str = ""


def grade_mutants(seed: int, count: int, folder: Path) -> Iterator[Graded]:
    """``count`` mutants, kinds at random, examples in turn; smoke workloads only. Same seed, same mutants."""
    generator = random.Random(seed)
    prepared = [_prepared(name, file, generator) for name, file in EXAMPLES]
    for number in range(count):
        task, candidate, artifact, source, pool = prepared[number % len(prepared)]
        mutant, kind = None, ""
        while mutant is None:
            kind = pool.one(KINDS)
            kernel = generator.choice([f for f in source.functions if f.is_kernel])
            mutant = mutate(source.whole(kernel), kind, pool)
        directory = folder / str(number)
        shutil.copytree(artifact.directory, directory)
        text = "\n".join(" ".join(s) for s in mutant) + "\n"
        (directory / artifact.modules[0].ptx).write_text(text)
        changed = artifact.model_copy(update={"directory": directory})
        yield _graded(task, candidate, changed, kind, str(seed))
        shutil.rmtree(directory)


def _prepared(
    name: str, file: str, generator: random.Random
) -> tuple[Task, Candidate, Artifact, Source, Pool]:
    task = load_task(name)
    candidate = load_candidate(task.directory / file)
    artifact = build(candidate, task, resolve_architecture(task.target))
    assert isinstance(artifact, Artifact) and len(artifact.modules) == 1, artifact
    source = Source(name, artifact.path(artifact.modules[0].ptx).read_text())
    return task, candidate, artifact, source, Pool(list(source.units(generator)), generator)


def _graded(task: Task, candidate: Candidate, artifact: Artifact, kind: str, seed: str) -> Graded:
    case = new_case(task, candidate, seed, None)
    case.architecture = artifact.architecture
    case.use_artifact(artifact)
    profile, evidence = load_profile(artifact.architecture), Evidence(task=task, candidate=candidate)
    start = time.monotonic()
    try:
        verdict = judge_on_cpu(
            case, artifact, profile, evidence, roles=(WorkloadRole.SMOKE,), limit_s=LIMIT_S
        )
    except Exception as error:  # whatever it is, it is what we look for
        return Graded(task.id, kind, "exception", f"{type(error).__name__}: {error}"[:300])
    if verdict.kind == "infrastructure_error":
        return Graded(task.id, kind, verdict.kind, str(verdict)[:300])
    if (seconds := time.monotonic() - start) > TOO_LONG_S:
        return Graded(task.id, kind, verdict.kind, f"took {seconds:.0f} s")
    return Graded(task.id, kind, verdict.kind)
