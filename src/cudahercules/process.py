"""Run another program under limits: the one way in which compilers, recorders and emulators start.

The child gets an empty environment plus what the caller names, a session of its own, limits on CPU
time, memory, file size and processes, and a cap on its output; it dies with this process. When the
wall limit passes or the caller is interrupted, its whole process group is killed. What a candidate
made (host code, device code made native) is also confined: see :class:`Confinement`.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from cudahercules.errors import MachineError

_RUNNING: set[int] = set()
"""Leaders of the sessions that run now, over all threads."""
_STOPPED = threading.Event()
"""Set when the program ends: from then on no thread may start a child."""


@dataclass(frozen=True)
class Limits:
    """``cpu_s`` and ``wall_s`` in seconds; the others in bytes, ``processes`` a count.
    ``None`` sets no limit."""

    wall_s: float
    cpu_s: int | None = None
    memory: int | None = None
    file_size: int | None = None
    processes: int | None = None
    output: int = 1 << 20


@dataclass(frozen=True)
class Finished:
    """How a child ended. ``status`` is its exit status, or minus the signal that killed it.
    ``timed_out`` and ``output_cut`` say that a limit of ours ended it or cut its output."""

    status: int
    stdout: bytes
    stderr: bytes
    seconds: float
    timed_out: bool = False
    output_cut: bool = False


@dataclass(frozen=True)
class Confinement:
    """What a child can still see and do (``build/sandbox.py`` makes these).

    ``program`` is the launcher made from ``build/confine.c``, ``features`` what it must reach before it
    starts the child. ``read`` and ``write`` are files and directories, with all that is below;
    ``fixed_addresses`` turns address randomisation off; a ``tool`` may signal its own children.
    ``processes`` limits how many there may be at a time, threads included, where namespaces count them
    apart from the user's others (root is never limited).
    """

    program: Path
    features: str
    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    fixed_addresses: bool = False
    tool: bool = False
    processes: int = 0

    def wrap(self, argv: Sequence[str], complaints: int) -> list[str]:
        """``argv`` behind the launcher, which says on descriptor ``complaints`` why it cannot start it."""
        options = [part for path in self.read for part in ("-r", str(path))]
        options += [part for path in self.write for part in ("-w", str(path))]
        options += ["-n", str(self.processes)] if self.processes else []
        options += ["-a"] * self.fixed_addresses + ["-t"] * self.tool
        return [str(self.program), self.features, *options, "-e", str(complaints), "--", *argv]


@lru_cache(maxsize=1)
def _die_with_parent() -> tuple[str, ...]:
    setpriv = shutil.which("setpriv")
    return (setpriv, "--pdeathsig", "KILL") if setpriv else ()


def _limited(argv: Sequence[str], limits: Limits) -> list[str]:
    """``argv`` behind a shell that sets the limits: safe in threads, unlike ``preexec_fn``."""
    settings = ["unset PWD OLDPWD SHLVL", "ulimit -c 0"]  # the shell's own, which it would hand on
    for flag, value, unit in (
        ("-t", limits.cpu_s, 1),
        ("-v", limits.memory, 1024),
        ("-f", limits.file_size, 512),
        ("-p", limits.processes, 1),
    ):
        if value is not None:
            settings.append(f"ulimit {flag} {max(1, int(value // unit))}")
    script = " && ".join(settings) + ' && exec "$@"'
    return [*_die_with_parent(), "/bin/sh", "-c", script, "sh", *argv]


class _Collector(threading.Thread):
    """Reads a pipe to its end and keeps the first ``limit`` bytes."""

    def __init__(self, pipe, limit: int):
        super().__init__(daemon=True)
        self.pipe, self.limit, self.kept, self.cut = pipe, limit, bytearray(), False
        self.start()

    def run(self) -> None:
        while chunk := self.pipe.read1(65536):
            room = self.limit - len(self.kept)
            self.kept += chunk[:room]
            self.cut |= len(chunk) > room


def run_limited(
    argv: Sequence[str | Path],
    limits: Limits,
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    pass_fds: Sequence[int] = (),
    confined: Confinement | None = None,
) -> Finished:
    """Run ``argv`` to its end under ``limits``, and under ``confined`` if that is given (then ``argv[0]``
    is a path).

    Raises OSError if the program cannot be started, MachineError if it cannot be confined. A
    KeyboardInterrupt kills the child's whole group before it goes on.
    """
    if confined is None:
        return _run(argv, limits, cwd, env, stdin, pass_fds)
    # The launcher alone holds the writing end, and closes it by starting the program: what is read
    # here cannot come from the program.
    reading, writing = os.pipe()
    try:
        wrapped = confined.wrap([str(a) for a in argv], writing)
        finished = _run(wrapped, limits, cwd, env, stdin, (*pass_fds, writing))
        os.set_blocking(reading, False)
        try:
            complaint = os.read(reading, 4096).decode(errors="replace").strip()
        except BlockingIOError:
            complaint = ""
    finally:
        os.close(reading)
        os.close(writing)
    if complaint:
        raise MachineError(f"the sandbox cannot start {Path(argv[0]).name}: {complaint.splitlines()[0]}")
    return finished


def _run(
    argv: Sequence[str | Path],
    limits: Limits,
    cwd: Path | None,
    env: Mapping[str, str] | None,
    stdin: bytes,
    pass_fds: Sequence[int],
) -> Finished:
    if _STOPPED.is_set():
        raise KeyboardInterrupt("the program is ending")
    start = time.monotonic()
    child = subprocess.Popen(
        _limited([str(a) for a in argv], limits),
        cwd=cwd,
        env=dict(env or {}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        pass_fds=tuple(pass_fds),
    )
    _RUNNING.add(child.pid)
    if _STOPPED.is_set():  # stopped between the check above and the start
        kill_group(child.pid)
    out, err = _Collector(child.stdout, limits.output), _Collector(child.stderr, limits.output)
    timed_out = False
    try:
        try:
            assert child.stdin is not None
            child.stdin.write(stdin)
            child.stdin.close()
        except BrokenPipeError:
            pass
        _wait(child, limits.wall_s)
    except subprocess.TimeoutExpired:
        timed_out = True
    finally:
        kill_group(child.pid)
        child.wait()
        _RUNNING.discard(child.pid)
        out.join(timeout=5)
        err.join(timeout=5)
        for pipe in (child.stdout, child.stderr):
            if pipe is not None:
                pipe.close()
    return Finished(
        status=child.returncode,
        stdout=bytes(out.kept),
        stderr=bytes(err.kept),
        seconds=time.monotonic() - start,
        timed_out=timed_out,
        output_cut=out.cut or err.cut,
    )


def _wait(child: subprocess.Popen[bytes], seconds: float) -> None:
    """``child.wait(seconds)``, but woken when the child ends: that one looks every 50 ms only."""
    try:
        descriptor = os.pidfd_open(child.pid)
    except OSError:  # a kernel before 5.3
        child.wait(timeout=seconds)
        return
    try:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        if not poller.poll(seconds * 1000):
            raise subprocess.TimeoutExpired(child.args, seconds)
    finally:
        os.close(descriptor)
    child.wait()


def stop_children() -> None:
    """Kill every child that :func:`run_limited` waits for in any thread, and let no more start.

    For the end of a program whose worker threads may be in the middle of something.
    """
    _STOPPED.set()
    for pid in tuple(_RUNNING):
        kill_group(pid)


def allow_children() -> None:
    """Undo :func:`stop_children`: another command begins in the same process."""
    _STOPPED.clear()


def kill_group(pid: int) -> None:
    """Kill every process of the session that ``pid`` leads (also after the leader has ended)."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
