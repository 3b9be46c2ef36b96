"""Run a plan on the CPU: every kernel, memset, copy and upload, in issue order, in a child process."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cudahercules.build import sandbox
from cudahercules.build.artifact import Artifact
from cudahercules.emulator import native
from cudahercules.emulator.asynchrony import LATE
from cudahercules.emulator.faults import NOWHERE, demangled, fault_of, shown_file
from cudahercules.emulator.job import POISON, Job, Poison, write_job, written_by_host
from cudahercules.emulator.outcome import (
    Completed,
    Counters,
    Fault,
    Outcome,
    OutOfFuel,
    Unsupported,
    UnsupportedInstruction,
)
from cudahercules.emulator.space import Space
from cudahercules.emulator.tensor_map import unsupported_map
from cudahercules.emulator.translation import COUNTING, Built, build_translation, in_files_of_their_own
from cudahercules.errors import MachineError, PlanError
from cudahercules.process import Finished, Limits, run_limited
from cudahercules.record.plan import LaunchPlan

MEMORY_LIMIT = 3 << 30
"""Bytes of buffers, scratch and module variables that one plan may have here. All of it is filled with
poison and so really takes memory, which several gradings share; small workloads need far less."""
_GRACE_S = 5.0
"""The child ends itself at its time limit; this long after it, it is killed."""


def emulate(
    plan: LaunchPlan,
    artifact: Artifact,
    contents: Mapping[str, np.ndarray],
    wall_s: float,
    *,
    threads: int | None = None,
    counting: bool = False,
    asynchrony: str = LATE,
    after_prepare: tuple[str, ...] = (),
) -> Outcome:
    """Run ``plan.prepare``, then ``plan.solve``.

    ``contents`` holds, by buffer name, uint8 arrays of the buffers' sizes in bytes: what they contain
    before; writable ones (and inputs that the plan's own host operations write) are updated in place.
    Buffers that are not in it begin with poison, module variables with their initial values.

    ``wall_s`` limits the run in seconds (translating and compiling come before it and are cached);
    ``threads`` is the number of OS threads (default: all cores that this process may use). With
    ``counting`` a build of its own counts dynamic instructions.

    ``asynchrony`` says when asynchronous work (copies, wgmma) takes effect: ``eager`` when it is issued,
    ``late`` when a wait demands it, ``random:SEED`` at either time. Correct programs cannot tell.

    ``after_prepare`` names buffers that get their contents only when ``prepare`` has run: while it runs
    they hold poison, so that nothing of the answer can be computed there.

    Raises PlanError for a plan that does not fit the artifact or asks for what hardware would refuse,
    MachineError if this machine cannot do it.
    """
    how = How(COUNTING if counting else native.PLAIN, threads, asynchrony, after_prepare=after_prepare)
    return run_plan(plan, artifact, contents, wall_s, how).outcome


@dataclass(frozen=True, slots=True)
class How:
    """``build`` of host program and translations, OS ``threads`` (None: all cores), ``asynchrony`` and
    ``after_prepare`` as in ``emulate``, ``poison`` what undefined memory holds before."""

    build: str = native.PLAIN
    threads: int | None = None
    asynchrony: str = LATE
    poison: Poison = POISON
    after_prepare: tuple[str, ...] = ()


@dataclass(frozen=True)
class Run:
    """An outcome, and what it was made of: the host program's message, None without a run."""

    outcome: Outcome
    message: dict[str, Any] | None = None
    space: Space | None = None
    modules: Sequence[Built] = ()


def run_plan(
    plan: LaunchPlan, artifact: Artifact, contents: Mapping[str, np.ndarray], wall_s: float, how: How
) -> Run:
    """:func:`emulate`, with every option and with the host program's own message."""
    if plan.version != 1:
        raise PlanError(f"plan version {plan.version} is not known")
    host, modules = _compiled(artifact, how.build)
    maps = (
        UnsupportedInstruction(instruction=u, kernel="") for u in map(unsupported_map, plan.tensor_maps) if u
    )
    if refused := (*(_shown(u) for m in modules for u in m.unsupported), *maps):
        return Run(Unsupported(instructions=refused))
    space = Space(plan, modules)
    if (needed := sum(r.size for r in space.regions)) > MEMORY_LIMIT:
        return Run(Unsupported(instructions=(_too_much_memory(needed),)))
    result_fd = os.memfd_create("hercules-result")
    try:
        threads = how.threads or _cores()
        job = write_job(
            plan,
            artifact,
            space,
            contents,
            result_fd,
            threads,
            wall_s,
            how.asynchrony,
            how.poison,
            how.after_prepare,
        )
        try:
            finished = run_limited(
                [host],
                Limits(wall_s=wall_s + _GRACE_S),
                stdin="\n".join((*job.lines, "")).encode(),
                pass_fds=(job.memory, result_fd),
                confined=sandbox.confinement(read=(host.resolve(), *(m.library.resolve() for m in modules))),
            )
            message = _message(result_fd)
            outcome = _outcome(finished, message, space, modules, wall_s, how.build == COUNTING)
            if isinstance(outcome, Completed):
                _copy_back(plan, space, job, contents)
            return Run(outcome, message, space, modules)
        finally:
            job.close()
    finally:
        os.close(result_fd)


def _shown(refused: UnsupportedInstruction) -> UnsupportedInstruction:
    return refused.model_copy(update={"file": shown_file(refused.file)})


def _too_much_memory(needed: int) -> UnsupportedInstruction:
    text = f"{needed / 2**30:.1f} GiB of device memory (the emulator gives {MEMORY_LIMIT / 2**30:.0f} GiB)"
    return UnsupportedInstruction(instruction=text, kernel="")


def _compiled(artifact: Artifact, build: str) -> tuple[Path, list[Built]]:
    """The host program and the translations, built side by side where they are not in the cache."""
    texts = [artifact.path(m.ptx).read_text() for m in artifact.modules]
    with ThreadPoolExecutor(_cores() + 1) as pool:
        runtime = native.CHECKING if build == native.CHECKING else native.PLAIN
        host = pool.submit(native.host_program, runtime)
        modules = list(pool.map(partial(build_translation, build=build), texts))
        return host.result(), in_files_of_their_own(modules)


def _cores() -> int:
    return max(1, len(os.sched_getaffinity(0)))


def _message(result_fd: int) -> dict | None:
    size = os.fstat(result_fd).st_size
    try:
        message = json.loads(os.pread(result_fd, size, 0)) if size else None
    except ValueError:
        return None
    return message if isinstance(message, dict) else None


def _outcome(
    finished: Finished,
    message: dict | None,
    space: Space,
    modules: list[Built],
    wall_s: float,
    counting: bool,
) -> Outcome:
    limit = f"{wall_s:g} s"
    if message is None or finished.status != 0:
        if finished.timed_out:
            return OutOfFuel(kernel="", limit=limit)
        if finished.status == -signal.SIGKILL:
            raise MachineError("the emulator's process was killed from outside (memory full?): try again")
        return Fault(
            what="illegal_instruction",
            message=f"the emulator's process ended with status {finished.status} and without a result",
            kernel="",
        )
    match message["kind"]:
        case "completed":
            return Completed(
                counters=Counters(
                    instructions=message["instructions"] if counting else None,
                    threads=message["threads"],
                    blocks=message["blocks"],
                    seconds=message["seconds"],
                ),
                printed=message["printed"],
            )
        case "refused":
            raise PlanError(message["message"])
        case "out_of_fuel":
            sites = modules[message["module"]].sites()
            site = sites[message["site"]] if message["site"] < len(sites) else NOWHERE
            return OutOfFuel(
                kernel=demangled(message["kernel"]),
                limit=limit,
                file=shown_file(site.file),
                line=site.line,
                printed=message["printed"],
            )
        case _:
            return fault_of(message, space, modules[message["module"]].sites())


def _copy_back(plan: LaunchPlan, space: Space, job: Job, contents: Mapping[str, np.ndarray]) -> None:
    for region in space.buffers:
        if region.name in job.places and (region.writable or written_by_host(plan, region)):
            target = contents[region.name]
            target.view(np.uint8).reshape(-1)[:] = job.read(region.name)
