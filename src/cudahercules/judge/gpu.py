"""The GPU judge: record each workload, replay its plan on the card, check it, time it against the expert.

Entry points only; a grading is in :mod:`cudahercules.judge.gpu_grading`, its timing in
:mod:`cudahercules.judge.gpu_speed` and :mod:`cudahercules.judge.gpu_duel`. docs/measurement.md explains
the protocol.
"""

from __future__ import annotations

import atexit
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from cudahercules.build.artifact import Artifact
from cudahercules.judge.device import Gpu, find_gpu
from cudahercules.judge.evidence import Evidence
from cudahercules.judge.gpu_grading import ORDER, Ended, Grading, Recording
from cudahercules.judge.gpu_memory import memory_needed, rivals_memory
from cudahercules.judge.protocol import Case
from cudahercules.judge.station import Station
from cudahercules.judge.verdict import Verdict
from cudahercules.task.model import Task, WorkloadRole

__all__ = [
    "ORDER",
    "SAMPLE_S",
    "Rival",
    "find_gpu",
    "get_ready",
    "judge_on_gpu",
    "memory_needed",
    "release_station",
    "rivals_memory",
    "station",
]

SAMPLE_S = 60.0
"""Wall seconds that one sample may take, its inputs and eviction included."""

_station: Station | None = None


def station(gpu: Gpu | None = None) -> Station:
    """This process's station, made at the first call; it ends with the process."""
    global _station
    if _station is None:
        _station = Station(gpu or find_gpu())
        atexit.register(release_station)
    return _station


def release_station() -> None:
    """End the warm processes of this process's station; the next grading makes a new one."""
    global _station
    if _station is not None:
        _station.close()
        _station = None


def get_ready(task: Task, gpu: Gpu) -> None:
    """Bring processes, PyTorch and the opponents up while the candidate is being compiled."""
    station(gpu).start_experts(task)


@dataclass(frozen=True)
class Rival:
    """Another candidate in the expert's place, for ``compare``: replayed, checked and blamed like the
    candidate itself."""

    case: Case
    artifact: Artifact
    evidence: Evidence


def judge_on_gpu(
    case: Case,
    artifact: Artifact,
    evidence: Evidence,
    *,
    roles: Sequence[WorkloadRole] = ORDER,
    limit_s: float = SAMPLE_S,
    at: Station | None = None,
    against: str | None = None,
    rival: Rival | None = None,
    recordings: Mapping[str, Future[Recording]] | None = None,
) -> Verdict:
    """The verdict on an artifact; plans of the workloads that ran are put into ``evidence``.

    ``roles`` restricts the workloads; without bench the verdict is not timed. ``limit_s`` bounds one
    sample, its inputs and eviction included. ``at`` is the station of a batch. ``against`` names an
    expert to play against instead of the panel's winner, ``rival`` another candidate; the verdict is
    the rival's own if the rival fails (its ``candidate_sha256`` tells). ``recordings`` are those that a
    batch began ahead, by workload. Raises MachineError if this machine lacks something; what goes wrong on
    the way is a verdict.
    """
    where = at or station()
    case.device, case.driver = where.gpu.name, where.gpu.driver
    timeline = evidence.timeline = case.watch.timeline
    if at is None:
        timeline.passed("start-up", 0.0, timeline.now - case.watch.build)
        timeline.passed("compiler", timeline.now - case.watch.build, timeline.now)
    if artifact.architecture != where.gpu.architecture:
        return case.infrastructure_error(
            f"{case.task.id} is built for sm_{artifact.architecture}; this is {where.gpu.name} "
            f"(sm_{where.gpu.architecture})"
        )
    chosen = tuple(r for r in ORDER if r in roles)
    grading = Grading(case, artifact, evidence, where, chosen, limit_s, against)
    grading.recordings.update(recordings or {})
    if rival is not None:
        rival.case.device, rival.case.driver = where.gpu.name, where.gpu.driver
        grading.rival = Grading(rival.case, rival.artifact, rival.evidence, where, chosen, limit_s)
    try:
        return grading.run()
    except Ended as ended:
        return ended.verdict
    finally:
        grading.close()
