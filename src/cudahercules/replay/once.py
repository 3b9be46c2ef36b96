"""One replay of each plan in this very process, for Nsight Compute and compute-sanitizer to look at.

``python -m cudahercules.replay.once ORDERS`` reads a :class:`~cudahercules.replay.messages.Load` as JSON from
each line of the file ORDERS, takes one sample on fresh inputs, and starts no other process: those tools put
themselves into every child, and the recorder's sandbox has no place for them. Exit code 0 after all samples,
1 after the first failure, which is printed, :data:`ANSWERS_DIFFER` if a plan was recorded for another GPU.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

from cudahercules.errors import HerculesError
from cudahercules.replay.child import failure
from cudahercules.replay.driver import Context, DriverError
from cudahercules.replay.interface import AnswersDiffer, CannotReplay, Request
from cudahercules.replay.kept import Keeper
from cudahercules.replay.messages import Channel, Load
from cudahercules.replay.process import CandidateSide

ANSWERS_DIFFER = 4


def main(arguments: list[str]) -> int:
    orders = [Load.model_validate_json(line) for line in Path(arguments[0]).read_text().splitlines()]
    unheard, _other = socket.socketpair()  # only stepping through a plan says anything
    try:
        side = CandidateSide(Context(0), Keeper(0))
        for order in orders:
            side.load(order, Channel(unheard))
            # A profiler makes every launch wait for its end: none may wait for what the host does later.
            side.sampler.gated = False
            side.sampler.take(Request(seed=order.seed))
    except AnswersDiffer as error:
        print(error)
        return ANSWERS_DIFFER
    except (DriverError, CannotReplay, HerculesError) as error:
        print(failure(error).message)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
