"""``hercules new``: what a new author gets lints without an edit, and nothing is ever overwritten."""

from __future__ import annotations

import pytest

from cudahercules.scaffold import TEMPLATE, default_root, in_checkout, new_family
from cudahercules.task.load import BUNDLED, load_family, load_tasks


@pytest.fixture
def families(tmp_path, monkeypatch):
    """An empty directory of families on HERCULES_TASKS."""
    root = tmp_path / "families"
    root.mkdir()
    monkeypatch.setenv("HERCULES_TASKS", str(root))
    return root


@pytest.mark.timeout(200)
def test_a_new_family_lints_at_once(hercules, families):
    made = hercules("new", "kernel/saxpy")
    assert made.code == 0 and "lint kernel/saxpy" in made.out
    assert "export HERCULES_TASKS" not in made.out  # it is set
    ended = hercules("lint", "kernel/saxpy", "--device", "cpu")
    assert ended.code == 0, ended.out
    assert ended.out.count(" 0 failed") == 2, ended.out
    assert hercules("show", "saxpy/bf16").code == 0


def test_every_file_of_the_template_is_used_and_nothing_is_left_to_fill_in(families):
    folder = new_family("module/row_sums")
    made = {p.relative_to(folder) for p in folder.rglob("*") if p.is_file()}
    there = {p.relative_to(TEMPLATE) for p in TEMPLATE.rglob("*") if "__pycache__" not in p.parts}
    assert made == {p for p in there if (TEMPLATE / p).is_file()}
    text = "".join((folder / p).read_text() for p in made)
    assert "@name@" not in text and "@class@" not in text and "module/row_sums/bf16" in text
    assert {t.id for t in load_family(folder)} == {f"module/row_sums/{t}@general" for t in ("fp32", "bf16")}
    assert not [p for p in families.iterdir() if p.name.startswith(".")]


def test_a_directory_that_tasks_are_not_read_from_is_said_so(hercules, tmp_path, monkeypatch):
    monkeypatch.delenv("HERCULES_TASKS", raising=False)
    ended = hercules("new", "kernel/mine", "--directory", tmp_path / "new" / "place")
    assert ended.code == 0 and f"export HERCULES_TASKS={tmp_path / 'new' / 'place'}" in ended.out
    assert (tmp_path / "new" / "place" / "kernel" / "mine" / "task.yaml").is_file()


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("saxpy", "CLASS/NAME"),
        ("kernels/saxpy", "kernel, module, application, challenge"),
        ("kernel/SAXPY", "lower-case"),
        ("kernel/../saxpy", "CLASS/NAME"),
        ("kernel/a b", "lower-case"),
    ],
)
def test_names_that_cannot_be_are_explained(hercules, families, name, part):
    ended = hercules("new", name)
    assert ended.code == 2 and part in ended.err
    assert list(families.iterdir()) == []


def test_nothing_is_overwritten_here_or_elsewhere(hercules, families):
    assert hercules("new", "kernel/mine").code == 0
    file = families / "kernel" / "mine" / "task.yaml"
    file.write_text("my work")
    assert hercules("new", "kernel/mine").code == 2 and file.read_text() == "my work"
    bundled = hercules("new", "kernel/gemm")  # its ids would exist twice
    assert bundled.code == 2 and "exists already" in bundled.err
    assert not (families / "kernel" / "gemm").exists()


def test_a_disk_that_refuses_leaves_nothing_behind(hercules, tmp_path):
    (tmp_path / "file").write_text("")
    assert hercules("new", "kernel/mine", "--directory", tmp_path / "file").code == 2


def test_the_root_is_the_users_own_directory_before_the_checkout(families, monkeypatch):
    assert default_root() == families
    monkeypatch.delenv("HERCULES_TASKS")
    if in_checkout():
        assert default_root() == BUNDLED


def test_a_family_name_stands_for_all_its_tasks(families):
    new_family("kernel/mine")
    assert (
        [t.member for t in load_tasks("kernel/mine")]
        == ["fp32", "bf16"]
        == [t.member for t in load_tasks("mine")]
    )
    assert [t.id for t in load_tasks("mine/fp32")] == ["kernel/mine/fp32@general"]
