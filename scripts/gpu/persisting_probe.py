"""Does anything that a kernel asked L2 to keep survive into its next cold sample?

``python scripts/gpu/persisting_probe.py KIT`` times the candidate ``persisting`` (mode 1 reads its
input, mode 2 reads it with a persisting access-policy window) under several ways of clearing L2
between samples, in this process. Without any reset the effect that has to be removed is visible.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hard_plans import Kit, load_kit

from cudahercules.build.toolchain import find_toolchain
from cudahercules.replay.device import architecture_of
from cudahercules.replay.driver import Context, api
from cudahercules.replay.generator import device_code
from cudahercules.replay.interface import Request
from cudahercules.replay.kept import Keeper
from cudahercules.replay.messages import Load
from cudahercules.replay.process import CandidateSide
from cudahercules.replay.sampler import Sampler

ROUNDS, SAMPLES = 4, 12
LIMIT = "CU_LIMIT_PERSISTING_L2_CACHE_SIZE"


def as_shipped(s: Sampler) -> None:
    s._last_touches(Request(seed=0))


def no_reset(s: Sampler) -> None:
    s.code.wipe(s.stream, random.getrandbits(32))
    s.code.evict(s.stream, random.getrandbits(32))


def unsynchronised_reset(s: Sampler) -> None:
    s.code.wipe(s.stream, random.getrandbits(32))
    api.cuCtxResetPersistingL2Cache()
    s.code.evict(s.stream, random.getrandbits(32))


def reset_between_two_evictions(s: Sampler) -> None:
    no_reset(s)
    api.cuStreamSynchronize(s.stream)
    api.cuCtxResetPersistingL2Cache()
    s.code.evict(s.stream, random.getrandbits(32))


def without_set_aside(s: Sampler) -> None:
    """The part of L2 set aside for persisting lines is given up while L2 is evicted."""
    limit = getattr(api.CUlimit, LIMIT)
    size = int(api.cuCtxGetLimit(limit))
    s.code.wipe(s.stream, random.getrandbits(32))
    api.cuStreamSynchronize(s.stream)
    api.cuCtxResetPersistingL2Cache()
    api.cuCtxSetLimit(limit, 0)
    s.code.evict(s.stream, random.getrandbits(32))
    api.cuStreamSynchronize(s.stream)
    api.cuCtxSetLimit(limit, size)
    s.code.evict(s.stream, random.getrandbits(32))


WAYS: tuple[Callable[[Sampler], None], ...] = (
    as_shipped,
    no_reset,
    unsynchronised_reset,
    reset_between_two_evictions,
    without_set_aside,
)


def measure(kit: Kit, context: Context) -> dict[str, list[float]]:
    """Microseconds of cold samples by ``<mode> <way>``; ways take turns, so that drift hits all."""
    kernels = str(device_code(architecture_of(0), find_toolchain().nvcc))
    times: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        for workload, mode in (("size0", "plain"), ("size1", "persisting")):
            side = CandidateSide(context, Keeper(0))
            order = Load(
                task=kit.task.model_dump_json(),
                workload=workload,
                kernels=kernels,
                plan=kit.plans[workload].canonical_json(),
                artifact=kit.artifact.model_dump_json(),
            )
            unused: Any = None  # nothing is announced while a graph is built
            side.load(order, unused)
            side.sampler.set_aside(True)
            for number in range(SAMPLES):
                for way in WAYS:
                    side.sampler.set_up(number, None)
                    way(side.sampler)
                    sample = side.sampler._measure(Request(seed=number))
                    if number >= 2:
                        times.setdefault(f"{mode} {way.__name__}", []).append(sample.microseconds)
            side.close()
    return times


def main(kit_directory: str) -> int:
    times = measure(load_kit(Path(kit_directory), "persisting"), Context(0))
    out = Path(os.environ.get("OUT", "out"))
    out.mkdir(parents=True, exist_ok=True)
    (out / "persisting.json").write_text(json.dumps(times, indent=1))
    for name, values in times.items():
        print(f"{name:<48} {statistics.median(values):8.2f} us")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
