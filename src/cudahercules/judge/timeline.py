"""Where the seconds of a grading went: stages of the grading's own thread, and what ran beside it.

A stage inside another one takes its seconds away from the outer one, so that the stages add up to the time
that passed. The GPU counts as *held* while something of this grading runs on it or waits for the other
side; waiting for compilers, imports and opponents that come up is not holding.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Span:
    """``began`` and ``ended`` in seconds since the grading began. ``inside`` counts the stages around
    it; ``beside`` says that it ran in another thread."""

    stage: str
    began: float
    ended: float
    inside: int = 0
    beside: bool = False


class Timeline:
    """``clock`` gives seconds; the timeline begins with its construction."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock, self._start = clock, clock()
        self._lock = threading.Lock()
        self._open: list[list[float]] = []  # of the stages around: seconds that inner ones took
        self._own: dict[str, float] = {}
        self._held, self._held_since = 0.0, None  # type: float, float | None
        self.spans: list[Span] = []

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return self._clock() - self._start

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """What the grading's own thread does now."""
        began = self.now
        inner = [0.0]
        self._open.append(inner)
        try:
            yield
        finally:
            self._open.pop()
            self._ended(Span(name, began, self.now, inside=len(self._open)), inner[0])

    def passed(self, name: str, began: float, ended: float) -> None:
        """Note a stage that is over already."""
        if ended > began:
            self._ended(Span(name, began, ended, inside=len(self._open)), 0.0)

    def _ended(self, span: Span, inner: float) -> None:
        took = span.ended - span.began
        with self._lock:
            self.spans.append(span)
            self._own[span.stage] = self._own.get(span.stage, 0.0) + took - inner
        if self._open:
            self._open[-1][0] += took

    @contextmanager
    def beside(self, name: str) -> Iterator[None]:
        """What another thread does meanwhile."""
        began = self.now
        try:
            yield
        finally:
            with self._lock:
                self.spans.append(Span(name, began, self.now, beside=True))

    @contextmanager
    def hold(self) -> Iterator[None]:
        """The GPU is ours from here to the end of the block."""
        outermost = self._held_since is None
        if outermost:
            self._held_since = self.now
        try:
            yield
        finally:
            if outermost:
                self._held, self._held_since = self.held, None

    @property
    def held(self) -> float:
        """Seconds for which the GPU was held until now."""
        return self._held + (0.0 if self._held_since is None else self.now - self._held_since)

    def seconds(self) -> dict[str, float]:
        """Seconds by stage, without those of inner stages, in the order of their first end."""
        with self._lock:
            return {name: round(seconds, 4) for name, seconds in self._own.items()}

    def document(self) -> dict[str, Any]:
        """What ``timeline.json`` holds: the stages' seconds and every span by its beginning."""
        with self._lock:
            spans = sorted(self.spans, key=lambda s: (s.began, s.inside))
        return {
            "seconds": self.seconds(),
            "gpu_held": round(self.held, 4),
            "spans": [
                {
                    "stage": s.stage,
                    "began": round(s.began, 4),
                    "ended": round(s.ended, 4),
                    "inside": s.inside,
                    "beside": s.beside,
                }
                for s in spans
            ],
        }
