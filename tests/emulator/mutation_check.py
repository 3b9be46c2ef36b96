"""Mutants through parser, check and emitter: each is refused with a reason or accepted, in bounded time."""

from __future__ import annotations

import random
import signal
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType

from mutation_kinds import KINDS, Mutant, Pool, mutate
from mutation_units import Unit

from cudahercules.emulator.emit.module import Translation, translate
from cudahercules.emulator.ptx.parse import parse
from cudahercules.emulator.ptx.tokens import PtxError

LIMIT_S = 10.0
"""Processor seconds that parsing, checking and emitting one mutant may take; most take some milliseconds."""


class _TooLong(BaseException):
    pass


def _stop(_signal: int, _frame: FrameType | None) -> None:
    raise _TooLong


@dataclass(frozen=True, slots=True)
class Made:
    """A mutant with its number in the run, its kind, its text, and what became of it: ``unreadable`` (the
    parser named a line), ``refused`` (the check named instructions), ``accepted``, or ``finding``."""

    number: int
    kind: str
    unit: Unit
    mutant: Mutant
    text: str
    outcome: str
    detail: str = ""
    translation: Translation | None = None


@dataclass(slots=True)
class Tally:
    """Mutants by kind and outcome, and everything that should not have happened."""

    outcomes: dict[str, Counter[str]] = field(default_factory=dict)
    findings: list[Made] = field(default_factory=list)
    slowest_s: float = 0.0

    def add(self, made: Made) -> None:
        self.outcomes.setdefault(made.kind, Counter())[made.outcome] += 1
        if made.outcome == "finding":
            self.findings.append(made)


def checked(text: str) -> tuple[str, str, Translation | None]:
    """Outcome, detail and translation of one text."""
    signal.signal(signal.SIGVTALRM, _stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_S)
    try:
        translation = translate(parse(text))
    except PtxError as error:
        return ("unreadable" if "line" in str(error) else "finding"), str(error), None
    except _TooLong:
        return "finding", f"more than {LIMIT_S:g} processor seconds", None
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}"
        return "finding", f"{type(error).__name__}: {error} ({where})"[:300], None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    if translation.unsupported:
        return "refused", translation.unsupported[0].instruction, translation
    return "accepted", "", translation


def run(units: Sequence[Unit], seed: int, count: int) -> Iterator[tuple[Made, float]]:
    """``count`` mutants, kinds in turn, with the processor seconds of each. Same seed, same mutants."""
    generator = random.Random(seed)
    pool = Pool(units, generator)
    number = 0
    while number < count:
        kind = KINDS[number % len(KINDS)]
        unit = generator.choice(units)
        mutant = mutate(unit, kind, pool)
        if mutant is None:
            continue
        text = "\n".join(" ".join(s) for s in mutant) + "\n"
        start = time.process_time()
        outcome, detail, translation = checked(text)
        took = time.process_time() - start
        yield Made(number, kind, unit, mutant, text, outcome, detail, translation), took
        number += 1
