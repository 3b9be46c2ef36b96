"""The main loop of a GPU process, the same for candidate and expert.

``python -m cudahercules.replay.child SIDE DEVICE DESCRIPTOR [wait]`` speaks messages over the socket with
that descriptor until told to end. With ``wait`` it imports what it needs and leaves the GPU alone until the
order to begin comes. A thread watches the socket: when the judge is gone, for whatever
reason, this process ends at once, even in the middle of a launch.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import threading
from collections.abc import Callable
from typing import Protocol

from pydantic import ValidationError

from cudahercules.errors import HerculesError, PlanError
from cudahercules.replay.driver import OUT_OF_MEMORY, Context, DriverError, bindings
from cudahercules.replay.interface import AnswersDiffer, CannotReplay, Ready
from cudahercules.replay.kept import Keeper
from cudahercules.replay.messages import (
    ORDER,
    Alive,
    Begin,
    Channel,
    Closed,
    Declines,
    Done,
    End,
    ExpertFailed,
    Failed,
    Hand,
    Load,
    Loaded,
    Release,
    Rest,
    Run,
    Samples,
    TooLarge,
)
from cudahercules.replay.sampler import Sampler


class Side(Protocol):
    """What differs between candidate and expert. ``load`` may be called again for other work."""

    sampler: Sampler

    def load(self, order: Load, channel: Channel) -> Ready | None:
        """Make ready for samples; None after stepping through a plan."""

    def close(self) -> None: ...


def watch(sock: socket.socket) -> None:
    """End this process when the other end of ``sock`` closes."""

    def wait() -> None:
        poll = select.poll()
        poll.register(sock, select.POLLRDHUP | select.POLLHUP | select.POLLERR)
        poll.poll()
        os._exit(3)

    threading.Thread(target=wait, daemon=True).start()


def failure(error: Exception) -> Failed:
    """The message that tells the judge about ``error``."""
    match error:
        case AnswersDiffer():
            return Failed(why="answers", message=str(error), answers=error.differences)
        case CannotReplay() | PlanError():
            return Failed(why="cannot", message=str(error))
        case Declines():
            return Failed(why="declined", message=str(error))
        case TooLarge():
            return Failed(why="machine", message=str(error), code=OUT_OF_MEMORY)
        case ExpertFailed():
            return Failed(why="expert", message=str(error))
        case DriverError() if error.sticky:
            return Failed(why="device", message=str(error), code=error.code)
        case DriverError():  # what a plan asked for in vain is CannotReplay: this is the machine, or us
            hint = ": the GPU has too little free memory" if error.code == OUT_OF_MEMORY else ""
            return Failed(why="machine", message=f"{error}{hint}", code=error.code)
        case HerculesError() | MemoryError():
            return Failed(why="machine", message=str(error) or "out of host memory")
        case _:
            raise error  # a defect of ours: the traceback goes to the log that the judge shows


def serve(channel: Channel, context: Context, side: Side, keeper: Keeper) -> None:
    """Answer orders until ``end``. After a failure this process takes no more orders."""
    while True:
        data, _ = channel.receive()
        order = ORDER.validate_python(data)
        if isinstance(order, End):
            return
        try:
            _obey(order, channel, side, keeper)
            continue
        except (DriverError, HerculesError, CannotReplay, AnswersDiffer, ExpertFailed, MemoryError) as error:
            answer, goes_on = failure(error), isinstance(error, (AnswersDiffer, Declines))
        if goes_on:  # the error held on to what was allocated until here
            side.close()
        channel.send(answer)
        if not goes_on:
            return


def _obey(
    order: Begin | Load | Run | Hand | Release | Rest, channel: Channel, side: Side, keeper: Keeper
) -> None:
    match order:
        case Begin():
            pass  # to a process that had begun already
        case Load():
            keeper.close()
            ready = side.load(order, channel)
            if ready is not None:
                channel.send(Loaded(ready=ready))
        case Run():
            channel.send(Samples(samples=tuple(side.sampler.take(r) for r in order.requests)))
        case Hand():
            slot = keeper.slots[order.kept]
            channel.send(slot.handed, [slot.descriptor])
        case Release():
            keeper.release(order.kept)
            channel.send(Done())
        case Rest():
            keeper.close()
            side.close()
            channel.send(Done())


def side_class(name: str) -> Callable[[Context, Keeper], Side]:
    if name == "candidate":
        from cudahercules.replay.process import CandidateSide

        return CandidateSide
    if name == "library":
        from cudahercules.replay.library import LibrarySide

        return LibrarySide
    from cudahercules.replay.expert import ExpertSide, import_torch

    import_torch()  # seconds, which a process that waits has behind it when it begins
    return ExpertSide


def await_begin(channel: Channel) -> None:
    """Raises Closed if anything but the order to begin comes."""
    order = ORDER.validate_python(channel.receive()[0])
    if not isinstance(order, Begin):
        raise Closed(f"{order.do} before begin")


def main(arguments: list[str]) -> int:
    name, device, descriptor = arguments[0], int(arguments[1]), int(arguments[2])
    sock = socket.socket(fileno=descriptor)
    watch(sock)
    channel = Channel(sock)
    try:
        try:
            make_side = side_class(name)
            bindings()
            if arguments[3:] == ["wait"]:
                await_begin(channel)
            context = Context(device)
            keeper = Keeper(device)
            side = make_side(context, keeper)
        except (DriverError, HerculesError) as error:
            channel.send(failure(error).model_copy(update={"why": "machine"}))
            return 1
        channel.send(Alive(device=context.name, capability=context.compute_capability, pid=os.getpid()))
        serve(channel, context, side, keeper)
    except (Closed, ValidationError) as error:
        print(f"the judge went away or spoke nonsense: {error}", file=sys.stderr)
    # The driver frees everything with the process; tearing down by hand could hang after a fault.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
