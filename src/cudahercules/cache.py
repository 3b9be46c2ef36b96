"""A content-addressed store on disk: finished entries only, safe under concurrency and corruption.

``entry(kind, key, make)`` returns the directory of an entry and builds it at most once at a time:
``make`` fills a private directory, a manifest of SHA-256 sums is added, and one rename publishes
it. An entry whose files do not match its manifest is thrown away and built again.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cudahercules.errors import MachineError

MANIFEST = "manifest.sha256.json"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""No space on the disk, in a quota, or under a limit on the size of files."""


def cache_root() -> Path:
    """``$HERCULES_CACHE``, else ``$XDG_CACHE_HOME/cudahercules``, else ``~/.cache/cudahercules``."""
    if chosen := os.environ.get("HERCULES_CACHE"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "cudahercules"


def digest(*parts: str | bytes) -> str:
    """SHA-256 over length-prefixed parts, as hex: ('ab', 'c') and ('a', 'bc') differ."""
    h = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        h.update(len(data).to_bytes(8, "little"))
        h.update(data)
    return h.hexdigest()


def file_digest(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def entry(kind: str, key: str, make: Callable[[Path], None]) -> tuple[Path, bool]:
    """The directory of entry ``key`` and whether it was there already.

    ``make(directory)`` fills an empty directory; an exception of its own passes through and leaves
    nothing behind. Raises MachineError if the cache cannot be written (full disk, permissions).
    """
    root = cache_root() / kind / key[:2]
    final = root / key
    if _intact(final):
        return final, True
    _make_root(root)
    with explain_disk_errors(root), (root / f"{key}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _intact(final):
            return final, True
        shutil.rmtree(final, ignore_errors=True)
        for left in root.glob(f"{key[:12]}.*.part"):  # of a process that was killed: we hold its lock
            shutil.rmtree(left, ignore_errors=True)
        private = Path(tempfile.mkdtemp(prefix=f"{key[:12]}.", suffix=".part", dir=root))
        try:
            make(private)
            sums = {str(p.relative_to(private)): file_digest(p) for p in _files(private)}
            (private / MANIFEST).write_text(json.dumps(sums, sort_keys=True))
            private.chmod(0o755)
            private.rename(final)
        finally:
            shutil.rmtree(private, ignore_errors=True)
    return final, False


def _make_root(root: Path) -> None:
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if error.errno in _FULL:
            with explain_disk_errors(root):
                raise
        raise MachineError(
            f"cannot make {root} ({error.strerror}): set HERCULES_CACHE to a directory you own"
        ) from error


def _files(directory: Path) -> Iterator[Path]:
    return (p for p in sorted(directory.rglob("*")) if p.is_file())


def _intact(directory: Path) -> bool:
    try:
        sums = json.loads((directory / MANIFEST).read_text())
        return isinstance(sums, dict) and all(
            file_digest(directory / name) == value for name, value in sums.items()
        )
    except (OSError, ValueError):
        return False


@contextmanager
def explain_disk_errors(where: Path) -> Iterator[None]:
    """Turn the disk's refusals under ``where`` into one clear MachineError."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise MachineError(
                f"no space left for {where}: free some, or set HERCULES_CACHE to another disk"
            ) from error
        if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM, errno.ENOTDIR, errno.EEXIST):
            raise MachineError(
                f"cannot write {where} ({error.strerror}): set HERCULES_CACHE to a directory you own"
            ) from error
        raise
