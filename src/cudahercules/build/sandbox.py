"""The sandbox: what this machine's kernel offers to cut a candidate's code off from everything else.

A small launcher (``confine.c``) is compiled once. It is asked which features it reaches here, and from
then on starts nothing without all of them, so that :func:`level` is true of every child.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from cudahercules.build.toolchain import find_host_compiler
from cudahercules.cache import cache_root, digest, entry
from cudahercules.errors import MachineError
from cudahercules.process import Confinement, Limits, run_limited

SOURCE = Path(__file__).parent / "confine.c"
PROGRAM = "confine"
FLAGS = ("-x", "c", "-std=gnu11", "-O1", "-w")

LIBRARIES = tuple(
    Path(p)
    for p in (
        *("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/local/lib64"),
        *("/etc/ld.so.cache", "/nix/store", "/gnu/store"),
    )
)
"""Where the loader and the libraries of C and C++ lie; what is not there is skipped."""

_COMPILING = Limits(wall_s=60, cpu_s=60, memory=2 << 30, file_size=64 << 20)
_ASKING = Limits(wall_s=10, cpu_s=5)
_PHRASES = {
    "landlock": ("files and signals by Landlock {}", "no Landlock"),
    "namespaces": ("own network, process and IPC namespaces", "no user namespaces"),
    "capabilities": ("no capabilities", "capabilities kept"),
    "seccomp": ("system calls filtered", "no seccomp"),
}
_PR_SET_DUMPABLE = 4


def program() -> Path:
    """The launcher, built on first use. Raises MachineError without a compiler that can."""
    return _program(cache_root())


@lru_cache(maxsize=4)
def _program(_root: Path) -> Path:
    compiler, version = find_host_compiler()
    key = digest(SOURCE.read_bytes(), str(compiler), version, *FLAGS)
    directory, _ = entry("confine", key, lambda private: _compile(compiler, private))
    return directory / PROGRAM


def _compile(compiler: Path, private: Path) -> None:
    argv: list[str | Path] = [compiler, *FLAGS, SOURCE, "-o", private / PROGRAM]
    done = run_limited(argv, _COMPILING, cwd=private, env={"PATH": "/usr/bin:/bin", "TMPDIR": str(private)})
    if done.status != 0:
        said = done.stderr.decode(errors="replace")[:2000]
        raise MachineError(f"the sandbox's launcher does not compile with {compiler}: {said}")


@lru_cache(maxsize=1)
def features() -> str:
    """What the launcher reaches here, as it prints it: ``landlock=7,namespaces,capabilities,seccomp``.

    Where neither Landlock nor a user namespace keeps a child out of ``/proc/<pid>/mem`` of this
    process, this process is made undumpable, which does the same for an ordinary user.
    """
    done = run_limited([program(), "probe"], _ASKING)
    if done.status != 0:
        raise MachineError(
            f"the sandbox's launcher does not run: {done.stderr.decode(errors='replace')[:500]}"
        )
    found = done.stdout.decode().strip().strip(",")
    if "landlock" not in found and "namespaces" not in found:
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    return found


def phrase(reached: str) -> str:
    """A feature list as a person reads it; what is absent is said, too."""
    versions = dict(word.partition("=")[::2] for word in reached.split(",") if word)
    return ", ".join(
        yes.format(versions[name]) if name in versions else no for name, (yes, no) in _PHRASES.items()
    )


def level() -> str:
    """The level that candidates' code runs under here, for verdicts and ``hercules doctor``.

    Raises MachineError if the launcher cannot be built."""
    return phrase(features())


def confinement(
    read: Sequence[Path] = (),
    write: Sequence[Path] = (),
    *,
    fixed_addresses: bool = False,
    tool: bool = False,
) -> Confinement:
    """The strongest that this machine offers: the system's libraries and ``read`` can be read, ``write``
    can be written, and there is nothing else. Raises MachineError if the launcher cannot be built."""
    return Confinement(
        program=program(),
        features=features(),
        read=(*LIBRARIES, *read),
        write=tuple(write),
        fixed_addresses=fixed_addresses,
        tool=tool,
    )
