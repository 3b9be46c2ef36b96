"""The corpus as data: what each case does, where it was seen, what stops it, and what must come out.

A case is a folder ``exploits/CLASS/NAME`` with the attack (``attack.cu``, a directory ``candidate``, or
``attack.py``, whose ``make(directory)`` writes a candidate that git or a wheel could not hold) and
``expect.yaml``. The attack begins with three lines ``does:``, ``seen:`` and ``stops:``; an honest control has
the same with ``does:`` alone.
"""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Literal

import yaml
from pydantic import ValidationError

from cudahercules.cache import digest
from cudahercules.errors import TaskError, UsageError
from cudahercules.task.load import load_family, load_task
from cudahercules.task.model import Model, Target, Task

CORPUS = Path(__file__).parent.parent / "exploits"
GROUND = CORPUS / "ground"
CONTROLS = "controls"
CLASSES = {
    "device": "Device code",
    "work": "Less work than asked",
    "host": "Host code",
    "plans": "Forged plans",
    "files": "Compiler and files",
    "answers": "Answers that address a judge",
    CONTROLS: "Honest controls",
}
REFUSED = "refused"
"""What comes out for a path that is no candidate: a message and exit code 2, and no verdict."""

Device = Literal["cpu", "gpu"]
_HEADER = re.compile(r"^(?://|#|\"\"\") ?(does|seen|stops): +(.+?)(?:\"\"\")?$", re.MULTILINE)


class Expected(Model):
    """What must come out on one device.

    ``verdict`` is a verdict's kind, several joined by " or ", or ``refused``. ``says`` is a regular
    expression that the message must match, ``workload`` where it must be found: the right verdict for
    another reason is a difference. ``speed``
    binds a timed verdict: ``not_faster`` than the opponent (what an attack would have gained it did not
    gain), ``on_par`` with it."""

    verdict: str
    says: str = ""
    workload: str = ""
    speed: Literal["any", "not_faster", "on_par"] = "any"


class _Sheet(Model):
    """``expect.yaml``. ``gpu`` is as ``cpu`` where it is left out. ``rows`` are those of the list of known
    hacks in exploits/README.md. ``note`` says what is not obvious about the expectation."""

    task: str = "kernel/product"
    target: Target = Target.GENERAL
    rows: tuple[str, ...] = ()
    cpu: Expected
    gpu: Expected | None = None
    note: str = ""


@dataclass(frozen=True)
class Case:
    """One exploit or control. ``name`` is CLASS/NAME."""

    name: str
    directory: Path
    does: str
    seen: str
    stops: str
    rows: tuple[str, ...]
    note: str
    task: Task
    expected: dict[Device, Expected]

    @property
    def group(self) -> str:
        return self.name.partition("/")[0]

    @property
    def honest(self) -> bool:
        return self.group == CONTROLS

    @property
    def sha256(self) -> str:
        """Of everything in the case's folder and of its task."""
        files = sorted(p for p in self.directory.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
        parts = [part for p in files for part in (str(p.relative_to(self.directory)), p.read_bytes())]
        return digest(self.task.id, self.task.release, *parts)

    def candidate(self, directory: Path) -> Path:
        """The path to grade; a case that is made by a script is made in the empty ``directory``."""
        for name in ("attack.cu", "candidate"):
            if (self.directory / name).exists():
                return self.directory / name
        spec = importlib.util.spec_from_file_location("attack", self.directory / "attack.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return Path(module.make(directory))


def load_corpus() -> tuple[Case, ...]:
    """Every case, by class and name. Raises TaskError that names the folder and what is wrong with it."""
    return tuple(
        _load(directory)
        for group in CLASSES
        for directory in sorted((CORPUS / group).iterdir())
        if directory.is_dir() and directory.name != "__pycache__"
    )


def chosen(cases: tuple[Case, ...], pattern: str | None) -> tuple[Case, ...]:
    """The cases that ``pattern`` names: a class, a name, or either with ``*``. Raises UsageError if none."""
    if pattern is None:
        return cases
    found = tuple(
        c for c in cases if any(fnmatchcase(part, pattern) for part in (c.name, *c.name.split("/")))
    )
    if not found:
        classes = ", ".join(CLASSES)
        raise UsageError(
            f"--only {pattern}: no case has this name. Classes: {classes}; * stands for any text"
        )
    return found


def _load(directory: Path) -> Case:
    name = f"{directory.parent.name}/{directory.name}"
    try:
        sheet = _Sheet.model_validate(yaml.safe_load((directory / "expect.yaml").read_text()))
    except OSError as error:
        raise TaskError(f"{name}: it has no expect.yaml") from error
    except (ValidationError, yaml.YAMLError) as error:
        raise TaskError(f"{name}/expect.yaml: {error}") from error
    header = dict(_HEADER.findall(_main_file(directory, name).read_text()))
    wanted = {"does"} if directory.parent.name == CONTROLS else {"does", "seen", "stops"}
    if missing := wanted - header.keys():
        raise TaskError(f"{name}: its first lines do not say {', '.join(sorted(missing))}")
    return Case(
        name=name,
        directory=directory,
        does=header["does"],
        seen=header.get("seen", ""),
        stops=header.get("stops", ""),
        rows=sheet.rows,
        note=sheet.note,
        task=_task(sheet.task, sheet.target),
        expected={"cpu": sheet.cpu, "gpu": sheet.gpu or sheet.cpu},
    )


def _main_file(directory: Path, name: str) -> Path:
    for path in (directory / "attack.cu", directory / "attack.py", *sorted(directory.glob("candidate/*.cu"))):
        if path.is_file() and _HEADER.search(path.read_text()):
            return path
    raise TaskError(f"{name}: neither attack.cu, attack.py nor a file in candidate/ begins with `does:`")


@cache
def _task(name: str, target: Target) -> Task:
    if (GROUND / name).is_dir():
        return next(t for t in load_family(GROUND / name) if t.target is target)
    return load_task(f"{name}@{target.value}")
