"""What the compilers may read: their own files and headers, the system's programs and libraries.

Neither this package (references and experts lie in it), nor other tasks, nor the cache is among them, also
where they were installed below a directory of libraries.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from cudahercules.build.includes import system_directories
from cudahercules.build.toolchain import TOOLKIT_BINARIES, Toolchain
from cudahercules.cache import cache_root
from cudahercules.process import Limits, run_limited

PROGRAMS = tuple(Path(p) for p in ("/bin", "/usr/bin", "/usr/libexec", "/etc/alternatives"))
"""Shell, assembler, linker and what they call, wherever a distribution keeps them."""
NULL = Path("/dev/null")

_TOOLKIT_PARTS = ("bin", "nvvm", "include", "lib", "lib64", "targets")


@lru_cache(maxsize=4)
def host_compiler_files(host_compiler: Path) -> tuple[Path, ...]:
    """What g++ reads while it compiles and links, as far as it says so itself."""
    real = Path(os.path.realpath(host_compiler))
    asked = (*_search_directories(host_compiler), *system_directories(host_compiler))
    found = (p.resolve() for p in asked if p.is_dir())
    return (*PROGRAMS, host_compiler, real, *dict.fromkeys(p for p in found if len(p.parts) > 2))


def toolkit_files(toolchain: Toolchain) -> tuple[Path, ...]:
    """What the stages of nvcc read, those that are links to elsewhere included."""
    parts = [toolchain.root / part for part in _TOOLKIT_PARTS]
    linked = (Path(os.path.realpath(toolchain.root / name)).parent for name in TOOLKIT_BINARIES)
    return tuple(dict.fromkeys((*parts, *(d for d in linked if toolchain.root not in d.parents))))


def _search_directories(host_compiler: Path) -> list[Path]:
    done = run_limited(
        [host_compiler, "-print-search-dirs"],
        Limits(wall_s=30, cpu_s=30),
        env={"PATH": f"{host_compiler.parent}:/usr/bin:/bin", "LC_ALL": "C"},
    )
    lines = (line.partition(": ")[2].removeprefix("=") for line in done.stdout.decode().splitlines())
    return [Path(part) for line in lines for part in line.split(":") if part.startswith("/")]


def secret_places() -> tuple[Path, ...]:
    """This package, the directories of tasks and the cache."""
    tasks = os.environ.get("HERCULES_TASKS", "").split(os.pathsep)
    places = (Path(__file__).parents[1], *(Path(t) for t in tasks if t), cache_root())
    return tuple(Path(os.path.realpath(p)) for p in places)


def without_secrets(paths: Iterable[Path]) -> Iterator[Path]:
    """``paths``; of a directory that holds a secret place only the entries that do not."""
    secrets = secret_places()
    for path in paths:
        real = Path(os.path.realpath(path))
        above = [s for s in secrets if real in s.parents]
        if not above:
            yield path
            continue
        try:
            entries = sorted(path.iterdir())
        except OSError:
            continue
        for entry in entries:
            inside = Path(os.path.realpath(entry))
            if not any(s == inside or inside in s.parents for s in above):
                yield entry
