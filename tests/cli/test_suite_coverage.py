"""The map from the release's tasks to ours, and the page that is made from it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cudahercules.errors import TaskError
from cudahercules.suite.coverage import coverage, unused_reasons
from cudahercules.suite.overview import COMMAND, UNVERIFIED, overview, verified
from cudahercules.task.load import BUNDLED, load_family, load_task
from cudahercules.task.released import slices

ROOT = Path(__file__).parents[2]
BASIC = "class1/general/00_basic_gemm"


@pytest.fixture(scope="module")
def found():
    return coverage()


@pytest.fixture
def suite(tmp_path):
    """``suite("kernel/gemm", ...)``: a tasks folder with copies of these families only."""

    def make(*families: str) -> Path:
        for family in families:
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(BUNDLED / family, tmp_path / family, ignore=ignored)
        return tmp_path

    return make


def test_all_205_names_are_there_and_195_are_asked_for(found):
    assert len(found.rows) == 205 and sum(r.current for r in found.rows) == 195
    assert found.answered + len(found.missing()) == 195
    assert sum(len(found.of(part)) for part in slices()) == 195


def test_answers_are_tasks_that_exist(found):
    for row in found.rows:
        assert bool(row.tasks) != bool(row.why_not), row.name
        for task in row.tasks:
            assert row.name in load_task(task).released and task.startswith(f"{row.family}/")


def test_a_row_says_which_tasks_and_what_was_repaired(found):
    row = next(r for r in found.rows if r.name == BASIC)
    assert row.tasks == ("kernel/gemm/fp32@general",) and row.part == "class1/general" and row.current
    assert "rejects TF32" in row.repaired and "\n" not in row.repaired


def test_a_family_that_goes_is_missed(suite):
    rest = coverage(suite("kernel/rotary"))
    assert rest.answered == 1
    assert BASIC in {r.name for r in rest.missing("class1/general")}
    assert not rest.missing("class1/hopper")[0].tasks and len(rest.missing("class1/hopper")) == 20


def test_two_families_cannot_answer_for_one_name(suite):
    root = suite("kernel/gemm")
    shutil.copytree(root / "kernel" / "gemm", root / "kernel" / "gemm_again")
    with pytest.raises(TaskError) as caught:
        coverage(root)
    path = root / "kernel" / "gemm_again" / "task.yaml"
    line = path.read_text().splitlines().index(f"  {BASIC}:") + 1
    assert f"{path}:{line}: released.{BASIC}: kernel/gemm answers for it already" in str(caught.value)


def test_no_reason_for_a_gap_outlives_the_gap(found):
    assert list(unused_reasons(found)) == [], "remove these from NOT_YET in suite/coverage.py"


# --- the command ---------------------------------------------------------------------------------


def test_the_command_lists_slices_and_counts(hercules, found):
    ended = hercules("coverage", "class1/general")
    assert ended.code == 0
    for words in ("00_basic_gemm", "kernel/gemm/fp32@general", "rejects TF32", f"{found.answered} of 195"):
        assert words in " ".join(ended.out.split())
    assert "sageattn3" not in ended.out


def test_required_slices_decide_the_exit_code(hercules, monkeypatch, suite, found):
    from cudahercules.suite import coverage as module

    half = coverage(suite("module/layernorm_fwd"))
    monkeypatch.setattr(module, "coverage", lambda: half)
    assert hercules("coverage", "--json").code == 0
    ended = hercules("coverage", "--json", "--require", "class2/general", "--require", "class4")
    assert ended.code == 1 and len(ended.json["rows"]) == 205
    assert f"{43 - 4 + 3} of the required tasks" in ended.err and "groth16_prover" in ended.err
    assert "layernorm_fwd_256" not in ended.err and "layernorm_bwd_256" in ended.err

    whole = half.model_copy(update={"rows": tuple(r.model_copy(update={"tasks": ("a",)}) for r in half.rows)})
    monkeypatch.setattr(module, "coverage", lambda: whole)
    assert hercules("coverage", "--json", "--require", "class2/general").code == 0


@pytest.mark.parametrize("arguments", [("class9",), ("--require", "hopper")])
def test_an_unknown_slice_is_said(hercules, arguments):
    ended = hercules("coverage", *arguments)
    assert ended.code == 2 and "the release has class1/general, class1/hopper" in ended.err


def test_the_page_is_written_where_it_is_asked_for(hercules, tmp_path):
    assert hercules("coverage", "--tasks-md", tmp_path / "T.md").code == 0
    assert (tmp_path / "T.md").read_text() == overview()
    assert hercules("coverage", "--tasks-md", tmp_path / "no" / "T.md").code == 2


# --- TASKS.md ------------------------------------------------------------------------------------


def test_tasks_md_is_up_to_date():
    committed = (ROOT / "TASKS.md").read_text(encoding="utf-8")
    assert committed == overview(), f"TASKS.md is out of date: run `{COMMAND}`"


def test_the_page_names_every_family_once(found):
    page = overview(found)
    families = [directory.parent for directory in BUNDLED.glob("*/*/task.yaml")]
    table = page.split("## Families")[1].split("## Released")[0]
    for directory in families:
        assert table.count(f"| `{directory.parent.name}/{directory.name}` |") == 1
    assert "What is not covered" in page and "Blackwell" in page


def test_only_a_ranked_panel_verifies(monkeypatch, tmp_path):
    from cudahercules.measure import panel as panels

    family = load_family(BUNDLED / "module" / "layernorm_fwd")
    task = family[0]
    monkeypatch.setattr(panels, "SHIPPED", tmp_path)
    assert verified(family) == ()

    def rank(release: str, outcome: str):
        standing = panels.Standing(expert="e", workload="w", outcome=outcome, microseconds=1.0)
        panel = panels.TaskPanel(
            task=task.id, release=release, date="2026-12-01", driver="13.0", standings=(standing,)
        )
        panels.save_panel(panel, "some-card", tmp_path)

    rank(task.release, "failed")
    assert verified(family) == ()
    rank(task.release, "ranked")
    assert [str(v) for v in verified(family)] == ["some-card: 1"]
    rank("dev-000000000000", "ranked")
    assert [str(v) for v in verified(family)] == ["some-card: 1 as of an earlier release"]
    monkeypatch.setattr(panels, "SHIPPED", tmp_path / "none")
    assert UNVERIFIED in overview()
