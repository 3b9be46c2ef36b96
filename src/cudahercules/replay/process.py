"""The candidate's side of a GPU process: a launch plan becomes a graph on a real device."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from cudahercules.build.artifact import Artifact
from cudahercules.record.plan import LaunchPlan, Operation, local_bytes
from cudahercules.replay.answers import differences
from cudahercules.replay.arena import Arena, Placement, Spacer
from cudahercules.replay.capture import Issuer, asked_by_plan
from cudahercules.replay.driver import Context, api, version_text
from cudahercules.replay.generator import DeviceCode
from cudahercules.replay.image import LoadedModule
from cudahercules.replay.interface import AnswersDiffer, CannotReplay, Ready
from cudahercules.replay.kept import Keeper
from cudahercules.replay.messages import At, Channel, Load, Stepped
from cudahercules.replay.sampler import Operand, Sampler
from cudahercules.task.model import Task, Workload

DEVICE_HEAP_BYTES = 4096
"""The device heap keeps what was written to it; plans cannot use it, so it is made tiny."""


class CandidateSide:
    """Loads plans one after the other; what the last one held is given back first."""

    sampler: Sampler

    def __init__(self, context: Context, keeper: Keeper):
        self.context, self.keeper = context, keeper
        self._held: list[Any] = []
        self._code: DeviceCode | None = None
        api.cuCtxSetLimit(api.CUlimit.CU_LIMIT_MALLOC_HEAP_SIZE, DEVICE_HEAP_BYTES)
        self._default_stack = int(api.cuCtxGetLimit(api.CUlimit.CU_LIMIT_STACK_SIZE))

    def load(self, order: Load, channel: Channel) -> Ready | None:
        """Build the graph (or, with ``step``, run the plan launch by launch).

        Raises AnswersDiffer, CannotReplay, PlanError or DriverError."""
        began = time.monotonic()
        self.close()
        plan = LaunchPlan.model_validate_json(order.plan)
        artifact = Artifact.model_validate_json(order.artifact)
        task = Task.model_validate_json(order.task)
        workload = next(w for w in task.workloads if w.name == order.workload)
        if plan.workload != workload.name or plan.artifact != artifact.key:
            raise CannotReplay("plan, artifact and workload do not belong together")
        if plan.architecture != artifact.architecture:
            raise CannotReplay(
                f"the plan is for sm_{plan.architecture}, the artifact for sm_{artifact.architecture}"
            )
        with asked_by_plan("the stack's limit"):
            limit = api.CUlimit.CU_LIMIT_STACK_SIZE
            api.cuCtxSetLimit(limit, plan.stack_limit or self._default_stack)
        with asked_by_plan("the part of L2 that is set aside"):
            self._set_aside(plan.persisting_l2)
            self._set_aside(0)
        # Ours first: a driver older than the compiler refuses it, too, and then the plan is not to blame.
        code = self._code = self._code or DeviceCode(Path(order.kernels), self.context)
        modules = tuple(self._hold(LoadedModule(artifact.path(m.cubin))) for m in artifact.modules)
        lost = [name for m in modules for name in m.unrestorable]
        if lost:
            raise CannotReplay(f"module variables whose address the driver does not tell: {', '.join(lost)}")
        with asked_by_plan("a question about the device"):
            wrong = differences(plan, self.context, modules)
        if wrong:
            raise AnswersDiffer(wrong)
        self._hold(Spacer(self.context.device_number))
        arena = self._hold(Arena(plan.buffers, plan.arena_base, self.context.device_number))
        code.cover(local_bytes(plan, artifact))
        issuer = self._hold(Issuer(plan, artifact, arena, modules))
        self.sampler = self._sampler(task, workload, arena, code, issuer, modules)
        if plan.persisting_l2:
            self.sampler.set_aside = lambda on: self._set_aside(plan.persisting_l2 if on else 0)
        if order.step:
            self._step(plan, issuer, channel, order.seed)
            return None
        nodes = self._build_graphs(plan, issuer)
        return Ready(
            side="candidate",
            method="graph",
            device=self.context.name,
            driver=version_text(self.context.driver_version),
            pid=os.getpid(),
            nodes=nodes,
            device_bytes=arena.device_bytes + code.device_bytes,
            relocated=arena.offset != 0,
            seconds=time.monotonic() - began,
            notes=() if code.local_covered else ("local memory beyond 64 KiB a thread is not wiped",),
        )

    def _hold(self, thing: Any) -> Any:
        self._held.append(thing)
        return thing

    def _set_aside(self, size: int) -> None:
        """Reserve ``size`` bytes of L2 for persisting lines, where the GPU can."""
        if self.context.attribute(108) > 0:  # MAX_PERSISTING_L2_CACHE_SIZE
            api.cuCtxSetLimit(api.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE, size)

    def _sampler(
        self,
        task: Task,
        workload: Workload,
        arena: Arena,
        code: DeviceCode,
        issuer: Issuer,
        modules: tuple[LoadedModule, ...],
    ) -> Sampler:
        places = {p.buffer.name: p for p in arena.placements if p.buffer.kind != "scratch"}
        numbers = {t.name: i for i, t in enumerate(task.tensors)}
        if set(places) != set(numbers):
            raise CannotReplay("the plan's buffers are not the task's tensors")
        for t in task.tensors:
            if places[t.name].buffer.size != task.nbytes(t, workload):
                raise CannotReplay(f"buffer {t.name} has another size than the tensor")
        stream = issuer.stream(0)

        def restore() -> None:
            for upload in issuer.uploads:
                upload.restore()
            for module in modules:
                module.restore(stream)

        return self._hold(
            Sampler(
                task=task,
                workload=workload,
                code=code,
                keeper=self.keeper,
                stream=stream,
                operands=[
                    Operand(numbers[t.name], t, p.writable, p.buffer.size, p.address)
                    for t, p in ((t, places[t.name]) for t in task.inputs)
                ],
                outputs={t.name: (places[t.name].address, places[t.name].buffer.size) for t in task.outputs},
                poisoned=[range_ for p in arena.placements for range_ in _poisoned(p)],
                canaries={
                    f"{p.buffer.name}#{i}": [p.before, p.after] for i, p in enumerate(arena.placements)
                },
                launch=lambda: None,
                restore=restore,
            )
        )

    def _build_graphs(self, plan: LaunchPlan, issuer: Issuer) -> int:
        stream = issuer.stream(0)
        if plan.prepare:
            prepare, _ = issuer.capture(plan.prepare)
            self._hold(_Graph(prepare))
            self.sampler.prepare = lambda: api.cuGraphLaunch(prepare, stream)
        solve, nodes = issuer.capture(plan.solve)
        self._hold(_Graph(solve))
        api.cuGraphUpload(solve, stream)
        api.cuStreamSynchronize(stream)
        self.sampler.launch = lambda: api.cuGraphLaunch(solve, stream)
        return nodes

    def _step(self, plan: LaunchPlan, issuer: Issuer, channel: Channel, seed: int) -> None:
        """Run every operation alone, saying which one comes before it runs."""
        self.sampler.set_up(seed, lambda: self._walk("prepare", plan.prepare, issuer, channel))
        self._walk("solve", plan.solve, issuer, channel)
        channel.send(Stepped())

    @staticmethod
    def _walk(part: Any, operations: tuple[Operation, ...], issuer: Issuer, channel: Channel) -> None:
        api.cuCtxSynchronize()
        issuer.events.clear()
        for position, operation in enumerate(operations):
            channel.send(At(part=part, position=position))
            issuer.issue(operation)
            api.cuCtxSynchronize()

    def close(self) -> None:
        if self._held:
            api.cuCtxSynchronize()
        for thing in reversed(self._held):
            thing.close()
        self._held.clear()


class _Graph:
    def __init__(self, executable: Any):
        self.executable = executable

    def close(self) -> None:
        api.cuGraphExecDestroy(self.executable)


def _poisoned(place: Placement) -> list[tuple[int, int]]:
    """What gets poison before each sample: all of a scratch or output buffer's pages; of operands
    that hold values only the canaries around them."""
    if place.buffer.kind in ("scratch", "output"):
        return [place.pages]
    return [r for r in (place.before, place.after) if r[1]]
