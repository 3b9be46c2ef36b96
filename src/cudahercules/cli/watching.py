"""What ``watch`` is made of: noticing saves, and saying in one line what changed.

Saves are noticed by polling names, sizes and times: that works on every file system (network, container
and editor that writes a new file and renames it) and costs one ``stat`` a source file.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cudahercules.build.candidate import SOURCE_SUFFIXES
from cudahercules.report.paragraph import brief, share
from cudahercules.report.terminal import clean, cut

if TYPE_CHECKING:
    from cudahercules.judge.verdict import Verdict

SETTLE_S = 0.15
"""A file counts as saved when it has not changed for so long: editors write in several steps."""
LINE = 200
"""Characters of a line, where it is no terminal's; long messages are cut, `hercules grade` has all."""

Stamp = tuple[tuple[str, int, int, int], ...]


class Saves:
    """Iterate to get one item a save: at once for a file that is there, then whenever its content has
    changed and come to rest. A save that changes nothing is none; neither is a file's absence."""

    def __init__(self, path: Path, poll_s: float, sleep: Callable[[float], None] = time.sleep):
        self.path, self.poll_s, self.sleep = path, poll_s, sleep
        self._graded = ""

    def __iter__(self) -> Iterator[None]:
        last: Stamp = ()
        while True:
            stamp = self._stamp()
            if stamp and stamp != last:
                stamp = self._settled(stamp)
                if stamp and self._is_new():
                    yield
                last = stamp
            self.sleep(self.poll_s)

    def _settled(self, stamp: Stamp) -> Stamp:
        """The stamp once it stays the same; () if the file goes away meanwhile."""
        while True:
            self.sleep(SETTLE_S)
            again = self._stamp()
            if again == stamp:
                return stamp
            stamp = again

    def _is_new(self) -> bool:
        digest = self._digest()
        if not digest or digest == self._graded:
            return False
        self._graded = digest
        return True

    def _files(self) -> list[Path]:
        if self.path.is_dir():
            return sorted(p for p in self.path.rglob("*") if p.suffix in SOURCE_SUFFIXES and p.is_file())
        return [self.path] if self.path.is_file() else []

    def _stamp(self) -> Stamp:
        found = []
        for file in self._files():
            try:
                s = file.stat()
            except OSError:  # renamed between listing and looking: the next look sees the new one
                return ()
            found.append((str(file), s.st_mtime_ns, s.st_size, s.st_ino))
        return tuple(found)

    def _digest(self) -> str:
        total = hashlib.sha256()
        for file in self._files():
            try:
                content = file.read_bytes()
            except OSError:
                return ""
            total.update(f"{file}\0{len(content)}\0".encode())
            total.update(content)
        return total.hexdigest()


@dataclass
class Session:
    """Remembers what came before, to say what is better and what is worse now."""

    clock: Callable[[], str] = field(default=lambda: time.strftime("%H:%M:%S"))
    width: int = LINE
    graded: int = 0
    correct: int = 0
    best: float | None = None
    before: str = ""

    def line(self, verdict: Verdict) -> str:
        """One line about a verdict."""
        self.graded += 1
        kind, before = verdict.kind, self.before
        self.before = kind
        if verdict.kind == "correct":
            self.correct += 1
            said = self._correct(verdict)
        else:
            said = clean(brief(verdict))
        was = f" (was {before})" if before and before != kind else ""
        return cut(f"{self.clock()} {verdict.seconds.total:4.1f} s  {kind}{was}  {said}", self.width)

    def refused(self, message: str) -> str:
        """One line about a file that is no candidate."""
        self.before = ""
        return cut(f"{self.clock()}         not graded  {message}", self.width)

    def _correct(self, verdict: Verdict) -> str:
        assert verdict.kind == "correct"
        timing = verdict.timing
        if timing.kind == "not_timed":
            worst = max((share(o) for row in verdict.checks for o in row.outputs), default=0.0)
            count = len(verdict.checks)
            return (
                f"{count} workload{'s' * (count != 1)} right, errors up to {worst:.0%} of bounds; not timed"
            )
        said = f"{timing.outcome}  {timing.ratio:.3f} [{timing.low:.3f}, {timing.high:.3f}]"
        best, self.best = self.best, max(timing.ratio, self.best or 0.0)
        if best is None:
            return said
        change = timing.ratio / best - 1
        if timing.low <= best <= timing.high:
            return f"{said}  the best so far, {best:.3f}, lies in the interval"
        return f"{said}  {change:+.1%} against the best so far, {best:.3f}"

    def summary(self) -> str:
        """What to say at the end."""
        best = f"; best {self.best:.3f} times the expert's speed" if self.best is not None else ""
        return f"\n{self.graded} graded, {self.correct} correct{best}"
