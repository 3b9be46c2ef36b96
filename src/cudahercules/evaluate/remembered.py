"""Guidance verdicts of one evaluation, kept beside its logs.

A resumed sample plays its rounds again, and its model calls come from the cache only if every prompt is the
same to the letter. Prompts quote measured times, which never repeat; so what guidance said once about a
program it says again. Final verdicts are not kept: they belong to finished samples.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from cudahercules.cache import digest
from cudahercules.judge.verdict import VERDICT, Verdict
from cudahercules.task.model import Task

FILE = "guidance.jsonl"


class Remembered:
    """Verdicts by key in a file of lines, ``key<TAB>verdict``. In memory there are only places in the file; a
    last line that was cut off is dropped."""

    def __init__(self, path: Path):
        self._path, self._lock = path, threading.Lock()
        self._places: dict[str, int] = {}
        place = 0
        for line in path.read_bytes().splitlines(keepends=True) if path.exists() else ():
            if line.endswith(b"\n"):
                self._places[line.partition(b"\t")[0].decode()] = place
                place += len(line)
        if path.exists():
            with path.open("r+b") as file:
                file.truncate(place)

    def get(self, key: str) -> Verdict | None:
        with self._lock:
            if key not in self._places:
                return None
            with self._path.open("rb") as file:
                file.seek(self._places[key])
                return VERDICT.validate_json(file.readline().partition(b"\t")[2])

    def put(self, key: str, verdict: Verdict) -> None:
        with self._lock, self._path.open("ab") as file:
            self._places[key] = file.tell()
            file.write(f"{key}\t{verdict.model_dump_json()}\n".encode())


def key_of(task: Task, files: Mapping[str, str], device: str, seed: str) -> str:
    """What a guidance verdict depends on."""
    workloads = ",".join(w.name for w in task.workloads)
    sources = [part for item in sorted(files.items()) for part in item]
    return digest(task.id, task.release, workloads, device, seed, *sources)


_CURRENT: Remembered | None = None


def current() -> Remembered | None:
    """The memory of the evaluation that runs; None where none was opened (Inspect's own command line)."""
    return _CURRENT


@contextmanager
def remembering(directory: Path) -> Iterator[None]:
    """Keep guidance verdicts in ``directory`` while the block runs."""
    global _CURRENT
    _CURRENT = Remembered(directory / FILE)
    try:
        yield
    finally:
        _CURRENT = None
