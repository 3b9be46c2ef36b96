"""What a running evaluation has come to: verdicts, tokens, money, time left, in one line."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from inspect_ai.hooks import Hooks, ModelUsageData, SampleEnd, hooks
from inspect_ai.log import EvalSample

from cudahercules.evaluate.scorer import NAME


class Board:
    """Counts of one evaluation of ``total`` samples; ``tell`` is given a new line when something changes.
    ``done`` samples were finished by an earlier run."""

    def __init__(self, total: int, tell: Callable[[str], None], done: int = 0):
        self.total, self.tell, self.before = total, tell, done
        self.outcomes: Counter[str] = Counter()
        self.tokens, self.money, self.priced = 0, 0.0, True
        self.start = time.monotonic()

    def used(self, tokens: int, money: float | None) -> None:
        """A model call ended."""
        self.tokens += tokens
        self.money += money or 0.0
        self.priced &= money is not None
        self.tell(self.line())

    def ended(self, outcome: str) -> None:
        """A sample ended."""
        self.outcomes[outcome] += 1
        self.tell(self.line())

    def line(self) -> str:
        """``7 of 20: 4 correct, 3 incorrect; 81 k tokens, 0.12 US$; 40 s, about 75 s left``."""
        now = sum(self.outcomes.values())
        verdicts = ", ".join(f"{count} {name}" for name, count in self.outcomes.most_common())
        parts = [f"{self.before + now} of {self.total}" + (f": {verdicts}" if verdicts else "")]
        parts.append(
            f"{_thousands(self.tokens)} tokens" + (f", {self.money:.2f} US$" if self._has_price else "")
        )
        spent = time.monotonic() - self.start
        left = self.total - self.before - now
        parts.append(
            f"{_duration(spent)}" + (f", about {_duration(spent / now * left)} left" if now and left else "")
        )
        return "; ".join(parts)

    @property
    def _has_price(self) -> bool:
        return self.priced and self.tokens > 0


def _thousands(number: int) -> str:
    return str(number) if number < 10_000 else f"{number / 1000:.0f} k"


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


_BOARD: Board | None = None


@contextmanager
def shown_on(board: Board) -> Iterator[Board]:
    """Let ``board`` follow the evaluation that runs inside."""
    global _BOARD
    _BOARD = board
    try:
        yield board
    finally:
        _BOARD = None


@hooks(name="progress", description="One line about a running evaluation, for `hercules eval`.")
class Follow(Hooks):
    def enabled(self) -> bool:
        return _BOARD is not None

    async def on_model_usage(self, data: ModelUsageData) -> None:
        if _BOARD is not None:
            _BOARD.used(data.usage.total_tokens, data.usage.total_cost)

    async def on_sample_end(self, data: SampleEnd) -> None:
        if _BOARD is not None:
            _BOARD.ended(outcome_of(data.sample))


def outcome_of(sample: EvalSample) -> str:
    """The outcome in a sample's score; ``error`` for one that could not be judged."""
    score = (sample.scores or {}).get(NAME)
    return str(((score.metadata or {}).get("record") or {}).get("outcome", "error")) if score else "error"
