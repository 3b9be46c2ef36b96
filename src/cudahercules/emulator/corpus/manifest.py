"""The committed list of expert files: where each comes from and how it is compiled."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, model_validator

from cudahercules.task.model import Model

DIRECTORY = Path(__file__).parent

TargetName = Literal["ampere", "hopper", "blackwell"]
ARCHITECTURE: dict[str, str] = {"ampere": "80", "hopper": "90a", "blackwell": "100a"}
TOOLKIT, OWN = "toolkit", "cudahercules"
"""Origins that need no wheel: headers beside nvcc, and the tasks of this package."""


class Wheel(Model):
    """A package: ``file`` and ``sha256`` name one wheel of it. ``keep`` are the folders that are unpacked,
    ``include`` those that are searched for headers; both are paths in the wheel."""

    package: str
    version: str
    file: str
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    licence: str
    keep: tuple[str, ...]
    include: tuple[str, ...]


class ExpertFile(Model):
    """One file of experts' code.

    ``origin`` is a wheel's name in the manifest, ``toolkit`` or ``cudahercules``; ``path`` where the file
    lies in it. It is compiled as it stands, unless ``code`` is given: a few lines that include it and
    instantiate its templates. ``task`` gives an own file its ``solve.h``. ``uses`` are further wheels whose
    headers it needs. ``seconds`` is about how long nvcc takes on one idle core: cheap files come first.
    """

    name: str
    origin: str
    path: str
    targets: tuple[TargetName, ...] = Field(min_length=1)
    code: str = ""
    task: str = ""
    uses: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    seconds: float = Field(gt=0)

    @model_validator(mode="after")
    def _own_files_have_a_task(self) -> ExpertFile:
        if bool(self.task) != (self.origin == OWN):
            raise ValueError(f"{self.name}: own files, and only they, name a task")
        return self


class Manifest(Model):
    wheels: dict[str, Wheel]
    files: tuple[ExpertFile, ...]

    @model_validator(mode="after")
    def _consistent(self) -> Manifest:
        names = [f.name for f in self.files]
        if twice := {n for n in names if names.count(n) > 1}:
            raise ValueError(f"listed twice: {', '.join(sorted(twice))}")
        for file in self.files:
            for wheel in (file.origin, *file.uses):
                if wheel not in self.wheels and wheel not in (TOOLKIT, OWN):
                    raise ValueError(f"{file.name}: no wheel {wheel!r} in the manifest")
        return self


@lru_cache(maxsize=1)
def manifest() -> Manifest:
    """The list, from every ``*.yaml`` beside this file: ``wheels.yaml``, and one for each origin."""
    wheels: dict[str, Any] = {}
    files: list[Any] = []
    for path in sorted(DIRECTORY.glob("*.yaml")):
        tree = yaml.safe_load(path.read_text())
        wheels |= tree.get("wheels", {})
        defaults = tree.get("defaults", {})
        files += [{**defaults, **row} for row in tree.get("files", ())]
    return Manifest.model_validate({"wheels": wheels, "files": files})
