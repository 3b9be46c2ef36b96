"""A whole grading by the GPU judge, with contestants that compute on the CPU."""

import pytest

from cudahercules.judge.evidence import Evidence
from cudahercules.judge.gpu import judge_on_gpu, memory_needed
from cudahercules.judge.verdict import VERDICT
from cudahercules.measure import panel as panels
from cudahercules.measure.panel import Standing, TaskPanel
from cudahercules.task.model import WorkloadRole


@pytest.fixture
def grade(case, artifact, task, station):
    def run(**options):
        evidence = Evidence(task=task)
        verdict = judge_on_gpu(case, artifact, evidence, at=station, **options)
        assert VERDICT.validate_json(verdict.model_dump_json()) == verdict
        return verdict

    return run


def test_an_equal_candidate_is_on_par(grade, station):
    verdict = grade()
    assert verdict.kind == "correct"
    assert verdict.timing.outcome == "on_par"
    assert [w.workload for w in verdict.timing.workloads] == ["us_55", "us_300"]
    assert {c.workload for c in verdict.checks} == {"smoke", "four", "us_55", "us_300"}
    row = verdict.timing.workloads[0]
    assert row.expert == "library" and row.method.startswith("events around one graph")
    assert row.checked_samples >= 8 and row.instances >= 2
    assert len(row.candidate_samples_us) == row.pairs == len(row.expert_samples_us)
    assert row.sm_clock_mhz and row.power_w and row.temperature_c
    assert set(row.outside_clock) == {"candidate", "expert"}
    assert next(c for c in verdict.checks if c.workload == "us_55").samples == row.checked_samples
    assert verdict.kernels[0].instruction_mix == {"global load": 1}
    assert verdict.fingerprint.device == "NVIDIA H200"
    assert verdict.timing.panel == ("library",)
    assert "never ranked" in verdict.timing.panel_note


@pytest.mark.parametrize("candidate_us, outcome", [(100.0, "faster"), (250.0, "slower"), (2000.0, "slower")])
def test_speed_is_called(grade, behaviour, candidate_us, outcome):
    behaviour.microseconds = candidate_us
    timing = grade().timing
    assert timing.outcome == outcome
    assert timing.low <= 200.0 / candidate_us <= timing.high


def test_a_sample_below_the_floor_is_flagged_and_no_more(grade, behaviour, task):
    behaviour.microseconds = 0.0001
    verdict = grade()
    assert verdict.kind == "correct"
    assert any("below the floor" in flag for flag in verdict.timing.workloads[1].flags)


def test_a_wrong_smoke_answer_ends_the_grading(grade, behaviour, station):
    behaviour.wrong = lambda workload, taken: workload == "smoke"
    verdict = grade()
    assert (verdict.kind, verdict.workload) == ("incorrect", "smoke")
    assert not station.opened


def test_wrong_only_at_the_timed_size(grade, behaviour):
    behaviour.wrong = lambda workload, taken: workload == "us_300"
    verdict = grade()
    assert (verdict.kind, verdict.workload) == ("incorrect", "us_300")
    assert "us_55" in {row.workload for row in verdict.passed}


def test_wrong_in_the_middle_of_timing_only(grade, behaviour):
    """Right at first, wrong once it believes itself unwatched: one of eight secret samples sees it."""
    behaviour.wrong = lambda workload, taken: workload == "us_55" and taken > 4
    assert grade().kind == "incorrect"


def test_changed_inputs_are_a_wrong_answer(grade, behaviour):
    behaviour.changed_inputs = ("x",)
    verdict = grade()
    assert (verdict.kind, verdict.wrong.reason) == ("incorrect", "input_changed")


def test_a_fault_while_timing_is_a_crash(grade, behaviour):
    behaviour.faults_at = 6
    verdict = grade()
    assert (verdict.kind, verdict.workload) == ("crash", "us_55")
    assert verdict.fault.message == "simulated fault"


def test_an_expert_that_faults_is_our_problem(grade, station, monkeypatch):
    opened = station.open_expert

    def faulty(*arguments):
        contestant = opened(*arguments)
        contestant.faults_at = 3
        return contestant

    monkeypatch.setattr(station, "open_expert", faulty)
    verdict = grade()
    assert verdict.kind == "infrastructure_error"
    assert "the expert library failed on us_55" in verdict.message


def test_too_little_memory_is_said_with_numbers(grade, station):
    station.free = 1 << 30
    verdict = grade()
    assert verdict.kind == "infrastructure_error"
    assert "us_55 needs" in verdict.message and "1.0 GiB are free" in verdict.message


def test_memory_needed_counts_everybody(task, make_plan):
    workload = next(w for w in task.workloads if w.name == "us_300")
    big = workload.model_copy(update={"dimensions": {"n": 1 << 28}})
    plan = make_plan(task, big)
    alone = memory_needed(task, big, plan, False, 60 << 20)
    both = memory_needed(task, big, plan, True, 60 << 20)
    operands = 2 * (4 << 28)
    assert both - alone >= 2 * operands
    assert alone >= 2 * operands + 8 * (4 << 28)  # two arenas and eight kept outputs


def test_other_answers_of_the_device_record_again(grade, behaviour):
    behaviour.device_answers_differ = 1
    assert grade().kind == "correct"


def test_answers_that_keep_differing_are_our_problem(grade, behaviour):
    behaviour.device_answers_differ = 2
    verdict = grade()
    assert verdict.kind == "infrastructure_error" and "attribute 16 is 132" in verdict.message


def test_a_machine_that_is_not_well_gives_invalid_measurement(grade, station):
    station.world.strangers = (4711,)
    verdict = grade()
    assert verdict.kind == "invalid_measurement" and "4711" in verdict.message


def test_without_an_opponent_bench_is_checked_and_not_timed(case, artifact, task, station):
    from cudahercules.task.model import Expert

    nobody = (Expert(name="library", title="a library", packages=("no-such-package",)),)
    case.task = task.model_copy(update={"experts": nobody})
    verdict = judge_on_gpu(case, artifact, Evidence(task=case.task), at=station)
    assert verdict.timing.kind == "not_timed" and "no expert of the panel" in verdict.timing.reason
    assert {c.workload for c in verdict.checks} >= {"us_55", "us_300"}


def test_roles_restrict_the_workloads(grade):
    verdict = grade(roles=(WorkloadRole.SMOKE,))
    assert [c.workload for c in verdict.checks] == ["smoke"]
    assert verdict.timing.kind == "not_timed"


def test_an_artifact_for_another_architecture_is_refused(case, artifact, task, station):
    verdict = judge_on_gpu(
        case, artifact.model_copy(update={"architecture": "100a"}), Evidence(task=task), at=station
    )
    assert verdict.kind == "infrastructure_error" and "sm_100a" in verdict.message


def test_the_opponent_is_the_panels_winner(case, artifact, task, station):
    from cudahercules.task.model import Expert

    second = Expert(name="faster_library", title="another", packages=("numpy",))
    case.task = task.model_copy(update={"experts": (*task.experts, second)})
    standings = tuple(
        Standing(expert=name, workload=w, outcome="ranked", microseconds=us)
        for w in ("us_55", "us_300")
        for name, us in (("library", 220.0), ("faster_library", 200.0))
    )
    ranked = TaskPanel(
        task=task.id, release=task.release, date="2026-12-01", driver="13.0", standings=standings
    )
    panels.save_panel(ranked, station.gpu.slug)
    verdict = judge_on_gpu(case, artifact, Evidence(task=case.task), at=station)
    assert {w.expert for w in verdict.timing.workloads} == {"faster_library"}
    assert verdict.timing.panel_date == "2026-12-01" and verdict.timing.panel_note == ""
