"""All evidence about the GPU judge by one command, in pieces that fit a short lease.

    python benchmarks/gpu/evidence.py --out DIR --minutes 9 [--only aa,planted] [--earlier DIR]

Each part writes ``DIR/<part>.json`` after every trial and prints its table last; a later call with
``--earlier`` (or the same ``--out``) goes on where this one ended. Parts, in the order in which they
run: ``families``, ``throughput``, ``aa``, ``planted``, ``hot``.
"""

from __future__ import annotations

import argparse
import time
import traceback
from pathlib import Path

from common import Budget, Station, environment, find_gpu

PARTS = ("families", "throughput", "aa", "planted", "hot")
SHARES = {"families": 0.4, "throughput": 0.3, "aa": 0.6, "planted": 0.6, "hot": 1.0}
"""Of the time that is left when a part begins, the most it may take."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--earlier", type=Path)
    options = parser.parse_args()
    chosen = [p for p in options.only.split(",") if p]
    unknown = sorted(set(chosen) - set(PARTS))
    if unknown:
        parser.error(f"unknown part {', '.join(unknown)}: choose from {', '.join(PARTS)}")
    end = time.monotonic() + 60 * options.minutes
    gpu = find_gpu()
    print(environment(), flush=True)
    failed = []
    with Station(gpu) as at:
        for number, name in enumerate(chosen):
            left = end - time.monotonic()
            last = number == len(chosen) - 1
            budget = Budget(left - 5 if last else left * SHARES[name])
            start = time.monotonic()
            try:
                part(name)(at, options.out, budget, options.earlier)
            except (Exception, SystemExit):
                failed.append(name)
                traceback.print_exc()
            print(f"-- {name}: {time.monotonic() - start:.0f} s", flush=True)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def part(name: str):
    """The ``run`` function of a part."""
    import aa_trials
    import hot_cold
    import panel_and_families
    import planted_slowdowns
    import throughput

    return {
        "families": panel_and_families.run,
        "throughput": throughput.run,
        "aa": aa_trials.run,
        "planted": planted_slowdowns.run,
        "hot": hot_cold.run,
    }[name]


if __name__ == "__main__":
    main()
