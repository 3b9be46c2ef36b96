"""The panel's ranking on the pretend station: times, wrong answers, declines, what is missing."""

import pytest

from cudahercules.judge.lint import _standing_row
from cudahercules.judge.ranking import rank_panel
from cudahercules.measure import panel as panels
from cudahercules.replay.interface import ContestantLost, ExpertDeclined
from cudahercules.task.model import Expert


@pytest.fixture
def ranked(task, station, monkeypatch, tmp_path):
    """Ranks a panel of four, of whom one declines us_55, one is lost and one is not installed."""
    names = {"library": "numpy", "picky": "numpy", "broken": "numpy", "absent": "no-such-package"}
    experts = tuple(Expert(name=n, title=n, packages=(p,)) for n, p in names.items())
    whole = task.model_copy(update={"experts": experts})
    opened = station.open_expert

    def open_it(task, expert, workload):
        if expert == "picky" and workload.name == "us_55":
            raise ExpertDeclined("picky: no such size\nmore")
        if expert == "broken":
            raise ContestantLost("the expert failed: broken: ValueError")
        return opened(task, expert, workload)

    monkeypatch.setattr(station, "open_expert", open_it)
    return whole, rank_panel(whole, station, directory=tmp_path / "panels")


def test_declines_are_stored_with_the_experts_words(ranked):
    _, panel = ranked
    found = {(s.expert, s.workload): s for s in panel.standings}
    assert (
        found["picky", "us_55"].outcome == "declined" and found["picky", "us_55"].why == "picky: no such size"
    )
    assert found["picky", "us_300"].outcome == "ranked" and found["picky", "us_300"].microseconds > 0
    assert found["broken", "us_55"].outcome == "failed" and found["absent", "us_55"].outcome == "missing"


def test_who_declined_never_plays_that_workload(ranked, station, tmp_path):
    task, panel = ranked
    assert panels.PanelFile.model_validate_json((tmp_path / "panels/nvidia-h200.json").read_text()).panels
    everybody = ("library", "picky", "broken", "absent")
    first, second = (w for w in task.workloads if w.role.value == "bench")
    # The missing one may have been installed since: it comes last, being unknown.
    assert panels.contenders(task, first, panel, everybody) == ("library", "absent")
    assert sorted(panels.contenders(task, second, panel, everybody)[:2]) == ["library", "picky"]


def test_a_decline_is_no_failure_of_the_task(ranked):
    _, panel = ranked
    rows = {s.expert: _standing_row(s).outcome for s in panel.standings if s.workload == "us_55"}
    assert rows == {"library": "ok", "picky": "not_run", "broken": "failed", "absent": "not_run"}
