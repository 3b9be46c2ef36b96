"""All evidence about the GPU judge by one command, in sections that fit a short lease.

    python benchmarks/gpu/evidence.py --out DIR [--rehearsal] [--budget aa=160,hot=20]
                                      [--earlier DIR [--again throughput,families]]

Every section is a process of its own with a hard limit of seconds; it writes ``DIR/<section>.json`` after
every trial, so that nothing that was measured is lost, whatever happens. Everything that can be
compiled is compiled first (``prepare``), on all cores. What a section leaves of its seconds goes
to those that had more to do. A later call with ``--earlier`` (or the same ``--out``) goes on where this
one ended; sections named by ``--again`` measure everything anew. ``--report`` prints the tables of what is
in DIR and measures nothing.

Results: one JSON file a section, the panel file, ``log.txt`` and ``tables.txt``: eight files, flat.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import signal
import subprocess
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path

MODULES = {
    "prepare": "prepare",
    "throughput": "throughput",
    "families": "panel_and_families",
    "aa": "aa_trials",
    "planted": "planted_slowdowns",
    "hot": "hot_cold",
}
"""Sections in the order in which they run."""
BUDGETS = {"prepare": 22.0, "throughput": 65.0, "families": 95.0, "aa": 125.0, "planted": 70.0, "hot": 20.0}
REHEARSAL = {"prepare": 13.0, "throughput": 25.0, "families": 24.0, "aa": 8.0, "planted": 8.0, "hot": 8.0}
"""Seconds at most; what is rehearsed ends well before."""
IMPORTS_S = 8.0
"""This long before a section's end the next one's process begins to import."""
GRACE_S = 6.0
"""A section stops by itself at its budget; this much later it is killed."""
AGAIN = ("planted", "aa", "families")
"""Sections that take what the others left over, in this order."""
AGAIN_S = 15.0


def main() -> int:
    options = parsed()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.section:
        return one_section(options)
    if not options.report:
        orchestrate(options)
    return print_tables(options.out)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--budget", default="", help="seconds a section, e.g. aa=160,hot=0; 0 leaves it out")
    parser.add_argument("--rehearsal", action="store_true", help="a handful of trials of everything")
    parser.add_argument("--earlier", type=Path, help="results of an earlier call")
    parser.add_argument("--again", default="", help="sections that take nothing from --earlier")
    parser.add_argument("--report", action="store_true", help="only print the tables")
    parser.add_argument("--section", choices=list(MODULES), help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.budgets = dict(REHEARSAL if options.rehearsal else BUDGETS)
    for part in filter(None, options.budget.split(",")):
        name, _, seconds = part.partition("=")
        if name not in MODULES or not seconds.replace(".", "", 1).isdigit():
            parser.error(f"--budget {part}: give NAME=SECONDS with a name of {', '.join(MODULES)}")
        options.budgets[name] = float(seconds)
    for name in filter(None, options.again.split(",")):
        if name not in MODULES:
            parser.error(f"--again {name}: name one of {', '.join(MODULES)}")
    if options.earlier is not None and not options.earlier.is_dir():
        parser.error(f"--earlier {options.earlier}: there is no such directory")
    return options


# --- one section, in a process of its own ------------------------------------------------------------


def one_section(options: argparse.Namespace) -> int:
    """Imports first; then waits for a line with its seconds. Exit status 0: nothing is left to do;
    10: the time is over; 1: it failed as a whole."""
    from common import Budget, Section

    module = import_module(MODULES[options.section])
    with contextlib.suppress(ImportError):
        import torch  # noqa: F401 (seconds, which pass while the section before still measures)
    seconds = float(sys.stdin.readline() or 0)
    earlier = None if options.section in options.again.split(",") else options.earlier
    section = Section(options.section, options.out, Budget(seconds), options.rehearsal, earlier)
    try:
        module.run(section)
        status = 0 if section.complete else 10
    except (Exception, SystemExit, KeyboardInterrupt):
        traceback.print_exc()
        status = 1
    with contextlib.suppress(Exception):
        section.close()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # threads that still wait for a compiler must not hold us up


# --- all of them -------------------------------------------------------------------------------------


def orchestrate(options: argparse.Namespace) -> None:
    began = time.monotonic()
    wanted = {name: options.budgets[name] for name in MODULES if options.budgets[name] > 0}
    end = began + sum(wanted.values())
    names, status = list(wanted), {}
    waiting: Waiting | None = None
    for number, name in enumerate(names):
        seconds = min(wanted[name], end - time.monotonic())
        if seconds < 3:
            break
        current = waiting or Waiting(options, name)
        following = names[number + 1] if number + 1 < len(names) else None
        status[name], waiting = current.run(seconds, following)
    if waiting is not None:
        waiting.kill()
    if not options.rehearsal:
        for name in AGAIN:
            if status.get(name) in (10, 124) and end - time.monotonic() > AGAIN_S:
                Waiting(options, name).run(end - time.monotonic(), None)
    print(f"evidence: {time.monotonic() - began:.0f} s in all", flush=True)


class Waiting:
    """A section's process, in a session of its own, that has its imports behind it and waits."""

    def __init__(self, options: argparse.Namespace, name: str):
        self.options, self.name = options, name
        command = [sys.executable, __file__, "--section", name, "--out", str(options.out)]
        command += ["--rehearsal"] if options.rehearsal else []
        command += ["--earlier", str(options.earlier), "--again", options.again] if options.earlier else []
        self.log = (options.out / "log.txt").open("a")
        self.child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=self.log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )

    def run(self, seconds: float, following: str | None) -> tuple[int, Waiting | None]:
        """Let it run; its status, and the process of the ``following`` section, started before this one
        ends. What overstays is killed."""
        start = time.monotonic()
        self._tell(f"==== {self.name}, {seconds:.0f} s")
        status, coming = self._start(seconds), None
        while status is None:
            try:
                status = self.child.wait(0.2)
            except subprocess.TimeoutExpired:
                passed = time.monotonic() - start
                if passed > seconds + GRACE_S:
                    status = 124
                if following and coming is None and passed > seconds - IMPORTS_S:
                    coming = Waiting(self.options, following)
        self.kill()
        said = {0: "done", 10: "out of time", 124: "killed"}.get(status, f"failed ({status})")
        self._tell(f"-- {self.name}: {said}, {time.monotonic() - start:.1f} s")
        print(f"-- {self.name}: {said}, {time.monotonic() - start:.1f} s", flush=True)
        self.log.close()
        return status, coming or (Waiting(self.options, following) if following else None)

    def _start(self, seconds: float) -> int | None:
        assert self.child.stdin is not None
        try:
            self.child.stdin.write(f"{seconds:.1f}\n".encode())
            self.child.stdin.close()
        except OSError:  # it has ended already: the log says why
            return self.child.wait()
        return None

    def _tell(self, line: str) -> None:
        print(line, file=self.log, flush=True)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()


# --- tables ------------------------------------------------------------------------------------------


def print_tables(out: Path) -> int:
    """Print every section's table and keep them in ``tables.txt``; 1 if a section has no results."""
    from common import State, environment

    collected, status = io.StringIO(), 0
    with contextlib.redirect_stdout(collected):
        print(environment())
        for name, module in MODULES.items():
            state = State(name, out)
            if name == "prepare":
                continue
            if not state.data:
                print(f"\n{name}: no results (see log.txt)")
                status = 1
                continue
            try:
                import_module(module).report(state)
            except Exception:
                status = 1
                print(f"\n{name}: the table failed\n{traceback.format_exc()}")
    (out / "tables.txt").write_text(collected.getvalue())
    print("\n".join(line[:165] for line in collected.getvalue().splitlines()), flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
