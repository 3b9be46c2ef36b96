"""What a task's hash covers: everything that a candidate is judged by, and nothing else.

That is the task as it is loaded (interface, prompt, workloads, bounds, panel), the family's ``family.py`` and
``experts.py``, and the sources of experts of ours. Honest solutions, mutants and hostile candidates prove the
bounds but judge nobody; ``strategy.md`` is advice; ``provenance`` and ``released`` say where a problem comes
from, ``opponent_note`` why its experts are no faster. None of these changes the hash, and neither do comments
in ``task.yaml``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cudahercules.task.model import Task

_JUDGES_NOBODY: dict[str, Any] = {
    **dict.fromkeys(("domain", "directory", "provenance", "opponent_note"), True),
    **dict.fromkeys(("released", "digest", "release"), True),
    **dict.fromkeys(("mutants", "hostile", "equivalent", "candidates", "beyond_emulator"), True),
    "experts": {"__all__": {"title", "packages", "source"}},
}
_OWN_PLACE = ("task.yaml", "prompt.md", "strategy.md")  # the first two are in the loaded task


def task_hash(task: Task, files: str) -> str:
    """64 hex digits over the loaded ``task`` and ``files``, the digest of :func:`family_files`.

    Fields with their default are left out: one that a later harness adds changes no hash."""
    content = task.model_dump(mode="json", exclude=_JUDGES_NOBODY, exclude_defaults=True)
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(f"{files}\0{text}".encode()).hexdigest()


def family_files(directory: Path, proofs: set[str], experts: set[str]) -> str:
    """The digest of the names and contents of the family's files that judge a candidate.

    ``proofs`` names honest, wrong and hostile solutions; those that are the source of one of the ``experts``
    count all the same, and so does every file that is not mentioned anywhere (a header, a table)."""
    total = hashlib.sha256()
    opponents = {f"{name}.cu" for name in experts}
    for name, path in sorted(_files(directory)):
        if name in opponents or not _is_proof(name, proofs):
            total.update(f"{name}\0{path.stat().st_size}\0".encode())
            total.update(path.read_bytes())
    return total.hexdigest()


def _files(directory: Path) -> Iterator[tuple[str, Path]]:
    for path in directory.rglob("*"):
        name = path.relative_to(directory)
        hidden = "__pycache__" in name.parts or path.name.startswith(".")
        if path.is_file() and not hidden and name.as_posix() not in _OWN_PLACE:
            yield name.as_posix(), path


def _is_proof(name: str, proofs: set[str]) -> bool:
    """Whether the file is one of the ``proofs`` or lies in one of them that is a directory."""
    return any(name == proof or name.startswith(proof.rstrip("/") + "/") for proof in proofs)
