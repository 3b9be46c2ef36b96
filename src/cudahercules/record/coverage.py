"""The generated part of ``docs/recorder.md``: ``python -m cudahercules.record.coverage FILE``
replaces it in the file (without FILE it is printed)."""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

from cudahercules.record.library import coverage, exported_symbols

MARK = "<!-- generated: what follows comes from the recorder's sources -->\n"


def tables() -> str:
    """Markdown: the numbers, then the implemented, the refused and the unsupported names."""
    covered = coverage()
    implemented = set(covered.implemented)
    by_sentence = defaultdict(list)
    for name, sentence in covered.refused.items():
        by_sentence[sentence].append(name)
    lines = [
        f"## Coverage: {len(exported_symbols())} names",
        "",
        f"{len(implemented)} are implemented, {len(covered.refused)} are refused for a stated reason, and "
        f'{len(covered.unsupported)} end in "unsupported runtime call".',
        "",
        "### Implemented",
        "",
        _listed(_without_twins(covered.implemented)),
        "",
        "Each also in its per-thread form (`_ptsz`, `_ptds`) where the runtime has one.",
        "",
        "### Refused",
        "",
        "| reason | calls |",
        "|---|---|",
    ]
    for sentence, names in sorted(by_sentence.items()):
        lines.append(f"| {sentence} | {_listed(_without_twins(names))} |")
    lines += ["", "### Unsupported", "", _listed(_without_twins(covered.unsupported)), ""]
    return "\n".join(lines)


def _without_twins(names) -> list[str]:
    """Names whose plain form stands in the list as well are left out."""
    known = set(names)
    return sorted(n for n in known if n.removesuffix("_ptsz").removesuffix("_ptds") not in known - {n})


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{n}`" for n in names)


def updated(text: str) -> str:
    """``text`` (of docs/recorder.md) with its generated part renewed."""
    return text.partition(MARK)[0] + MARK + "\n" + tables()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        path = Path(sys.argv[1])
        path.write_text(updated(path.read_text()))
    else:
        print(tables())
