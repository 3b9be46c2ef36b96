"""Two candidates against each other on the pretend station: the same pairs, both sides checked."""

import pytest

from cudahercules.emulator.outcome import Fault
from cudahercules.judge import gpu_grading
from cudahercules.judge.evidence import Evidence
from cudahercules.judge.gpu import Rival, judge_on_gpu, memory_needed, rivals_memory
from cudahercules.replay.interface import ContestantFault
from cudahercules.task.model import WorkloadRole


class Theirs:
    """What the rival does; tests change its attributes."""

    microseconds = 200.0
    faults_at = None
    changed_inputs = ()

    def wrong(self, workload, taken):
        return False


@pytest.fixture
def theirs():
    return Theirs()


@pytest.fixture
def duel(case, artifact, task, station, theirs, monkeypatch):
    """Grade the candidate against a rival whose contestants behave as ``theirs`` says."""
    start = gpu_grading.start_replay

    def started(plan, built, task, workload, device, **options):
        contestant = start(plan, built, task, workload, device, **options)
        if built.key == "b" * 64:
            contestant.behaviour, contestant.microseconds = theirs, theirs.microseconds
            contestant.faults_at = theirs.faults_at if workload.role.value == "bench" else None
        return contestant

    monkeypatch.setattr(gpu_grading, "start_replay", started)

    def run():
        other = case.__class__(**{**case.__dict__, "candidate": "b.cu", "candidate_sha256": "1" * 64})
        rival = Rival(other, artifact.model_copy(update={"key": "b" * 64}), Evidence(task=task))
        verdict = judge_on_gpu(case, artifact, Evidence(task=task), at=station, rival=rival)
        return verdict, rival

    return run


def test_the_rival_stands_in_the_experts_place(duel, station, theirs):
    theirs.microseconds = 100.0
    verdict, rival = duel()
    assert verdict.kind == "correct" and verdict.timing.outcome == "slower"
    assert verdict.timing.low <= 0.5 <= verdict.timing.high
    assert {w.expert for w in verdict.timing.workloads} == {"b.cu"}
    assert verdict.timing.panel_missing == () and "another candidate" in verdict.timing.panel_note
    assert not station.opened  # no expert was asked for
    assert set(rival.evidence.plans) == {"us_55", "us_300"}


def test_equal_candidates_are_on_par_and_as_many_samples_of_both_are_checked(duel, station, monkeypatch):
    seen = []
    copy = station.answers.copy

    def counted(task, workload, contestant, sample):
        seen.append((workload.name, contestant.behaviour.__class__.__name__))
        return copy(task, workload, contestant, sample)

    monkeypatch.setattr(station.answers, "copy", counted)
    verdict, _ = duel()
    assert verdict.timing.outcome == "on_par"
    for workload in ("us_55", "us_300"):
        own, others = seen.count((workload, "Behaviour")), seen.count((workload, "Theirs"))
        assert own == others >= 8


def test_a_rival_that_is_wrong_while_timed_gets_the_verdict(duel, theirs):
    theirs.wrong = lambda workload, taken: workload == "us_55" and taken > 4
    verdict, _ = duel()
    assert (verdict.kind, verdict.candidate) == ("incorrect", "b.cu")


def test_a_candidate_that_is_wrong_while_timed_gets_its_own(duel, behaviour):
    behaviour.wrong = lambda workload, taken: workload == "us_55" and taken > 4
    verdict, _ = duel()
    assert (verdict.kind, verdict.candidate) == ("incorrect", "s.cu")


def test_a_rival_that_faults_is_blamed_itself(duel, theirs):
    theirs.faults_at = 3
    verdict, _ = duel()
    assert (verdict.kind, verdict.candidate, verdict.workload) == ("crash", "b.cu", "us_55")


def test_a_rival_that_cannot_start_is_blamed_itself(duel, monkeypatch):
    started = gpu_grading.start_replay

    def refuses(plan, built, *arguments, **options):
        if built.key == "b" * 64:
            raise ContestantFault(Fault(what="illegal_address", message="in prepare", kernel="p"))
        return started(plan, built, *arguments, **options)

    monkeypatch.setattr(gpu_grading, "start_replay", refuses)
    verdict, _ = duel()
    assert (verdict.kind, verdict.candidate, verdict.message) == ("crash", "b.cu", "in prepare")


def test_a_rival_needs_more_memory_than_an_expert(duel, task, station, make_plan):
    bench = task.workloads_of(WorkloadRole.BENCH)[-1]
    plan = make_plan(task, bench)
    extra = rivals_memory(task, bench, plan)
    assert extra > 0
    station.free = memory_needed(task, bench, plan, True, station.gpu.l2_bytes)  # enough for an expert
    verdict, _ = duel()
    assert verdict.kind == "infrastructure_error" and "GiB" in verdict.message
