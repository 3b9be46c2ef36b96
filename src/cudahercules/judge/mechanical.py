"""Mistakes made by machine in honest solutions: the author of a bound does not choose them all.

In the device code of each honest solution one thing at a time is changed:

``barrier``       a ``__syncthreads();`` or ``__syncwarp();`` is left out
``one_too_many``  a comparison lets one more through (``<`` becomes ``<=``); not in loops over constants:
                  the compiler leaves accesses past a register array out
``one_too_few``   a comparison lets one less through (``<`` becomes ``< -1 +``)
``half_sum``      a ``float`` that is summed up is rounded to half precision at every step

Each is compiled and graded on the CPU judge; what passes there runs in the checking build of ``debug``, which
finds a race that spoils no answer. It must be seen by one of them, unless the compiler makes the same code
of it, or the family records under ``equivalent`` why it is no mistake.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cudahercules.build.artifact import Artifact
from cudahercules.build.candidate import Candidate, load_candidate
from cudahercules.build.compile import build
from cudahercules.build.toolchain import resolve_architecture
from cudahercules.judge.debug import NotExamined, debug
from cudahercules.judge.grade import grade
from cudahercules.judge.lint import LintRow
from cudahercules.judge.protocol import CHECKED_ROLES
from cudahercules.task.model import Equivalent, Task

Kind = Literal["barrier", "one_too_many", "one_too_few", "half_sum"]
Key = tuple[str, str, str]
Fate = Literal["killed", "survived", "same code", "does not build", "not run"]

AT_MOST = 40
"""Changes tried for a task, evenly spread over its solutions: a compile takes a second."""
LIMIT_S = 5.0
"""Wall seconds for one workload: a loop that never ends must not hold up the others."""
CHECKED_S = 20.0
"""Wall seconds for all workloads in the checking build, which is slower: what does not end says nothing."""
FINDING = "debug: "
SEED = "mechanical"
"""The same inputs each time, so that what survives once survives again."""

MANY = {"<": "<=", ">": ">=", "<=": "<= 1 +", ">=": ">"}
CONSTANT = re.compile(r" [A-Z0-9_+*/() -]+;")
FEW = {"<": "< -1 +", ">": "> 1 +", "<=": "<", ">=": ">= -1 +"}


@dataclass(frozen=True)
class Change:
    """``text`` is the whole changed source of ``file``; ``at`` is line and column of the original."""

    file: str
    at: str
    kind: Kind
    text: str

    @property
    def key(self) -> Key:
        """What a family's record of it names."""
        return self.file, self.at, self.kind

    @property
    def name(self) -> str:
        return f"{self.file}:{self.at} {self.kind}"


def changes(file: str, source: str) -> list[Change]:
    """Every change of one source, in the order of its lines."""
    code = _without_comments(source)
    found: list[tuple[int, Kind, str]] = []
    for begin, end in _device_bodies(code):
        for start, stop, kind, replacement in _edits(code, begin, end):
            head = "#include <cuda_fp16.h>\n" if kind == "half_sum" else ""
            found.append((start, kind, head + source[:start] + replacement + source[stop:]))
    unique = {(start, kind): text for start, kind, text in found}  # nested bodies are seen twice
    return [Change(file, _place(source, start), kind, text) for (start, kind), text in sorted(unique.items())]


def _place(source: str, offset: int) -> str:
    return f"{source.count(chr(10), 0, offset) + 1}:{offset - source.rfind(chr(10), 0, offset)}"


def _without_comments(source: str) -> str:
    """The source with comments and strings blanked, every offset unchanged."""
    pattern = r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\""
    return re.sub(pattern, lambda m: re.sub(r"[^\n]", " ", m[0]), source, flags=re.DOTALL)


def _device_bodies(code: str) -> Iterator[tuple[int, int]]:
    """Where the bodies of ``__global__`` and ``__device__`` functions begin and end."""
    for match in re.finditer(r"\b__(?:global|device)__\b", code):
        opening = re.compile(r"[{;=]").search(code, match.end())
        if opening is not None and opening[0] == "{":
            yield opening.start(), _closing(code, opening.start())


def _closing(code: str, opening: int) -> int:
    depth = 0
    for offset in range(opening, len(code)):
        depth += {"{": 1, "}": -1}.get(code[offset], 0)
        if depth == 0:
            return offset
    return len(code)


def _edits(code: str, begin: int, end: int) -> Iterator[tuple[int, int, Kind, str]]:
    """Offset, end, kind and replacement of every change between ``begin`` and ``end``."""
    for match in re.compile(r"\b__sync(?:threads|warp)\s*\([^;]*\)\s*;").finditer(code, begin, end):
        yield match.start(), match.end(), "barrier", ";"
    # Spaces on both sides tell a comparison from a template's brackets.
    for match in re.compile(r"(?<= )(?:<=|>=|<|>)(?= )").finditer(code, begin, end):
        if not _is_constant_loop(code, match):
            yield match.start(), match.end(), "one_too_many", MANY[match[0]]
        yield match.start(), match.end(), "one_too_few", FEW[match[0]]
    names = "|".join({re.escape(n) for n in re.findall(r"\bfloat\s+(\w+)\s*[\[=;{]", code[begin:end])})
    if names:
        place = rf"(?<![\w.>])(?P<place>(?:{names})(?:\[[^\]]*\])*)"
        for match in re.compile(place + r"\s*\+=\s*(?P<term>[^;]+);").finditer(code, begin, end):
            where, term = match["place"], match["term"]
            rounded = f"{where} = __half2float(__float2half({where} + ({term})));"
            yield match.start(), match.end(), "half_sum", rounded
        fused = place + r"\s*=\s*(?P<sum>(?:__)?fmaf\w*\s*\([^;]*\)|(?P=place)\s*\+[^;]+);"
        for match in re.compile(fused).finditer(code, begin, end):
            if match["place"] in match["sum"]:
                rounded = f"{match['place']} = __half2float(__float2half({match['sum']}));"
                yield match.start(), match.end(), "half_sum", rounded


def _is_constant_loop(code: str, comparison: re.Match[str]) -> bool:
    """Whether ``comparison`` bounds a for loop by literals and names in capitals."""
    line = code[code.rfind("\n", 0, comparison.start()) + 1 : comparison.start()]
    return "for (" in line and CONSTANT.match(code, comparison.end()) is not None


# --- trying them -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tried:
    change: Change
    fate: Fate
    verdict: str
    seconds: float


def mechanical_rows(
    task: Task, *, workers: int = 2, notify: Callable[[str], None] | None = None
) -> list[LintRow]:
    """Rows for ``lint``: the count, then each change that passes, recorded or not, and each record that fits
    no change that passes. Raises UsageError and MachineError like ``grade``."""
    tried = list(try_all(task, workers=workers, notify=notify))
    recorded: dict[Key, Equivalent] = {
        (e.file, e.at, e.change): e for e in task.equivalent if e.file in task.candidates
    }
    survived = [t for t in tried if t.fate == "survived"]
    rows = [_count(tried, survived, [t for t in survived if t.change.key not in recorded])]
    rows += [_survivor(t, recorded.get(t.change.key)) for t in survived]
    possible = {change.key for _, change in all_changes(task)}
    seen = {t.change.key: t.verdict for t in tried if t.fate == "killed"}
    for key, entry in recorded.items():
        if key not in possible:
            rows.append(_stale(entry, "there is no such change: the lines have moved"))
        elif key in seen:
            rows.append(_stale(entry, f"it is seen ({seen[key]})"))
    return rows


def all_changes(task: Task) -> list[tuple[Candidate, Change]]:
    """Every change of every honest solution that the emulator can run."""
    files = [f for f in task.candidates if f not in task.beyond_emulator]
    candidates = [(file, load_candidate(task.directory / file)) for file in files]
    return [
        (candidate, change)
        for file, candidate in candidates
        for source in candidate.files
        for change in _renamed(candidate, file, changes(source.name, source.text))
    ]


def try_all(task: Task, *, workers: int = 2, notify: Callable[[str], None] | None = None) -> Iterator[Tried]:
    """All changes tried, in their order; AT_MOST of them where there are more."""
    jobs = all_changes(task)
    jobs = jobs[:: -(-len(jobs) // AT_MOST)] if len(jobs) > AT_MOST else jobs
    originals = {c.sha256: _device_code(task, c) for c in {c.sha256: c for c, _ in jobs}.values()}
    with ThreadPoolExecutor(workers, "mechanical") as pool:
        results = pool.map(lambda job: _try(task, job[0], job[1], originals[job[0].sha256]), jobs)
        for number, tried in enumerate(results, 1):
            if notify is not None:
                notify(f"{number} of {len(jobs)} changes by machine tried")
            yield tried


def _renamed(candidate: Candidate, file: str, found: Sequence[Change]) -> list[Change]:
    """Changes named by the solution as the family lists it; those of a directory by the path in it."""
    single = len(candidate.files) == 1
    return [Change(file if single else f"{file}/{c.file}", c.at, c.kind, c.text) for c in found]


def _try(task: Task, candidate: Candidate, change: Change, original: bytes) -> Tried:
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hercules-mechanical-") as directory:
        path = _written(candidate, change, Path(directory))
        code = _device_code(task, load_candidate(path))
        if code == original:
            return Tried(change, "same code", "", time.monotonic() - start)
        verdict = grade(task, path, "cpu", seed=SEED, limit_s=LIMIT_S)
        finding = _finding(task, path) if verdict.kind == "correct" else ""
    seconds = time.monotonic() - start
    if finding:
        return Tried(change, "killed", FINDING + finding, seconds)
    fates: dict[str, Fate] = {
        "correct": "survived",
        "build_error": "does not build",
        "unsupported_on_cpu": "not run",
        "infrastructure_error": "not run",
    }
    return Tried(change, fates.get(verdict.kind, "killed"), verdict.kind, seconds)


def _finding(task: Task, path: Path) -> str:
    """The kind of the first thing that ``debug`` finds in a small workload; "" for nothing in time."""
    end = time.monotonic() + CHECKED_S
    for workload in task.workloads_of(*CHECKED_ROLES):
        left = end - time.monotonic()
        if left < 1:
            break
        with suppress(NotExamined):
            report = debug(task, path, workload.name, seed=SEED, limit_s=left)
            if report.findings and report.ending != "out_of_fuel":
                return report.findings[0].kind
    return ""


def _written(candidate: Candidate, change: Change, directory: Path) -> Path:
    """The changed solution under the names of the original, so that equal code is equal to the byte."""
    single = len(candidate.files) == 1
    for file in candidate.files:
        path = directory / "changed" / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        changed = single or change.file.endswith(f"/{file.name}")
        path.write_text(change.text if changed else file.text, encoding="utf-8")
    return directory / "changed" / candidate.files[0].name if single else directory / "changed"


def _device_code(task: Task, candidate: Candidate) -> bytes:
    """The PTX of all modules; empty where it does not build."""
    artifact = build(candidate, task, resolve_architecture(task.target))
    if not isinstance(artifact, Artifact):
        return b""
    return b"\0".join(artifact.path(module.ptx).read_bytes() for module in artifact.modules)


def _count(tried: Sequence[Tried], survived: Sequence[Tried], unknown: Sequence[Tried]) -> LintRow:
    counts = {fate: sum(t.fate == fate for t in tried) for fate in ("killed", "same code", "does not build")}
    counted = counts["killed"] + len(unknown)
    detail = f"{counts['killed']} of {counted} rejected"
    detail += f" ({sum(t.verdict.startswith(FINDING) for t in tried)} by debug alone)"
    detail += f", {len(survived) - len(unknown)} recorded as no mistake"
    detail += f", {counts['same code']} compile to the same code, {counts['does not build']} not at all"
    left_out = sum(t.fate == "not run" for t in tried)
    return LintRow(
        subject="changes by machine",
        sort="mechanical",
        expected="rejected",
        got="accepted" if unknown else "rejected" if counted else "",
        outcome="failed" if unknown else "ok" if counted else "not_run",
        detail=detail + (f", {left_out} not run" if left_out else ""),
        seconds=round(sum(t.seconds for t in tried), 2),
    )


def _survivor(tried: Tried, entry: Equivalent | None) -> LintRow:
    return LintRow(
        subject=tried.change.name,
        sort="mechanical",
        expected="accepted" if entry else "rejected",
        got="accepted",
        outcome="ok" if entry else "failed",
        detail=entry.reason if entry else "add a workload that tells, or say under equivalent why none can",
        seconds=round(tried.seconds, 2),
    )


def _stale(entry: Equivalent, happened: str) -> LintRow:
    return LintRow(
        subject=f"{entry.file}:{entry.at} {entry.change}",
        sort="mechanical",
        expected="accepted",
        got="",
        outcome="failed",
        detail=f"recorded as no mistake, but {happened}",
    )
