"""Count the machine instructions of a kernel, as evidence of how it works.

A key is the opcode as nvdisasm prints it, cut to what matters:

* tensor-core instructions keep all their modifiers, because those name shape and precision:
  ``HMMA.16816.F32.BF16``, ``HGMMA.64x128x16.F32.BF16``, ``UTCHMMA``;
* loads, stores and asynchronous copies keep their width in bits: ``LDG.128``, ``STS.32``, ``LDL.64``,
  ``LDGSTS.128``; local accesses (``LDL``, ``STL``) are spills or arrays on the stack;
* everything else is the bare opcode: ``FFMA``, ``MUFU``, ``SHFL``, ``BAR``, ``UTMALDG``, ``ATOMG``.

Counts are static (how often an instruction stands in the code, not how often it runs). Padding
(``NOP``) is left out.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from cudahercules.build import sandbox
from cudahercules.build.artifact import Artifact
from cudahercules.build.toolchain import INSTALL_DISASSEMBLERS, find_disassembler
from cudahercules.cache import digest, entry, file_digest
from cudahercules.process import Limits, run_limited
from cudahercules.task.model import Model

SASS_VERSION = 2
"""Raised when the same code would be counted differently; part of the cache's key. Entries of version 1
may be empty where nvdisasm had been killed."""

_LIMITS = Limits(wall_s=120, cpu_s=120, memory=8 << 30, output=256 << 20)
_SECTION = re.compile(r'^\s*\.section\s+\.text\.([^,"\s]+)')
_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)")
_TENSOR = re.compile(r"^(?:[HIDQOB]MMA|[HIQB]GMMA|UTC\w*MMA)")
_MEMORY = re.compile(r"^(?:LD|LDG|LDS|LDL|LDSM|LDGSTS|ST|STG|STS|STL|STSM|LDT|STT)$")
_WIDTH = re.compile(r"\.(?:[US](8|16)|(64|128|256))(?=\.|$)")


class InstructionMix(Model):
    """``kernels`` maps a kernel's name to its counts; it is empty where nvdisasm is absent or
    failed, and ``note`` then says why and what to do."""

    tool: str = ""
    note: str = ""
    kernels: dict[str, dict[str, int]] = Field(default_factory=dict)


def instruction_mix(artifact: Artifact) -> dict[str, dict[str, int]]:
    """Counts of every kernel of ``artifact`` by name; empty where nvdisasm is absent or failed
    (:func:`read_mix` says why)."""
    found: dict[str, dict[str, int]] = {}
    for number in range(len(artifact.modules)):
        found.update(read_mix(artifact, number).kernels)
    return found


def read_mix(artifact: Artifact, module: int) -> InstructionMix:
    """The instruction counts of every kernel in one device module (cached)."""
    tool = find_disassembler("nvdisasm")
    if tool is None:
        return InstructionMix(note=f"nvdisasm is not installed: {INSTALL_DISASSEMBLERS}")
    cubin = artifact.path(artifact.modules[module].cubin).absolute()

    def make(directory: Path) -> None:
        directory = directory.absolute()
        done = run_limited(
            [tool, "-c", "-ndf", cubin],
            _LIMITS,
            env={"PATH": str(tool.parent), "LC_ALL": "C", "TMPDIR": str(directory)},
            confined=sandbox.confinement(read=(tool.parent, cubin), write=(directory,)),
        )
        if done.status != 0 or done.output_cut:
            # Not cached: it may have been killed because the program ended, or for want of memory.
            raise _Failed(done.stderr.decode(errors="replace").strip()[-200:] or f"exit status {done.status}")
        counts = count(done.stdout.decode(errors="replace"))
        (directory / "mix.json").write_text(json.dumps(counts, sort_keys=True))

    key = digest(str(SASS_VERSION), file_digest(cubin), str(tool.stat().st_size))
    try:
        directory, _ = entry("sass", key, make)
    except _Failed as failure:
        return InstructionMix(tool=tool.name, note=f"nvdisasm failed: {failure}")
    kernels = json.loads((directory / "mix.json").read_text())
    return InstructionMix(tool=tool.name, kernels=kernels)


class _Failed(Exception):
    """nvdisasm did not list the module; the text says why."""


def count(listing: str) -> dict[str, dict[str, int]]:
    """Instruction counts by kernel of what ``nvdisasm -c -ndf`` printed."""
    found: dict[str, Counter[str]] = {}
    current: Counter[str] = Counter()
    for line in listing.splitlines():
        if match := _SECTION.match(line):
            current = found.setdefault(match[1], Counter())
        elif match := _INSTRUCTION.match(line):
            current[opcode_class(match[1])] += 1
    return {kernel: _without_padding(mix) for kernel, mix in found.items()}


def _without_padding(mix: Mapping[str, int]) -> dict[str, int]:
    return {opcode: n for opcode, n in sorted(mix.items()) if opcode != "NOP"}


def opcode_class(opcode: str) -> str:
    """``LDG.E.128.CONSTANT`` -> ``LDG.128``, ``FFMA.FTZ`` -> ``FFMA``, ``HMMA.16816.F32`` as it is."""
    base = opcode.split(".", 1)[0]
    if _TENSOR.match(base):
        return opcode
    if _MEMORY.match(base):
        width = _WIDTH.search(opcode)
        return f"{base}.{(width[1] or width[2]) if width else 32}"
    return base
