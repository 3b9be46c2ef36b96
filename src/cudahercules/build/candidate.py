"""A candidate: the source files under judgement, read once and carried as text from there on.

The path may have been written by a program under test, so nothing is followed, opened blindly or
read without a limit: links, devices and pipes are refused, sizes are looked at before content.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

from cudahercules.cache import digest
from cudahercules.errors import UsageError
from cudahercules.task.model import Model

MAX_BYTES = 2 << 20
"""All source of one candidate together. The largest single-header library kernels stay below it."""
MAX_FILES = 64
MAX_DEPTH = 4
MAX_ENTRIES = 2000
"""Directory entries looked at before the directory is called something else than a candidate."""

GENERATED_HEADER = "solve.h"
"""A file of this name at the top of a candidate is left out: the generated one takes its place."""

UNIT_SUFFIXES = (".cu",)
SOURCE_SUFFIXES = (*UNIT_SUFFIXES, ".cuh", ".h", ".hpp", ".inl")
FOREIGN_SUFFIXES = (".c", ".cc", ".cpp", ".cxx")

_SAFE_COMPONENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")


class SourceFile(Model):
    """``name`` is relative to the candidate, with ``/`` between components."""

    name: str
    text: str


class Candidate(Model):
    """``files`` are sorted by name; ``sha256`` covers their names and contents and nothing else."""

    name: str
    files: tuple[SourceFile, ...]
    sha256: str

    @property
    def units(self) -> tuple[SourceFile, ...]:
        """The files that are compiled, one translation unit each."""
        return tuple(f for f in self.files if f.name.endswith(UNIT_SUFFIXES))


def from_text(name: str, files: dict[str, str]) -> Candidate:
    """A candidate from text in memory; checks names, text and sizes like :func:`load_candidate`."""
    if not name.isprintable():
        raise UsageError(f"{name!r}: give it a name without line breaks and control characters")
    files = {file: text for file, text in files.items() if file != GENERATED_HEADER}
    if len(files) > MAX_FILES:
        raise UsageError(f"{name}: more than {MAX_FILES} source files")
    for file, text in files.items():
        _check_name(file)
        _check_folders(file, files)
        _check_text(file, text)
    total = sum(len(text.encode()) for text in files.values())
    if total > MAX_BYTES:
        raise UsageError(f"{name}: {_size(total)} of source, more than the limit of {_size(MAX_BYTES)}")
    if not any(file.endswith(UNIT_SUFFIXES) for file in files):
        raise UsageError(f"{name}: no .cu file among its sources")
    ordered = tuple(SourceFile(name=n, text=files[n]) for n in sorted(files))
    parts = [part for f in ordered for part in (f.name, f.text)]
    return Candidate(name=name, files=ordered, sha256=digest(*parts))


def load_candidate(path: str | os.PathLike[str]) -> Candidate:
    """Read one ``.cu`` file, or a directory with ``.cu``, ``.cuh``, ``.h``, ``.hpp`` and ``.inl`` files.

    In a directory, hidden entries and files of other kinds (a README, a build log) are left out.
    Raises UsageError for everything else, with the reason and what to do about it.
    """
    root = Path(path)
    try:
        mode = root.lstat().st_mode
        if stat.S_ISLNK(mode) and root.is_dir():
            mode = root.stat().st_mode
    except OSError as error:
        raise UsageError(f"cannot read {root}: {error.strerror}") from error
    except ValueError as error:  # a NUL byte in the path
        raise UsageError(f"not a file name: {str(root)!r}") from error
    if stat.S_ISDIR(mode):
        return from_text(root.resolve().name, _read_directory(root))
    if root.suffix not in UNIT_SUFFIXES:
        raise UsageError(f"{root}: expected a .cu file, or a directory that holds one")
    _check_name(root.name)
    return from_text(root.name, {root.name: _read(root, MAX_BYTES)})


def _read_directory(root: Path) -> dict[str, str]:
    files: dict[str, str] = {}
    room = MAX_BYTES
    others = []
    for entry in _walk(root, root):
        name = entry.relative_to(root).as_posix()
        if entry.suffix in FOREIGN_SUFFIXES:
            raise UsageError(
                f"{entry}: only .cu files are compiled; rename it to .cu, or move it out of the candidate"
            )
        if entry.suffix not in SOURCE_SUFFIXES:
            others.append(name)
            continue
        if name == GENERATED_HEADER:
            continue
        if len(files) == MAX_FILES:
            raise UsageError(f"{root}: more than {MAX_FILES} source files")
        _check_name(name)
        files[name] = _read(entry, room)
        room -= len(files[name].encode())
    if not any(name.endswith(UNIT_SUFFIXES) for name in files):
        found = ", ".join(sorted([*files, *others])[:5]) or "nothing"
        raise UsageError(f"{root}: no .cu file in this directory (found: {found})")
    return files


def _walk(root: Path, directory: Path) -> Iterator[Path]:
    """Files under ``directory`` in sorted order; hidden entries are skipped, links refused."""
    if len(directory.relative_to(root).parts) > MAX_DEPTH:
        raise UsageError(f"{directory}: nested deeper than {MAX_DEPTH} directories")
    try:
        with os.scandir(directory) as listing:
            entries = []
            for entry in listing:
                entries.append(entry)
                if len(entries) > MAX_ENTRIES:
                    raise UsageError(f"{directory}: more than {MAX_ENTRIES} entries; not a candidate")
    except OSError as error:
        raise UsageError(f"cannot read {directory}: {error.strerror}") from error
    for entry in sorted(entries, key=lambda e: e.name):
        if entry.name.startswith("."):
            continue
        if entry.is_symlink():
            raise UsageError(f"{entry.path} is a symbolic link; put the file itself there")
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(root, Path(entry.path))
        else:
            yield Path(entry.path)


def _check_name(name: str) -> None:
    if name.count("/") > MAX_DEPTH:
        raise UsageError(f"{name[:200]}: nested deeper than {MAX_DEPTH} directories")
    for component in name.split("/"):
        if not _SAFE_COMPONENT.fullmatch(component):
            raise UsageError(
                f"file name {name!r}: use letters, digits and . _ + - only, not beginning with . + or -"
            )
    if not name.endswith(SOURCE_SUFFIXES):
        raise UsageError(f"file name {name!r}: expected one of {', '.join(SOURCE_SUFFIXES)}")


def _check_text(name: str, text: str) -> None:
    """Text that a file could hold: UTF-8 has no halves of surrogate pairs, and compilers take no NUL."""
    if wrong := re.search("[\0\ud800-\udfff]", text):
        line = text.count("\n", 0, wrong.start()) + 1
        raise UsageError(f"{name} is not text: it holds the character {wrong[0]!r} (line {line})")


def _check_folders(name: str, files: Collection[str]) -> None:
    """No folder on the way to ``name`` is called as a file is, the generated header's name included."""
    for end in (i for i, c in enumerate(name) if c == "/"):
        if name[:end] == GENERATED_HEADER or name[:end] in files:
            raise UsageError(f"{name}: {name[:end]} is a file's name; give the folder another one")


def _read(path: Path, room: int) -> str:
    """Text of a regular file of at most ``room`` bytes."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if path.is_symlink():
            raise UsageError(f"{path} is a symbolic link; name the file itself") from error
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"{path} is not a regular file")
        if status.st_size > room:
            raise UsageError(
                f"{path}: {_size(status.st_size)}; a candidate may have {_size(MAX_BYTES)} of source in all"
            )
        try:
            data = file.read(room + 1)
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}") from error
    if len(data) > room:
        raise UsageError(f"{path} grew while it was read")
    return _decode(path, data)


def _decode(path: Path, data: bytes) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(
            f"{path} is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start} (line {line})"
        ) from error
    if (nul := data.find(b"\0")) >= 0:
        line = data.count(b"\n", 0, nul) + 1
        raise UsageError(f"{path} is not a text file: NUL byte at offset {nul} (line {line})")
    return text.removeprefix("\ufeff")


def _size(n: int) -> str:
    return f"{n / (1 << 20):.1f} MiB" if n >= 1 << 20 else f"{n} bytes"
