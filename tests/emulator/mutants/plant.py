"""Plant bugs in the emulator, one at a time, and see whether the tests notice.

``python tests/emulator/mutants/plant.py LIST [NAME...]`` reads ``LIST.py`` beside this file, which holds
``MUTANTS`` and ``TESTS``, and writes the table ``LIST.md`` (rows of mutants that are not named stay).
Each mutant is a copy of ``src`` with one text replaced; the tests, as they were at the start, run
against the copy and stop at the first failure.
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
_NOBODY = "**nobody**"


@dataclass(frozen=True)
class Mutant:
    """``old`` stands once in ``file`` (below the emulator's folder) and becomes ``new``."""

    name: str
    file: str
    old: str
    new: str


def plant(mutant: Mutant, source: Path) -> None:
    """Change the copy. Raises ValueError if the text is not there exactly once."""
    file = source / "cudahercules" / "emulator" / mutant.file
    text = file.read_text()
    if text.count(mutant.old) != 1:
        raise ValueError(f"{mutant.name}: {text.count(mutant.old)} times in {mutant.file}: {mutant.old!r}")
    file.write_text(text.replace(mutant.old, mutant.new))


def noticed_by(mutant: Mutant | None, tests: list[str], scratch: Path) -> str:
    """The first test that fails, or nothing if all pass."""
    source = scratch / "src"
    if source.exists():
        shutil.rmtree(source)
    shutil.copytree(scratch / "sound" / "src", source)
    if mutant is not None:
        plant(mutant, source)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header", *tests],
        cwd=scratch / "sound",
        env={**os.environ, "PYTHONPATH": str(source), "HERCULES_CACHE": str(scratch / "cache")},
        capture_output=True,
        text=True,
    )
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if done.returncode and not failed:
        raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])
    return failed[0].split(" - ")[0].split("::", 1)[-1] if failed else ""


def main(listed: str, names: list[str]) -> int:
    sys.path.insert(0, str(HERE))
    module = importlib.import_module(listed)
    known = {m.name: m for m in module.MUTANTS}
    results = {name: test for name, test in _read_table(listed).items() if name in known and names}
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        for folder in ("src", "tests"):
            target = scratch / "sound" / folder
            shutil.copytree(ROOT / folder, target, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", scratch / "sound")
        if first := noticed_by(None, module.TESTS, scratch):
            print(f"without a mutant {first} fails")
            return 1
        for mutant in module.MUTANTS:
            if names and mutant.name not in names:
                continue
            start = time.monotonic()
            test = noticed_by(mutant, module.TESTS, scratch)
            print(f"{mutant.name}: {test or 'SURVIVES'} ({time.monotonic() - start:.0f} s)", flush=True)
            results[mutant.name] = test
            rows = [(m, results[m.name]) for m in module.MUTANTS if m.name in results]
            (HERE / f"{listed}.md").write_text(_table(listed, rows))
    return sum(not test for test in results.values())


def _read_table(listed: str) -> dict[str, str]:
    file = HERE / f"{listed}.md"
    lines = file.read_text().splitlines() if file.exists() else []
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ") and "`" in line]
    return {row[0]: row[2].replace(_NOBODY, "").replace("\\|", "|") for row in rows}


def _table(listed: str, rows: list[tuple[Mutant, str]]) -> str:
    noticed = sum(bool(test) for _, test in rows)
    lines = [
        f"{noticed} of {len(rows)} planted bugs are noticed. Made by `plant.py {listed}`.",
        "",
        "| bug | in | noticed by |",
        "|---|---|---|",
    ]
    for mutant, test in rows:
        escaped = (test or _NOBODY).replace("|", "\\|")
        lines.append(f"| {mutant.name} | `{mutant.file}` | {escaped} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
