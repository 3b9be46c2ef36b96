"""Build the stand-in runtime: the C files in ``runtime/`` plus a generated failing stub for every
exported name that none of them implements.

It is compiled with the toolkit's own headers, so that the compiler checks each implementation
against the real prototype, and kept in the cache.
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from cudahercules.build.toolchain import Toolchain, find_toolchain
from cudahercules.cache import digest, entry
from cudahercules.errors import MachineError
from cudahercules.process import Limits, run_limited

RUNTIME = Path(__file__).parent / "runtime"
LIBRARY = "libcudart.so.13"
DRIVER = "libcuda.so.1"
LAUNCHER = "launcher"
FLAGS = ("-x", "c", "-std=gnu11", "-D_GNU_SOURCE", "-O1", "-fPIC", "-fvisibility=hidden", "-w")
COMPILE_LIMITS = Limits(wall_s=120, cpu_s=120, memory=4 << 30, file_size=256 << 20)

PLAIN = re.compile(r"^EXPORT\b[^;{=]*?\b(_*cu\w+)\s*\(", re.MULTILINE)
TWIN = re.compile(r"^TWIN\((_\w+), (\w+),", re.MULTILINE)


@dataclass(frozen=True)
class Coverage:
    """Names of the runtime's and the driver's API by what happens when host code calls them.

    ``refused`` maps a name to its sentence; ``unsupported`` names end in a general one.
    """

    implemented: tuple[str, ...]
    refused: dict[str, str]
    unsupported: tuple[str, ...]

    def sentence(self, name: str) -> str:
        """What a recording says after a call of ``name`` that is not implemented."""
        if name in self.refused:
            return f"{name}: {self.refused[name]}"
        return f"unsupported runtime call {name}"


def exported_symbols() -> tuple[str, ...]:
    """Every name that the stand-in exports, from symbols.txt."""
    lines = (RUNTIME / "symbols.txt").read_text().splitlines()
    return tuple(line for line in lines if line and line[0] not in "#[")


def sources() -> tuple[Path, ...]:
    return tuple(sorted(p for p in RUNTIME.glob("*.c") if p.name != "main.c"))


def coverage() -> Coverage:
    """What the C files implement, read from the files themselves."""
    text = "\n".join(p.read_text() for p in sources())
    found = set(PLAIN.findall(text)) | {name + suffix for suffix, name in TWIN.findall(text)}
    rules = []
    for line in (RUNTIME / "refusals.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            pattern, sentence = line.split(": ", 1)
            rules.append((pattern, sentence))
    refused: dict[str, str] = {}
    unsupported = []
    for name in exported_symbols():
        if name in found:
            continue
        match = next((s for pattern, s in rules if fnmatch.fnmatchcase(name, pattern)), None)
        if match:
            refused[name] = match
        else:
            unsupported.append(name)
    known = tuple(n for n in exported_symbols() if n in found)
    return Coverage(known, refused, tuple(unsupported))


def stubs(covered: Coverage, names: dict[int, str]) -> str:
    """C text: a failing function for each name without an implementation, and error_name().

    A stub takes no arguments where its namesake takes some, so it gets a name of its own and the
    real one as an alias that the C compiler does not see."""
    missing = [*covered.refused, *covered.unsupported]
    lines = ['#include "state.h"']
    for name in sorted(missing):
        sentence = covered.sentence(name).replace('"', "'")
        lines.append(
            f'__asm__(".globl {name}\\n.set {name}, stub_{name}\\n");\n'
            f'__attribute__((visibility("default"), used)) cudaError_t stub_{name}(void) '
            f'{{ ENTER; return refuse("%s", "{sentence}"); }}'
        )
    lines.append("const char *error_name(int code) {\n    switch (code) {")
    lines += [f'    case {number}: return "{name}";' for number, name in sorted(names.items())]
    lines.append('    default: return "unrecognized error code";\n    }\n}\n')
    return "\n".join(lines)


def error_names(include: Path) -> dict[int, str]:
    """Number and name of each cudaError, from the toolkit's driver_types.h."""
    text = (include / "driver_types.h").read_text(errors="replace")
    return {int(n): name for name, n in re.findall(r"^\s*(cuda(?:Error\w+|Success))\s*=\s*(\d+)", text, re.M)}


@lru_cache(maxsize=1)
def _source_digest() -> str:
    parts = [p.read_bytes() for p in sorted(RUNTIME.iterdir()) if p.is_file()]
    return digest(*parts, Path(__file__).read_bytes())


def standin() -> Path:
    """Directory with the stand-in library and the launcher, built on first use (about a second).

    Raises MachineError if there is no compiler, or if it cannot compile the stand-in.
    """
    toolchain = find_toolchain()
    key = digest(_source_digest(), toolchain.identity, " ".join(FLAGS))
    directory, _ = entry("standin", key, lambda private: _compile(toolchain, private))
    return directory


def _compile(toolchain: Toolchain, private: Path) -> None:
    (private / "stubs.c").write_text(stubs(coverage(), error_names(toolchain.include)))
    unit = [f'#include "{path}"' for path in (*sources(), private / "stubs.c")]
    (private / "unit.c").write_text("\n".join(unit) + "\n")
    compiler = [toolchain.host_compiler, *FLAGS, f"-I{RUNTIME}", f"-I{toolchain.include}"]
    library = private / LIBRARY
    link = ["-shared", f"-Wl,-soname,{LIBRARY}", "-o", library, private / "unit.c", "-pthread", "-ldl"]
    _run(toolchain, [*compiler, *link], private)
    # A candidate that opens the driver's library by name gets this: it has what the stand-in has.
    (private / "driver.c").write_text("")
    near = ["-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN", f"-L{private}", f"-l:{LIBRARY}"]
    driver = ["-shared", f"-Wl,-soname,{DRIVER}", "-o", private / DRIVER, private / "driver.c"]
    _run(toolchain, [*compiler, *driver, *near], private)
    # The libraries of C++ come along, so that a machine (or sandbox) without them fails before a candidate.
    launcher = ["-o", private / LAUNCHER, RUNTIME / "main.c"]
    _run(toolchain, [*compiler, *launcher, *near, f"-l:{DRIVER}", "-lstdc++", "-lm", "-lgcc_s"], private)
    for name in ("stubs.c", "unit.c", "driver.c"):
        (private / name).unlink()


def _run(toolchain: Toolchain, argv: list, private: Path) -> None:
    done = run_limited(argv, COMPILE_LIMITS, cwd=private, env=toolchain.environment(private))
    if done.status != 0:
        raise MachineError(
            "the recording runtime does not compile with "
            f"{toolchain.title}: {done.stderr.decode(errors='replace')[:2000]}"
        )
