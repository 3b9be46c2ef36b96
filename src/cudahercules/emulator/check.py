"""What the emulator refuses, found before anything runs."""

from __future__ import annotations

from cudahercules.emulator.emit.module import translate
from cudahercules.emulator.outcome import UnsupportedInstruction
from cudahercules.emulator.ptx.parse import parse
from cudahercules.emulator.ptx.tokens import PtxError


def unsupported(ptx: str) -> tuple[UnsupportedInstruction, ...]:
    """Every instruction of ``ptx`` whose opcode, modifiers or operands are outside the emulator's
    tables, with kernel (or device function) and source line; empty if all of it can run."""
    try:
        return translate(parse(ptx)).unsupported
    except PtxError as error:
        return (UnsupportedInstruction(instruction=str(error), kernel=""),)
