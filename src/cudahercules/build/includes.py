"""Which headers a candidate pulled in, and whether its task allows them.

The compiler's own preprocessed text is the witness: every file that it opened is announced there by
a line marker ``# 1 "file" 1``. A candidate can write such a marker itself and so accuse itself, but
it cannot remove one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from cudahercules.build.diagnostics import WORKING_DIRECTORY, own_name
from cudahercules.build.toolchain import Toolchain
from cudahercules.process import Limits, run_limited
from cudahercules.task.model import LibraryPolicy

_MARKER = re.compile(rb'^# \d+ "((?:[^"\\\n]|\\.)*)"(?: ([12]))?[ 0-9]*$', re.MULTILINE)

_HIDDEN = re.compile(
    r"^(?:cc1plus:|(?P<includer>[^\s:][^:\n]*):\d+:(?:\d+:)?) fatal error: (?P<name>.+): "
    r"(?:No such file or directory|Permission denied)$",
    re.MULTILINE,
)
_ELSEWHERE = "which is neither a file of the candidate nor a header of the compiler"

_LIBRARY_OF_DIRECTORY = {"cub": "CUB", "thrust": "Thrust", "cutlass": "CUTLASS", "cute": "CuTe"}
_ALLOWED_LIBRARIES = {
    LibraryPolicy.RUNTIME: (),
    LibraryPolicy.CUB: ("CUB", "Thrust"),  # CUB is built on parts of Thrust
    LibraryPolicy.CUTLASS: ("CUB", "Thrust", "CUTLASS", "CuTe"),
}
_TOOLKIT_LIBRARY = re.compile(
    r"^(cublas|cudnn|cufft|cufile|curand|cusolver|cusparse|cutensor|npp|nvblas|nvfatbin|nvJitLink|nvjpeg|nvrtc|nvvm)"
)
"""Headers of libraries that some toolkits bring and others do not; the rule is the same everywhere."""


def refused_include(
    preprocessed: bytes, sources: Path, toolchain: Toolchain, policy: LibraryPolicy, extra: tuple[Path, ...]
) -> str | None:
    """Why the first forbidden header of one preprocessed unit is forbidden, or None.

    ``sources`` is the directory of the candidate's own files, ``extra`` are include directories
    that the policy adds.
    """
    allowed = (
        sources,
        *_toolkit_directories(toolchain),
        *system_directories(toolchain.host_compiler),
        *extra,
    )
    roots = tuple(os.path.realpath(p) + "/" for p in allowed)
    own_root = os.path.realpath(sources) + "/"
    for path, includer in _entered(preprocessed):
        real = os.path.realpath(path.replace(WORKING_DIRECTORY, own_root, 1))
        if real.startswith(own_root):
            continue
        reason = _library_refusal(own_name(real), policy)
        if reason is None and not real.startswith(roots):
            reason = _ELSEWHERE
        if reason is not None:
            shown = own_name(path) if real.startswith(roots) else path
            return f"{includer} includes <{shown}>, {reason}"
    return None


def hidden_include(printed: str, policy: LibraryPolicy) -> str | None:
    """Why an include that the preprocessor could not open is forbidden, or None if it is merely missing.

    Confined, the preprocessor sees nothing but compilers and candidate: whether a file elsewhere exists
    must not change what is said."""
    match = _HIDDEN.search(printed)
    if match is None:
        return None
    name, includer = (
        match["name"].removeprefix(WORKING_DIRECTORY),
        own_name(match["includer"] or "the source"),
    )
    if name.startswith("/"):
        outside = True
    else:
        outside = os.path.normpath(os.path.join(os.path.dirname(includer), name)).startswith("../")
        outside = outside and os.path.normpath(name).startswith("../")
    if not outside:
        return None
    return f"{includer} includes <{name}>, {_library_refusal(own_name(name), policy) or _ELSEWHERE}"


def _library_refusal(name: str, policy: LibraryPolicy) -> str | None:
    parts = name.split("/")
    library = next((_LIBRARY_OF_DIRECTORY[d] for d in parts[:-1] if d in _LIBRARY_OF_DIRECTORY), None)
    if library is None and len(parts) == 1 and (match := _TOOLKIT_LIBRARY.match(parts[0])):
        library = match[1]
    if library is None or library in _ALLOWED_LIBRARIES[policy]:
        return None
    return (
        f"and this task does not allow {library} (library policy: {policy.value}). "
        "CUDA runtime headers, libcu++ and cooperative groups are allowed"
    )


def _entered(preprocessed: bytes) -> Iterator[tuple[str, str]]:
    """(file that was opened, nearest file of the candidate that led to it), in order, each once."""
    stack: list[str] = []
    seen: set[bytes] = set()
    for match in _MARKER.finditer(preprocessed):
        name, flag = match[1], match[2]
        if flag == b"2":
            if stack:
                stack.pop()
        elif flag == b"1":
            path = re.sub(rb"\\(.)", rb"\1", name).decode(errors="surrogateescape")
            if name not in seen:
                seen.add(name)
                own = next((s for s in reversed(stack) if s.startswith(WORKING_DIRECTORY)), None)
                yield path, own_name(own) if own else "the source"
            stack.append(path)
        elif not stack and name.startswith(WORKING_DIRECTORY.encode()):
            stack.append(name.decode(errors="surrogateescape"))


def _toolkit_directories(toolchain: Toolchain) -> list[Path]:
    return [toolchain.include, *toolchain.root.glob("targets/*/include")]


@lru_cache(maxsize=4)
def system_directories(host_compiler: Path) -> tuple[Path, ...]:
    """Where g++ looks for ``<headers>``, as it says itself."""
    probe = run_limited(
        [host_compiler, "-E", "-v", "-x", "c++", "/dev/null"],
        Limits(wall_s=30, cpu_s=30),
        env={"PATH": f"{host_compiler.parent}:/usr/bin:/bin", "LC_ALL": "C"},
    )
    text = probe.stderr.decode(errors="replace")
    match = re.search(r"^#include <\.\.\.> search starts here:\n(.*?)^End of search list", text, re.M | re.S)
    return tuple(Path(line.strip()) for line in match[1].splitlines()) if match else ()
