"""The only ways in for a launch plan: out of a recording, or out of JSON text.

Both come from untrusted hands. The text is parsed into the types of :mod:`cudahercules.record.plan`,
and then every name, number and range is checked against the artifact (:mod:`..check`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable

from pydantic import ValidationError

from cudahercules.build.artifact import Artifact
from cudahercules.errors import PlanError
from cudahercules.record.check import (
    MAX_ANSWERS,
    MAX_OPERATIONS,
    MAX_SCRATCH_COUNT,
    MAX_TENSOR_MAPS,
    MAX_WITH_EVENTS,
    check_plan,
    parameter_bytes,
)
from cudahercules.record.extract import AddressBook, extract
from cudahercules.record.plan import ARENA_BASE, Buffer, LaunchPlan, Symbol
from cudahercules.task.model import Task

MAX_TEXT = 256 << 20
MAX_DEPTH = 12
"""A plan nests no deeper than LaunchPlan, list, operation, list, relocation."""
MAX_QUOTED = 200
"""Characters of a plan's own text that a message repeats."""
_NO_BRACKETS = bytes(c for c in range(256) if c not in b"[]{}")


def load_plan(text: str | bytes, artifact: Artifact, task: Task | None = None) -> LaunchPlan:
    """Parse and check a plan that was saved as JSON.

    With ``task``, its buffers must be laid out as that task's workload demands. Raises PlanError
    that names the operation and the field.
    """
    if len(text) > MAX_TEXT:
        raise PlanError(f"the plan has {len(text)} bytes, at most {MAX_TEXT} are read")
    _check_depth(text.encode("utf-8", errors="replace") if isinstance(text, str) else text)
    try:
        plan = LaunchPlan.model_validate_json(text)
    except ValidationError as error:
        raise PlanError(f"the plan is damaged: {_first(error)}") from error
    check_plan(plan, artifact, task)
    return plan


def _check_depth(text: bytes) -> None:
    """Refuse nesting that no plan has. Brackets in strings count too: no string of a plan needs any."""
    depth = 0
    for c in text.translate(None, _NO_BRACKETS):
        depth += 1 if c in b"[{" else -1
        if depth > MAX_DEPTH:
            raise PlanError(f"the plan nests deeper than {MAX_DEPTH} levels")


def _first(error: ValidationError) -> str:
    problem = error.errors(include_url=False)[0]
    where = list(problem["loc"])
    if len(where) >= 2 and where[0] in ("prepare", "solve") and isinstance(where[1], int):
        field = ".".join(map(str, where[3:]))[:MAX_QUOTED] or "op"
        return f"{where[0]} operation {where[1]}, field {field}: {problem['msg'][:MAX_QUOTED]}"
    return f"field {'.'.join(map(str, where))[:MAX_QUOTED] or '(all)'}: {problem['msg'][:MAX_QUOTED]}"


def plan_from_recording(
    lines: Iterable[bytes],
    blob: bytes,
    artifact: Artifact,
    task: Task,
    workload: str,
    profile: str,
    buffers: tuple[Buffer, ...],
    symbols: tuple[Symbol, ...],
) -> LaunchPlan:
    """The plan that the recorder's raw output describes. Raises PlanError if it is no recording."""
    raw = _Raw(lines)
    scratch = [{**s, "kind": "scratch"} for s in raw.scratch]
    try:
        everything = (*buffers, *(Buffer.model_validate(s) for s in scratch))
        book = AddressBook(everything, symbols)
        builder = _Builder(artifact, blob, book, len(raw.tensor_maps))
        plan = LaunchPlan.model_validate(
            {
                "task": task.id,
                "workload": workload,
                "artifact": artifact.key,
                "architecture": artifact.architecture,
                "profile": profile,
                "arena_base": ARENA_BASE,
                "buffers": everything,
                "symbols": symbols,
                "tensor_maps": raw.tensor_maps,
                "prepare": [
                    builder.operation("prepare", i, op) for i, op in enumerate(raw.phases["prepare"])
                ],
                "solve": [builder.operation("solve", i, op) for i, op in enumerate(raw.phases["solve"])],
                "answers": raw.answers,
                **raw.limits,
            }
        )
    except ValidationError as error:
        raise PlanError(f"the recording is damaged: {_first(error)}") from error
    check_plan(plan, artifact, task)
    return plan


class _Raw:
    """The recording's lines, sorted by what they describe."""

    def __init__(self, lines: Iterable[bytes]):
        self.scratch: list[dict] = []
        self.tensor_maps: list[dict] = []
        self.answers: list[dict] = []
        self.limits: dict[str, int] = {}
        self.counts: Counter[str] = Counter()
        self.phases: dict[str, list[dict]] = {"prepare": [], "solve": []}
        target: list[dict] | None = None
        for line in lines:
            try:
                item = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise PlanError("the recording is damaged: a line is no JSON") from error
            if not isinstance(item, dict):
                raise PlanError("the recording is damaged: a line is no object")
            if "op" in item and target is not None:
                self._count("operations", MAX_WITH_EVENTS)
                if item["op"] not in ("record", "wait"):
                    self._count("operations other than events", MAX_OPERATIONS)
                target.append(item)
            elif item.get("phase") in ("prepare", "solve"):
                target = self.phases[item["phase"]]
            elif "scratch" in item:
                self._count("scratch buffers", MAX_SCRATCH_COUNT)
                self.scratch.append(
                    {"name": item["scratch"], **{k: item.get(k) for k in ("address", "size")}}
                )
            elif "tensor_map" in item:
                self._count("tensor maps", MAX_TENSOR_MAPS)
                self.tensor_maps.append(item["tensor_map"])
            elif "answer" in item:
                self._count("answers", MAX_ANSWERS)
                self.answers.append({"question": item.get("to"), "answer": item["answer"]})
            elif item.keys() == {"stack_limit", "persisting_l2"}:
                self.limits = item
            elif "end" not in item:
                raise PlanError("the recording is damaged: a line of unknown kind")

    def _count(self, what: str, most: int) -> None:
        """One more of these: what is beyond the limit is not even read."""
        self.counts[what] += 1
        if self.counts[what] > most:
            raise PlanError(f"the recording holds more than {most} {what}")


class _Builder:
    """Turns raw operations into those of a plan: names for numbers, relocations for addresses."""

    def __init__(self, artifact: Artifact, blob: bytes, book: AddressBook, maps: int):
        self.artifact, self.blob, self.book, self.maps = artifact, blob, book, maps

    def operation(self, phase: str, number: int, raw: dict) -> dict:
        try:
            if raw["op"] == "kernel":
                return self._kernel(raw)
            if raw["op"] == "upload":
                return self._upload(raw)
            return raw
        except PlanError as error:
            raise PlanError(f"{phase} operation {number} ({raw['op']}): {error}") from error
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise PlanError(f"{phase} operation {number}: the recording is damaged") from error

    def _kernel(self, raw: dict) -> dict:
        module, index = raw["module"], raw["kernel"]
        if module < 0 or index < 0:
            raise IndexError(index)
        kernel = self.artifact.modules[module].kernels[index]
        data = bytes.fromhex(raw["parameters"])
        if len(data) != parameter_bytes(kernel):
            raise ValueError(len(data))
        clean, relocations, placed = extract(
            data, self.book, [offset for offset, _ in kernel.parameters], self.maps
        )
        return {
            **raw,
            "kernel": kernel.name,
            "parameters": clean,
            "relocations": relocations,
            "tensor_maps": placed,
        }

    def _upload(self, raw: dict) -> dict:
        offset, size = raw["blob"]
        if not 0 <= offset <= offset + size <= len(self.blob):
            raise ValueError(offset)
        data = self.blob[offset : offset + size]
        clean, relocations, placed = extract(data, self.book, [-raw["destination"]], self.maps)
        rest = {k: v for k, v in raw.items() if k != "blob"}
        return {**rest, "data": clean, "relocations": relocations, "tensor_maps": placed}
