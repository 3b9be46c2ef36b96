"""The table of experts' packages: complete, no longer than needed, and true to pyproject and to rankings."""

from __future__ import annotations

import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from cudahercules.measure import panel as panels
from cudahercules.measure.panel import normal
from cudahercules.suite.packages import FILE, packages, users

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def required(extra: str) -> dict[str, Requirement]:
    return {normal(r.name): r for r in map(Requirement, EXTRAS[extra])}


def test_every_package_that_an_expert_names_has_an_entry():
    missing = {name: families for name, families in users().items() if name not in packages()}
    assert not missing, (
        f"add these to {FILE.relative_to(ROOT)} (and to an extra in pyproject.toml): {missing}"
    )


def test_every_entry_is_needed():
    assert not packages().keys() - users().keys(), f"no expert needs these of {FILE.relative_to(ROOT)}"


@pytest.mark.parametrize("name", packages())
def test_an_entry_and_its_extra_agree(name):
    package = packages()[name]
    wanted = SpecifierSet(package.versions)
    assert package.tested is None or wanted.contains(package.tested.version)
    if package.extra:
        assert required(package.extra)[name].specifier == wanted
    else:
        assert package.note, "an entry without an extra says how the package is brought"
        assert not any(name in required(extra) for extra in EXTRAS if extra.startswith("experts"))


def test_extras_hold_nothing_else_and_leave_torch_alone():
    groups = [extra for extra in EXTRAS if extra.startswith("experts-")]
    for extra in groups:
        assert {n for n, p in packages().items() if p.extra == extra} == required(extra).keys()
        assert not {"torch", "triton"} & required(extra).keys()
    assert set(Requirement(EXTRAS["experts"][0]).extras) == set(groups)
    pinned = {r.name: r for r in map(Requirement, _lines(ROOT / "constraints" / "gpu.txt"))}
    for name in ("torch", "triton"):
        tested = packages()[name].tested
        assert tested is not None and pinned[name].specifier == SpecifierSet(f"=={tested.version}")


def _lines(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if line and not line.startswith("#")]


@pytest.mark.parametrize("name", [n for n, p in packages().items() if p.tested])
def test_what_is_called_tested_stands_in_a_committed_ranking(name):
    tested = packages()[name].tested
    known = panels.PanelFile.model_validate_json((panels.SHIPPED / f"{tested.gpu}.json").read_bytes())
    called = tested.ranked_as or name
    seen = {
        s.versions[called].partition("+")[0]
        for panel in known.panels.values()
        for s in panel.standings
        if s.outcome == "ranked" and called in s.versions
    }
    assert tested.version in seen
    stem = tested.wheel.split("-")
    assert normal(stem[0]) == name and stem[1] == tested.version


def test_the_command_lists_them(hercules):
    ended = hercules("experts", "--json")
    assert ended.code == 0 and ended.json.keys() == packages().keys()
    assert "module/attention_fwd" in ended.json["fa3-fwd"]["families"]
    assert ended.json["fa3-fwd"]["tested"]["sha256"].startswith("44d26c6c")
    out = hercules("experts").out
    assert "0.0.3 on nvidia-h200" in out and "not yet" in out and "constraints/gpu.txt" in out


def test_what_is_installed_is_said(monkeypatch, hercules):
    from cudahercules.suite import packages as module

    monkeypatch.setattr(module, "version", lambda name: "9.9" if name == "fa3-fwd" else _absent(name))
    found = hercules("experts", "--json").json
    assert found["fa3-fwd"]["installed"] == "9.9" and found["liger-kernel"]["installed"] is None


def _absent(name: str) -> str:
    raise PackageNotFoundError(name)
