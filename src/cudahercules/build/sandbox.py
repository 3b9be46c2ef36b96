"""The sandbox: what this machine's kernel offers to cut a candidate's code, and the compilers that read it,
off from everything else.

A small launcher (``confine.c``) is compiled once. It is asked which features it reaches here, and from
then on starts nothing without all of them, so that :func:`level` is true of every child.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from cudahercules.build.toolchain import Toolchain, find_host_compiler
from cudahercules.build.view import NULL, host_compiler_files, toolkit_files, without_secrets
from cudahercules.cache import cache_root, digest, entry
from cudahercules.errors import MachineError, UsageError
from cudahercules.process import Confinement, Limits, run_limited

SOURCE = Path(__file__).parent / "confine.c"
PARTS = (SOURCE, Path(__file__).parent / "view.h")
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
    "view": ("own file system", "no file system of its own"),
    "landlock": ("files and signals by Landlock {}", "no Landlock"),
    "namespaces": ("own network, process and IPC namespaces", "no user namespaces"),
    "capabilities": ("no capabilities", "capabilities kept"),
    "seccomp": ("system calls filtered", "no seccomp"),
}
_PR_SET_DUMPABLE = 4

LEVELS = {
    "full": {"view", "namespaces", "capabilities", "seccomp"},
    "files": {"landlock", "capabilities", "seccomp"},
    "calls": {"capabilities", "seccomp"},
    "limits": set[str](),
}
"""Levels, strongest first, and the features that each needs at least."""
STRICT = "HERCULES_STRICT"
"""The variable that names the level below which nothing of a candidate is compiled or run."""
PROCESSES = 256
"""Processes and threads of one child; g++ and nvcc's stages need a handful, the emulator one a core."""


def program() -> Path:
    """The launcher, built on first use. Raises MachineError without a compiler that can."""
    return _program(cache_root())


@lru_cache(maxsize=4)
def _program(_root: Path) -> Path:
    compiler, version = find_host_compiler()
    key = digest(*(part.read_bytes() for part in PARTS), str(compiler), version, *FLAGS)
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
    """What the launcher reaches here, as it prints it: ``landlock=7,namespaces,view,capabilities,seccomp``.

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


def level_of(reached: str) -> str:
    """The strongest of LEVELS that a feature list amounts to."""
    names = {word.partition("=")[0] for word in reached.split(",") if word}
    return next(level for level, needed in LEVELS.items() if needed <= names)


def require(level: str) -> None:
    """Raises MachineError if this machine's sandbox is weaker than ``level``, UsageError if that is none."""
    if level not in LEVELS:
        raise UsageError(f"sandbox level {level!r}: choose one of {', '.join(LEVELS)}")
    here = level_of(features())
    order = list(LEVELS)
    if order.index(here) > order.index(level):
        raise MachineError(
            f"the sandbox of this machine reaches level {here} ({_words(features())}); {level} is asked for: "
            "`hercules doctor` says what is missing"
        )


def _require_wanted() -> None:
    if wanted := os.environ.get(STRICT):
        require(wanted)


def phrase(reached: str) -> str:
    """A feature list as a person reads it: its level, and what it has; what is absent is said, too."""
    return f"{level_of(reached)}: {_words(reached)}"


def _words(reached: str) -> str:
    versions = dict(word.partition("=")[::2] for word in reached.split(",") if word)
    return ", ".join(
        yes.format(versions[name]) if name in versions else no for name, (yes, no) in _PHRASES.items()
    )


def level() -> str:
    """What candidates are compiled and run under here, for verdicts.

    Raises MachineError if the launcher cannot be built, or reaches less than HERCULES_STRICT asks for."""
    _require_wanted()
    return phrase(features())


def confinement(
    read: Sequence[Path] = (),
    write: Sequence[Path] = (),
    *,
    fixed_addresses: bool = False,
    tool: bool = False,
) -> Confinement:
    """The strongest that this machine offers: the system's libraries and ``read`` can be read, ``write``
    can be written, and there is nothing else. Raises MachineError if the launcher cannot be built, or
    reaches less than HERCULES_STRICT asks for."""
    _require_wanted()
    return Confinement(
        program=program(),
        features=features(),
        read=tuple(p.absolute() for p in (*without_secrets(LIBRARIES), *read)),
        write=tuple(p.absolute() for p in write),
        fixed_addresses=fixed_addresses,
        tool=tool,
        processes=PROCESSES,
    )


def compiler_confinement(
    host_compiler: Path,
    toolchain: Toolchain | None = None,
    read: Sequence[Path] = (),
    write: Sequence[Path] = (),
) -> Confinement:
    """The same for a compiler: it also reads its own files and headers, and those of ``toolchain``."""
    own = host_compiler_files(host_compiler) + (toolkit_files(toolchain) if toolchain else ())
    return confinement((*without_secrets(own), *read), (NULL, *write), tool=True)
