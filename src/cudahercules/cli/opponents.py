"""``experts``: the packages that the panels' experts need, and which of them are here."""

from __future__ import annotations

import json as json_module
from typing import Any

from cudahercules.cli.common import emit, explained
from cudahercules.cli.grading import Json

HOW = "pip install -c constraints/gpu.txt 'cudahercules[EXTRA]'"


@explained
def experts(json: Json = False) -> None:
    """List the packages that experts are made of: versions, licences, what was tested, what is here."""
    from cudahercules.suite.packages import installed, packages, users

    known, needed = packages(), users()
    if json:
        rows = {
            name: {
                **p.model_dump(mode="json"),
                "installed": installed(name),
                "families": needed.get(name, ()),
            }
            for name, p in known.items()
        }
        emit(json_module.dumps(rows, indent=1))
    else:
        _print(known, needed)


def _print(known: dict[str, Any], needed: dict[str, tuple[str, ...]]) -> None:
    from rich.text import Text

    from cudahercules.report.terminal import GOOD, NEITHER, console, say
    from cudahercules.suite.packages import installed

    out = console()
    for name, package in known.items():
        here = installed(name)
        state = Text(f"{here} is here", style=GOOD) if here else Text("not here", style=NEITHER)
        out.print(
            Text(f"{name} ", style="bold").append(f"{package.versions}: ", style="default").append(state)
        )
        tested = package.tested
        lines = [
            f"tested: {tested.version} on {tested.gpu}, {tested.wheel}" if tested else "tested: not yet",
            *([f"SHA-256 {tested.sha256}"] if tested else []),
            f"for {', '.join(package.targets)}; {len(needed.get(name, ()))} families",
            f"licence: {package.licence}",
            f"extra: {package.extra or 'none'}; in its place: {package.replacement}",
            *([f"note: {package.note}"] if package.note else []),
        ]
        for line in lines:
            say(out, line, indent=4)
    say(out, f"\nAn extra is brought by `{HOW}`, which keeps torch as it is.")
    say(out, "An expert whose packages are missing does not play; a verdict says who was missing.")


COMMANDS: dict[str, Any] = {"experts": experts}
