"""Accepted mutants through g++ and into the confined emulator.

What the check has accepted must compile: g++ reads many translations as one file. A sample is compiled in
earnest, many kernels a module, and each kernel is launched once with arguments that a seed decides.
"""

from __future__ import annotations

import random
import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from emulated import PAGE, Program
from mutation_check import Made, checked
from mutation_units import Statement, renamed

from cudahercules.build.toolchain import find_host_compiler
from cudahercules.emulator import native
from cudahercules.emulator.outcome import Outcome
from cudahercules.emulator.translation import build_translation
from cudahercules.errors import HerculesError, PlanError
from cudahercules.process import Limits, run_limited
from cudahercules.record.plan import KernelLaunch, Relocation

HEADERS = ("atomics", "bulk", "cluster", "mbarrier", "wmma", "wgmma", "scalar")
BUFFERS, BUFFER_BYTES = 4, 1 << 16
WALL_S = 3.0
"""What one mutant may run. One that is still running a second past its grace was not stopped: a finding."""


def refused_by_compiler(mutants: Sequence[Made]) -> list[tuple[Made, str]]:
    """Those whose translations g++ does not take, with its first complaint. All are read as one file."""
    text = [f'#include "{name}.hpp"' for name in HEADERS]
    for made in mutants:
        assert made.translation is not None
        source = "\n".join(line for line in made.translation.source.splitlines() if not line.startswith("#"))
        source = source.replace("rt_exports", f"rt_exports_{made.number}")
        text += [f"namespace mutant_{made.number} {{", f'#line 1 "mutant_{made.number}"', source, "}"]
    path, _ = find_host_compiler()
    with tempfile.TemporaryDirectory() as folder:
        unit = Path(folder) / "unit.cpp"
        unit.write_text("\n".join(text))
        flags = (*native._FLAGS, *native._KERNEL_FLAGS, f"-I{native.RUNTIME / native.PLAIN}")
        command = [path, "-fsyntax-only", "-fmax-errors=0", *flags, *native.machine_flags(), unit]
        done = run_limited(
            command, Limits(wall_s=600, output=8 << 20), env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
        )
    if done.status == 0:
        return []
    said = done.stderr.decode(errors="replace")
    found: dict[int, str] = {}
    for number, complaint in re.findall(r"^mutant_(\d+):\d+:\d+: (error: .*)", said, re.MULTILINE):
        found.setdefault(int(number), complaint)
    by_number = {made.number: made for made in mutants}
    if not found:  # an error in a template of the runtime names a line of the header
        found = {int(n): said[:400] for n in re.findall(r"mutant_(\d+)", said)[:1]} or {
            mutants[0].number: said[:400]
        }
    return [(by_number[number], complaint) for number, complaint in found.items()]


@dataclass(frozen=True, slots=True)
class Ended:
    """How one mutant ended in the emulator; ``finding`` says what is wrong with that, if anything."""

    made: Made
    outcome: str
    finding: str = ""


def run_together(mutants: Sequence[Made], seed: int, folder: Path) -> list[Ended]:
    """Compile ``mutants`` (kernels of one target) as one module and launch each once."""
    statements: list[Statement] = [mutants[0].mutant[0]]
    kernels: list[tuple[Made, str]] = []
    for made in mutants:
        names = renamed(made.unit, made.mutant[1:], f"m{made.number}_")
        signature = next((s for s in names if ".entry" in s), ())
        if signature:
            statements += names
            kernels.append((made, signature[signature.index(".entry") + 1]))
    text = "\n".join(" ".join(s) for s in statements) + "\n"
    outcome, _, _ = checked(text)
    if outcome != "accepted" and len(mutants) > 1:  # one that is open at its end takes in the next
        half = len(mutants) // 2
        return [e for part in (mutants[:half], mutants[half:]) for e in run_together(part, seed, folder)]
    if outcome != "accepted":
        return [Ended(mutants[0], f"not run: {outcome} with its names changed")]
    try:
        program = Program(text, folder)
        build_translation(text)
    except HerculesError as error:
        return [Ended(mutants[0], "machine error", str(error)[:400])]
    generator = random.Random(seed)
    for number in range(BUFFERS):
        values = np.frombuffer(generator.randbytes(BUFFER_BYTES), np.uint8).copy()
        if number == 0:
            values.view(np.uint32)[:] = np.arange(BUFFER_BYTES // 4) % 64
        program.array(f"b{number}", values)
    return [_launched(program, made, name, generator) for made, name in kernels]


def _launched(program: Program, made: Made, name: str, generator: random.Random) -> Ended:
    function = program.module.functions.get(name)
    if function is None or not function.is_kernel or function.body is None:
        return Ended(made, "no kernel")
    data, relocations = _arguments(program, function.parameters, generator)
    threads = generator.choice((1, 31, 32, 64, 128, 256))
    program.operations = [
        KernelLaunch(
            stream=0,
            module=0,
            kernel=name,
            grid=(generator.choice((1, 2, 4)), 1, 1),
            block=(threads, 1, 1),
            dynamic_shared=generator.choice((0, 0, 1024, 48 << 10)),
            cooperative=False,
            parameters=data,
            relocations=relocations,
        )
    ]
    try:
        ended: Outcome = program.emulated(
            wall_s=WALL_S, threads=1, asynchrony=generator.choice(("late", "eager", "random:7"))
        )
    except PlanError as error:
        return Ended(made, "plan refused: " + re.sub(r".*: |\d+", "", str(error))[:60])
    except HerculesError as error:
        return Ended(made, "machine error", str(error)[:300])
    except Exception as error:
        return Ended(made, "exception", f"{type(error).__name__}: {error}"[:300])
    what = getattr(ended, "what", "")
    message = getattr(ended, "message", "")
    finding = ""
    if "without a result" in message or (ended.kind == "out_of_fuel" and not ended.kernel):
        finding = f"{message or 'killed after its time'} (kernel {name})"
    return Ended(made, f"{ended.kind} {what}".strip(), finding)


def _arguments(
    program: Program, parameters, generator: random.Random
) -> tuple[bytes, tuple[Relocation, ...]]:
    """Parameter bytes: eight-byte words are mostly addresses of buffers, others small numbers."""
    data, relocations = bytearray(), []
    for parameter in parameters:
        data += bytes(-len(data) % max(1, parameter.alignment))
        if len(data) + parameter.size > 4096:
            break
        end = len(data) + parameter.size
        while len(data) + 8 <= end and parameter.size >= 8 and len(data) % 8 == 0:
            if generator.random() < 0.7:
                at = generator.randrange(BUFFERS)
                relocations.append(Relocation(offset=len(data), kind="buffer", index=at, addend=0))
                data += bytes(8)
            else:
                data += generator.choice((0, 1, 64, 1000, 1 << 33)).to_bytes(8, "little")
        while len(data) < end:
            data += generator.choice((0, 1, 2, 7, 64)).to_bytes(4, "little")[: end - len(data)]
    return bytes(data), tuple(relocations)


def counted(ended: Sequence[Ended]) -> Counter[str]:
    return Counter(e.outcome for e in ended)


__all__ = ["PAGE", "Ended", "counted", "refused_by_compiler", "run_together"]
