"""A contestant's GPU processes: used in turns, one workload after the other, and ended together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from cudahercules.errors import MachineError
from cudahercules.replay.interface import (
    AnswersDiffer,
    Contestant,
    ContestantFault,
    ContestantHang,
    ExpertDeclined,
)

LANES = 2
"""Processes of a contestant that is a plan: instances alternate between them."""


def end(processes: Sequence[Any], *, waiting: bool = True) -> None:
    """End warm processes or contestants at once: they hold nothing that is still wanted, and asking
    politely would wait for an import of torch to finish. All die at the same time (giving the memory of a
    context back takes a while); without ``waiting`` that happens beside what comes next."""
    dying = []
    for process in processes:
        if process is not None:
            forget = getattr(process, "forget", None)
            if forget is not None:
                forget()
            dying.append(getattr(process, "process", process))
            dying[-1].signal_end()
    if waiting:
        for process in dying:
            process.kill()
    elif dying:
        _burials.append(threading.Thread(target=end, args=(dying,), name="end", daemon=True))
        _burials[-1].start()


_burials: list[threading.Thread] = []
"""Threads that wait for processes that were killed."""


def await_ends() -> None:
    """Wait until every process that was ended has given its memory back."""
    while _burials:
        _burials.pop().join()


class Lane:
    """One GPU process of a contestant: loads one workload after the other, each on fresh memory."""

    def __init__(self, process: object | None):
        self.process = process

    def open(self, start: Callable[[object | None], Contestant]) -> Contestant:
        """``start(process)`` in this lane's process; one that died, or dies on the way, is forgotten."""
        if getattr(getattr(self.process, "process", self.process), "dead", False):
            self.process = None
        try:
            self.process = contestant = start(self.process)
        except (AnswersDiffer, ExpertDeclined):
            raise  # the process lives on and takes what comes next
        except BaseException:
            self.process = None
            raise
        return contestant

    def rest(self) -> None:
        """Let the contestant give its memory back; one that fails at that is forgotten."""
        if hasattr(self.process, "rest"):
            try:
                self.process = self.process.rest()
            except (MachineError, ContestantFault, ContestantHang):
                self.process = None

    def take(self) -> object | None:
        """The process, which the lane forgets."""
        process, self.process = self.process, None
        return process


class Lanes:
    """Lanes that are used in turns, and the way to start something in them."""

    def __init__(self, lanes: list[Lane]):
        self.lanes = lanes
        self._turn = 0

    def open(self, start: Callable[[object | None], Contestant]) -> Contestant:
        """``start(process)`` in the lane whose turn it is. A start that fails keeps its turn: the other
        lane's contestant may be in use."""
        contestant = self.lanes[self._turn % len(self.lanes)].open(start)
        self._turn += 1
        return contestant

    def rest(self) -> None:
        for lane in self.lanes:
            lane.rest()

    @property
    def device_bytes(self) -> int:
        """What the contestants in the lanes hold on the device, apart from their contexts."""
        ready = (getattr(lane.process, "ready", None) for lane in self.lanes)
        return sum(r.device_bytes for r in ready if r is not None)

    def close(self, *, waiting: bool = True) -> None:
        """End the processes; without ``waiting``, beside what comes next."""
        end([lane.take() for lane in self.lanes], waiting=waiting)
