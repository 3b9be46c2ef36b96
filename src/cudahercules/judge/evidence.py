"""The evidence directory: all that is needed to look a verdict over, or to measure its plans again.

    verdict.json       the verdict as --json prints it
    candidate/         the sources as they were graded
    solve.h prompt.md  what the candidate was asked to define
    device/            cubin and PTX of each translation unit
    plans/             one launch plan a workload
    outputs.json       errors of every output that was checked, the failing one included
    fingerprint.json   task release, harness, compiler, device
    timeline.json      where the seconds went, stage by stage (GPU judge)
    manifest.json      SHA-256 of every file above

The directory appears complete or not at all. The manifest finds damage and careless edits; it is not a
signature.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cudahercules.cache import file_digest
from cudahercules.errors import MachineError, UsageError

if TYPE_CHECKING:
    from cudahercules.build.artifact import Artifact
    from cudahercules.build.candidate import Candidate
    from cudahercules.judge.timeline import Timeline
    from cudahercules.judge.verdict import Verdict
    from cudahercules.record.plan import LaunchPlan
    from cudahercules.task.model import Task

MANIFEST = "manifest.json"
KIND = "cudahercules evidence"
VERSION = 1


@dataclass
class Evidence:
    """What a grading leaves behind; filled by the judges, written by :func:`write`."""

    task: Task
    candidate: Candidate | None = None
    artifact: Artifact | None = None
    plans: dict[str, LaunchPlan] = field(default_factory=dict)
    timeline: Timeline | None = None


def check_directory(directory: Path) -> None:
    """Refuse a directory that is not ours. Raises UsageError; does not create anything."""
    if not directory.exists() and not directory.is_symlink():
        return
    if not directory.is_dir():
        raise UsageError(f"--evidence {directory}: this is a file, name a directory")
    if any(directory.iterdir()) and not _is_evidence(directory):
        raise UsageError(
            f"--evidence {directory}: the directory holds other files and is left alone; name a new directory"
        )


def write(evidence: Evidence, verdict: Verdict, directory: Path) -> None:
    """Write the evidence of ``verdict`` to ``directory``, replacing older evidence there.

    Raises UsageError if ``directory`` holds anything else, MachineError if the disk refuses.
    """
    check_directory(directory)
    with _disk_errors(directory):
        directory.parent.mkdir(parents=True, exist_ok=True)
        private = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
        try:
            _fill(private, evidence, verdict)
            _write_manifest(private)
            private.chmod(0o755)
            _publish(private, directory)
        finally:
            shutil.rmtree(private, ignore_errors=True)


def _fill(directory: Path, evidence: Evidence, verdict: Verdict) -> None:
    from cudahercules.task.header import solve_header
    from cudahercules.task.prompt import prompt

    _text(directory / "verdict.json", verdict.model_dump_json(indent=1))
    _text(directory / "solve.h", solve_header(evidence.task))
    _text(directory / "prompt.md", prompt(evidence.task))
    _text(directory / "fingerprint.json", verdict.fingerprint.model_dump_json(indent=1))
    _text(directory / "outputs.json", json.dumps(_outputs(verdict), indent=1))
    if evidence.candidate is not None:
        for source in evidence.candidate.files:
            _text(directory / "candidate" / source.name, source.text)
    if evidence.artifact is not None:
        for module in evidence.artifact.modules:
            for name in (module.cubin, module.ptx):
                target = directory / "device" / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(evidence.artifact.path(name), target)
    if evidence.timeline is not None:
        _text(directory / "timeline.json", json.dumps(evidence.timeline.document(), indent=1))
    for workload, plan in evidence.plans.items():
        _text(directory / "plans" / f"{workload}.json", plan.canonical_json())


def _text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())


def _outputs(verdict: Verdict) -> list[dict[str, Any]]:
    """Every output that was checked, one row each, with its workload and whether it passed."""
    checked = verdict.checks if verdict.kind == "correct" else getattr(verdict, "passed", ())
    rows: list[dict[str, Any]] = [
        {"workload": row.workload, "passed": True, "seed": row.seed, **output.model_dump()}
        for row in checked
        for output in row.outputs
    ]
    if verdict.kind == "incorrect":
        rows.append({"workload": verdict.workload, "passed": False, **verdict.wrong.model_dump(mode="json")})
    return rows


def _files(directory: Path) -> list[Path]:
    return sorted(p for p in directory.rglob("*") if p.is_symlink() or not p.is_dir())


def _write_manifest(directory: Path) -> None:
    sums = {p.relative_to(directory).as_posix(): file_digest(p) for p in _files(directory)}
    manifest = {"kind": KIND, "version": VERSION, "sha256": sums}
    _text(directory / MANIFEST, json.dumps(manifest, indent=1, sort_keys=True))


def _publish(private: Path, directory: Path) -> None:
    """Put ``private`` in the place of ``directory``: one rename, two where old evidence is there."""
    if not directory.exists():
        private.rename(directory)
        return
    aside = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", suffix=".old", dir=directory.parent))
    try:
        directory.rename(aside / "evidence")
        private.rename(directory)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _read_manifest(directory: Path) -> dict[str, str] | None:
    """The sums, or None where there is no manifest of ours."""
    try:
        manifest = json.loads((directory / MANIFEST).read_text())
    except (OSError, ValueError):
        return None
    if not isinstance(manifest, dict) or manifest.get("kind") != KIND:
        return None
    sums = manifest.get("sha256")
    if not isinstance(sums, dict) or not all(isinstance(s, str) for s in sums.values()):
        return None
    return sums


def _is_evidence(directory: Path) -> bool:
    return _read_manifest(directory) is not None


def verify(directory: Path) -> tuple[str, ...]:
    """What is wrong with an evidence directory: one sentence each, nothing if all is well.

    Compares every file with the manifest, then the verdict with the plans and the sources it names.
    Raises UsageError if ``directory`` is no evidence directory.
    """
    if not directory.is_dir():
        raise UsageError(f"{directory}: there is no such directory")
    sums = _read_manifest(directory)
    if sums is None:
        raise UsageError(
            f"{directory}: no evidence here (no {MANIFEST} that `hercules grade --evidence` wrote)"
        )
    present = {p.relative_to(directory).as_posix(): p for p in _files(directory)}
    present.pop(MANIFEST, None)
    problems = [f"{name} is missing" for name in sums if name not in present]
    problems += [f"{name} is not in the manifest" for name in present if name not in sums]
    for name, path in present.items():
        if name in sums and (path.is_symlink() or file_digest(path) != sums[name]):
            problems.append(f"{name} was changed")
    return tuple(problems) if problems else _disagreements(directory)


def _disagreements(directory: Path) -> tuple[str, ...]:
    """Where verdict, plans and sources contradict each other although their sums are right."""
    import hashlib

    from cudahercules.build.candidate import load_candidate
    from cudahercules.judge.verdict import VERDICT

    try:
        verdict = VERDICT.validate_json((directory / "verdict.json").read_text())
    except (OSError, ValueError) as error:  # no UTF-8, no JSON, no verdict
        return (f"verdict.json cannot be read: {str(error).splitlines()[0]}",)
    problems = []
    plans = {p.name: p for p in (directory / "plans").glob("*.json") if p.is_file()}
    for row in verdict.checks if verdict.kind == "correct" else getattr(verdict, "passed", ()):
        plan = plans.get(f"{row.workload}.json")
        if plan is None:
            problems.append(f"plans/{row.workload}.json is missing, the verdict names it")
        elif hashlib.sha256(plan.read_bytes()).hexdigest() != row.plan_sha256:
            problems.append(f"plans/{row.workload}.json is not the plan that the verdict names")
    sources = directory / "candidate"
    if sources.is_dir():
        files = _files(sources)
        candidate = load_candidate(files[0] if len(files) == 1 else sources)
        if candidate.sha256 != verdict.candidate_sha256:
            problems.append("candidate/ does not hold the sources that the verdict names")
    return tuple(problems)


@contextmanager
def _disk_errors(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            message = f"no space left for the evidence in {directory}: free some or name another disk"
            raise MachineError(message) from error
        raise MachineError(
            f"cannot write the evidence to {directory}: {os.strerror(error.errno or 0)}"
        ) from error
