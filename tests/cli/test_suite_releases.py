"""Frozen releases: what a task carries, what differs, and that nothing changes unnoticed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cudahercules.errors import TaskError, UsageError
from cudahercules.measure import panel as panels
from cudahercules.suite.freezing import bundled_tasks, difference, freeze, undeclared
from cudahercules.task import releases as kept
from cudahercules.task.load import BUNDLED, load_family, load_task
from cudahercules.task.releases import is_release_of

ROOT = Path(__file__).parents[2]
NAME = "kernel/gemm/fp32@general"


@pytest.fixture
def shelf(monkeypatch, tmp_path):
    """An empty folder of releases instead of the package's."""
    monkeypatch.setattr(kept, "RELEASES", tmp_path / "releases")
    kept.forget()
    yield tmp_path / "releases"
    kept.forget()


@pytest.fixture
def family():
    return load_family(BUNDLED / "kernel" / "gemm")


def changed(tasks, **updates):
    return tuple(t.model_copy(update=updates) for t in tasks)


def test_frozen_tasks_carry_the_release_and_changed_ones_their_hash(shelf, family):
    task = family[0]
    assert task.release == f"dev-{task.digest[:12]}" and len(task.digest) == 64
    freeze("2026.12", (task, *changed(family[1:2], digest="0" * 64)))
    again = load_family(task.directory)
    assert again[0].release == "2026.12" and again[0].digest == task.digest
    assert again[1].release == f"dev-{again[1].digest[:12]}"  # its content is not the frozen one
    assert again[2].release.startswith("dev-")  # not in the release


def test_what_was_measured_before_the_freeze_still_counts(shelf, family):
    before = family[0]
    assert is_release_of(before.release, before)
    freeze("2026.12", family)
    task = load_task(before.id)
    assert task.release == "2026.12"
    assert is_release_of(before.release, task) and is_release_of("2026.12", task)
    assert not is_release_of("2026.11", task) and not is_release_of("dev-000000000000", task)
    freeze("2027.01", family[:1])
    task, other = load_task(before.id), load_task(family[1].id)
    assert task.release == "2027.01" and is_release_of("2026.12", task)
    assert other.release.startswith("dev-") and is_release_of("2026.12", other)
    assert not is_release_of("2026.12", task.model_copy(update={"digest": "0" * 64}))


def test_a_release_is_never_overwritten(shelf, family):
    frozen, path = freeze("2026.12", family)
    text = path.read_text()
    assert freeze("2026.12", family)[0] == frozen and path.read_text() == text
    with pytest.raises(UsageError, match="a release never changes"):
        freeze("2026.12", family[1:])
    assert path.read_text() == text
    with pytest.raises(UsageError, match=r"2026\.11 is older than 2026\.12"):
        freeze("2026.11", family)
    freeze("2026.12.1", family[1:])
    assert [f.release for f in kept.releases()] == ["2026.12", "2026.12.1"]


@pytest.mark.parametrize("name", ["2026", "2026.13", "26.12", "2026.12.0", "../x", "2026.12\n", ""])
def test_other_names_are_refused(shelf, family, name):
    with pytest.raises(UsageError, match="is no name of a release"):
        freeze(name, family)
    assert not shelf.exists()


@pytest.mark.parametrize(
    ("edit", "what"),
    [
        (lambda d: d["tasks"].update({NAME: "0" * 64}), "was changed after it was frozen"),
        (lambda d: d.update(release="2026.11"), "was changed after it was frozen"),
        (lambda d: d.pop("tasks"), "is no release"),
    ],
)
def test_a_file_that_was_edited_is_noticed(shelf, family, edit, what):
    _, path = freeze("2026.12", family)
    document = json.loads(path.read_text())
    edit(document)
    path.write_text(json.dumps(document))
    kept.forget()
    with pytest.raises(TaskError, match=what):
        load_family(family[0].directory)


def test_differences_are_named(shelf, family):
    frozen, _ = freeze("2026.12", family[:3])
    now = (family[0], *changed(family[1:2], digest="0" * 64), *family[3:4])
    found = difference(frozen, now)
    assert (found.same, found.changed, found.gone, found.new) == (
        1,
        (family[1].id,),
        (family[2].id,),
        (family[3].id,),
    )


def test_the_changelog_must_name_what_changed(shelf, family):
    frozen, _ = freeze("2026.12", family)
    found = difference(frozen, changed(family, digest="0" * 64))
    assert undeclared(found, "## Unreleased\n- `kernel/gemm`: a bound\n") == ("kernel/gemm",)
    assert undeclared(found, "### Tasks changed since 2026.11\n- `kernel/gemm`\n") == ("kernel/gemm",)
    text = "## Unreleased\n### Tasks changed since 2026.12\n- {}: a bound\n### Fixed\n- `kernel/gemm`\n"
    assert undeclared(found, text.format("`kernel/gemm_softmax`")) == ("kernel/gemm",)
    assert undeclared(found, text.format("`kernel/gemm`")) == ()
    assert undeclared(difference(frozen, family), "") == ()


def test_every_change_since_the_newest_release_is_in_the_changelog():
    frozen = kept.releases()
    if not frozen:
        pytest.skip("no release is frozen yet")
    found = difference(frozen[-1], bundled_tasks())
    missing = undeclared(found, (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    assert not missing, (
        f"tasks of {', '.join(missing)} differ from release {found.release} (`hercules release check`): name "
        f"them in CHANGELOG.md under '### Tasks changed since {found.release}'"
    )


def test_a_panel_ranked_before_the_freeze_is_not_called_old(shelf, family):
    from cudahercules.judge.timing import panel_note

    task = family[0]
    panel = panels.TaskPanel(
        task=task.id, release=task.release, date="2026-12-01", driver="13.0", standings=()
    )
    freeze("2026.12", family)
    assert panel_note(load_task(task.id), panel) == ""


def test_the_commands(hercules, shelf, monkeypatch, family):
    from cudahercules.suite import freezing

    monkeypatch.setattr(freezing, "bundled_tasks", lambda: load_family(family[0].directory))
    assert "No release is frozen yet" in hercules("release", "check").out
    ended = hercules("release", "freeze", "2026.12")
    assert ended.code == 0 and f"{len(family)} tasks" in ended.out
    assert hercules("release", "freeze", "2026.12").code == 0
    ended = hercules("release", "check")
    assert ended.code == 0 and f"{len(family)} tasks as frozen, 0 changed" in ended.out
    assert hercules("tasks", "--family", "gemm", "--json").json[0]["release"] in ("2026.12",)

    monkeypatch.setattr(freezing, "bundled_tasks", lambda: changed(family, digest="0" * 64))
    ended = hercules("release", "check", "--json")
    assert ended.code == 1 and ended.json["changed"] == sorted(t.id for t in family)
    assert "Tasks changed since 2026.12" in hercules("release", "check").out
    ended = hercules("release", "freeze", "2026.12")
    assert ended.code == 2 and "a release never changes" in ended.err
