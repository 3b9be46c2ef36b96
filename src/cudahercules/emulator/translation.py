"""PTX to a shared object, through the cache."""

from __future__ import annotations

import base64
import json
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cudahercules.cache import MANIFEST, digest, entry
from cudahercules.emulator import native
from cudahercules.emulator.emit.context import Site
from cudahercules.emulator.outcome import UnsupportedInstruction


@dataclass(frozen=True)
class ModuleVariable:
    """A variable of global or constant memory: its initial bytes and where addresses stand in them."""

    name: str
    space: str
    size: int
    alignment: int
    data: bytes
    relocations: tuple[tuple[int, str, int], ...]  # offset, symbol, addend


@dataclass(frozen=True)
class Built:
    """A translated module. With anything in ``unsupported`` there is no library. ``parameters`` says where
    the code expects each kernel's parameters: (offset, size) in bytes; ``asynchronous`` whether it has
    instructions that complete later, or wait for such; ``shared`` the shared variables of each kernel: name,
    offset and size in bytes."""

    directory: Path
    variables: tuple[ModuleVariable, ...]
    functions: tuple[str, ...]
    kernels: tuple[str, ...]
    parameters: dict[str, tuple[tuple[int, int], ...]]
    unsupported: tuple[UnsupportedInstruction, ...]
    asynchronous: bool
    shared: dict[str, tuple[tuple[str, int, int], ...]]

    @property
    def library(self) -> Path:
        return self.directory / "module.so"

    def sites(self) -> list[Site]:
        rows = json.loads((self.directory / "sites.json").read_text())
        return [
            Site(function, file, line, instruction, inner, tuple(callers))
            for function, file, line, instruction, inner, callers in rows
        ]


COUNTING = "counting"
"""The plain build with a count of dynamic instructions."""


_LARGE = UnsupportedInstruction(instruction="device code that takes minutes to translate", kernel="")
_TOO_LARGE = Built(Path(), (), (), (), {}, (_LARGE,), False, {})
_GIVEN_UP: set[str] = set()
"""Keys of translations that took too long: several threads and attempts ask for each."""


def build_translation(ptx: str, build: str = native.PLAIN) -> Built:
    """Translate and compile ``ptx``, or take it from the cache. ``build`` is plain, ``COUNTING`` or checking.
    What g++ takes too long for is unsupported, for as long as this process lives. Raises MachineError."""
    key = digest("translation", build, native.toolchain_digest(), ptx)

    def make(into: Path) -> None:
        if key in _GIVEN_UP:
            raise native.TooLarge(_LARGE.instruction)
        _make(ptx, build, into)

    try:
        directory, _ = entry("emulator", key, make)
    except native.TooLarge:
        _GIVEN_UP.add(key)
        return _TOO_LARGE
    return _load(directory)


def in_files_of_their_own(modules: Sequence[Built]) -> list[Built]:
    """``modules`` in their order; where one was there before, a copy of it, through the cache.

    Two files of a candidate may have the same PTX, and each has variables of its own, but the loader takes
    two names of one file for the same library. Raises MachineError."""
    seen: Counter[Path] = Counter()
    apart = []
    for built in modules:
        before = seen[built.directory]
        seen[built.directory] += 1
        apart.append(_copy(built, before) if before and not built.unsupported else built)
    return apart


def _copy(built: Built, number: int) -> Built:
    def fill(into: Path) -> None:
        for file in built.directory.iterdir():
            if file.name != MANIFEST:
                shutil.copyfile(file, into / file.name)

    directory, _ = entry("emulator", digest("copy", built.directory.name, str(number)), fill)
    return replace(built, directory=directory)


def _make(ptx: str, build: str, directory: Path) -> None:
    # The parser and the emitters are only needed where nothing is cached.
    from cudahercules.emulator.emit.module import Translation, translate
    from cudahercules.emulator.ptx.parse import parse
    from cudahercules.emulator.ptx.tokens import PtxError

    try:
        translation = translate(parse(ptx), build == COUNTING)
    except (PtxError, RecursionError) as error:
        # Not one instruction but the whole text: a managed variable, a texture reference, deep nesting.
        what = str(error) if isinstance(error, PtxError) else "PTX that nests too deeply"
        refused = UnsupportedInstruction(instruction=what, kernel="")
        translation = Translation("", (), (), (), (), (), (refused,), False, ())
    meta = {
        "variables": [
            {
                "name": v.name,
                "space": v.space,
                "size": v.size,
                "alignment": v.alignment,
                "data": base64.b64encode(v.data).decode(),
                "relocations": [[r.offset, r.symbol, r.addend] for r in v.relocations],
            }
            for v in translation.symbols
        ],
        "functions": translation.functions,
        "kernels": translation.kernels,
        "parameters": dict(zip(translation.kernels, translation.parameters, strict=True)),
        "unsupported": [u.model_dump() for u in translation.unsupported],
        "asynchronous": translation.asynchronous,
        "shared": dict(zip(translation.kernels, translation.shared, strict=True)),
    }
    (directory / "module.json").write_text(json.dumps(meta))
    sites = [[s.function, s.file, s.line, s.instruction, s.inner, s.callers] for s in translation.sites]
    (directory / "sites.json").write_text(json.dumps(sites))
    if not translation.unsupported:
        source = directory / "module.cpp"
        source.write_text(translation.source)
        runtime = native.CHECKING if build == native.CHECKING else native.PLAIN
        native.compile_kernels(source, directory / "module.so", runtime)
        source.unlink()


def _load(directory: Path) -> Built:
    meta = json.loads((directory / "module.json").read_text())
    return Built(
        directory,
        tuple(
            ModuleVariable(
                v["name"],
                v["space"],
                v["size"],
                v["alignment"],
                base64.b64decode(v["data"]),
                tuple((r[0], r[1], r[2]) for r in v["relocations"]),
            )
            for v in meta["variables"]
        ),
        tuple(meta["functions"]),
        tuple(meta["kernels"]),
        {name: tuple((at, size) for at, size in places) for name, places in meta["parameters"].items()},
        tuple(UnsupportedInstruction(**u) for u in meta["unsupported"]),
        meta["asynchronous"],
        {name: tuple((n, at, size) for n, at, size in rows) for name, rows in meta["shared"].items()},
    )
