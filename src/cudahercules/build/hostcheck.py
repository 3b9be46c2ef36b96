"""Check a linked host object: ``solve`` is there, and every name it needs has an owner.

The object is linked without a CUDA runtime; the recorder's stand-in supplies it later. What that
stand-in exports is listed in ``record/runtime/symbols.txt``.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from cudahercules.build import sandbox
from cudahercules.build.diagnostics import Refused
from cudahercules.build.elf import read_host_object
from cudahercules.process import Limits, run_limited

QUOTED = 200
"""Characters of a name that a message repeats: an assembler's symbol may have a million."""
_DEMANGLING = Limits(wall_s=10, cpu_s=10, memory=1 << 30)
_SYMBOLS = Path(__file__).parent.parent / "record/runtime/symbols.txt"
_CUDA_RUNTIME = re.compile(r"^(__cuda|cuda[A-Z]|cu[A-Z])")
_CUDA_LIBRARY = re.compile(
    r"^(cublas|cudnn|cufft|cufile|curand|cusolver|cusparse|cutensor|nccl|npp|nvrtc|nvJitLink)"
)
_OUR_OWN = re.compile(r"^(__device_stub__|__nv_|__sti____|_init$|_fini$)")


@lru_cache(maxsize=1)
def exported_names() -> frozenset[str]:
    """Every name that the stand-in runtime exports."""
    lines = (line.strip() for line in _SYMBOLS.read_text().splitlines())
    return frozenset(line for line in lines if line and line[0] not in "#[")


def check_host_object(path: Path, header: str) -> bool:
    """Whether the object defines ``prepare``; raises Refused if it cannot be used."""
    symbols = read_host_object(path)
    missing = [n for n in symbols.unresolved if n not in exported_names()]
    libraries = [n for n in missing if _CUDA_LIBRARY.match(n)]
    if libraries:
        raise Refused(
            "contract",
            f"{_listed(libraries)}: no CUDA library is linked; solve may use the CUDA runtime only",
        )
    calls = [n for n in missing if _CUDA_RUNTIME.match(n)]
    if calls:
        raise Refused("contract", f"unsupported runtime call {_listed(calls)}")
    if missing:
        raise Refused(
            "error", f"undefined symbol {_listed(demangle(missing))}: declared and used, never defined"
        )
    if "solve" not in symbols.defined:
        raise Refused("error", _no_solve(symbols.defined, header))
    return "prepare" in symbols.defined and declaration(header, "prepare") is not None


def declaration(header: str, function: str) -> str | None:
    """The declaration of ``function`` in ``solve.h`` on one line, or None."""
    match = re.search(rf'extern "C" void {function}\([^;]*\);', header)
    return re.sub(r"\s+", " ", match[0]) if match else None


def _no_solve(defined: Sequence[str], header: str) -> str:
    wanted = declaration(header, "solve") or "solve"
    names = [n for n in demangle(defined) if not _OUR_OWN.match(n)]
    near = [n for n in names if re.search(r"\bsolve\b", n)]
    if near:
        return f"no solve as solve.h declares it, but {_listed(near)}. Define: {wanted}"
    found = f"; defined are {_listed(names)}" if names else ""
    return f"no function solve is defined{found}. Define: {wanted}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return ", ".join(n if len(n) <= QUOTED else f"{n[:QUOTED]}…" for n in names[:4]) + more


def demangle(names: Sequence[str]) -> list[str]:
    """C++ names as a person writes them; as they are where binutils' c++filt is absent or fails."""
    tool = shutil.which("c++filt")
    if tool is None or not names:
        return list(names)
    confined = sandbox.confinement(read=(Path(os.path.realpath(tool)).parent, Path(tool)))
    done = run_limited([tool], _DEMANGLING, stdin="\n".join(names).encode(), confined=confined)
    shown = done.stdout.decode(errors="replace").splitlines()
    return shown if done.status == 0 and len(shown) == len(names) else list(names)
