"""The packages that experts are made of: ``packages.yaml``, typed, and who of the experts needs which."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import yaml
from pydantic import Field

from cudahercules.task.load import bundled_families
from cudahercules.task.model import Model, Target

FILE = Path(__file__).parent / "packages.yaml"


class Tested(Model):
    """A version that stands in a committed ranking on ``gpu`` (a slug of ``measure/panels``)."""

    version: str
    gpu: str
    wheel: str = Field(pattern=r"\.whl$")
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    ranked_as: str = ""


class Package(Model):
    """One package; ``packages.yaml`` says what fields mean. No ``tested``: in no committed ranking yet."""

    versions: str
    extra: str
    targets: tuple[Target, ...] = Field(min_length=1)
    licence: str = Field(min_length=1)
    replacement: str = Field(min_length=1)
    tested: Tested | None = None
    note: str = ""


@cache
def packages() -> dict[str, Package]:
    """Every package by its distribution's name, in the file's order."""
    content = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return {name: Package.model_validate(fields) for name, fields in content.items()}


def users() -> dict[str, tuple[str, ...]]:
    """Package -> the bundled families with an expert that needs it, whether or not it has an entry."""
    found: dict[str, dict[str, None]] = {}
    for family in bundled_families():
        for name in {p for t in family for e in t.experts for p in e.packages}:
            found.setdefault(name, {})[family[0].family] = None
    return {name: tuple(families) for name, families in sorted(found.items())}


def installed(name: str) -> str | None:
    """The version of this distribution that is installed here. Nothing is imported."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None
