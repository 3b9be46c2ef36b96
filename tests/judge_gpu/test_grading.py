"""A whole grading by the GPU judge, with contestants that compute on the CPU."""

import time

import pytest

from cudahercules.judge import gpu_grading
from cudahercules.judge.evidence import Evidence
from cudahercules.judge.gpu import judge_on_gpu, memory_needed
from cudahercules.judge.lanes import Lane, Lanes
from cudahercules.judge.simulated import Simulated
from cudahercules.judge.verdict import VERDICT
from cudahercules.measure import panel as panels
from cudahercules.measure.counters import Reading
from cudahercules.measure.panel import Standing, TaskPanel
from cudahercules.record.plan import ARENA_BASE, Buffer, DeviceAnswer
from cudahercules.replay.interface import AnswersDiffer, ContestantLost, ExpertDeclined, OutOfMemory
from cudahercules.task.model import Expert, WorkloadRole


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


@pytest.mark.parametrize("stand", [False, True])
def test_small_answers_are_checked_on_the_card_where_pytorch_stands(grade, behaviour, station, stand):
    seen, check = [], station.answers.check
    station.answers.check = lambda task, w, answer: seen.append(w.name) or check(task, w, answer)
    station.stand = stand
    assert grade().kind == "correct"
    assert seen[:2] == (["smoke", "four"] if stand else ["us_55", "us_55"])
    behaviour.wrong = lambda workload, taken: workload == "four"
    verdict = grade()
    assert (verdict.kind, verdict.workload) == ("incorrect", "four")


def test_an_opponent_gives_its_memory_back_after_the_last_workload(grade, station):
    grade()
    assert station.rested == ["library"] and station.opened[-1] == ("library", "us_300")


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


@pytest.fixture
def faulty(station, monkeypatch):
    """Makes the named expert fault at its sample number 3 on the named workloads."""
    opened = station.open_expert

    def make(name, *workloads):
        def open_it(task, expert, workload):
            contestant = opened(task, expert, workload)
            if expert == name and workload.name in workloads:
                contestant.faults_at = 3
            return contestant

        monkeypatch.setattr(station, "open_expert", open_it)

    return make


@pytest.fixture
def two_experts(case):
    """The task with a second expert, who comes after ``library``."""
    second = Expert(name="second", title="another", packages=("numpy",))
    case.task = case.task.model_copy(update={"experts": (*case.task.experts, second)})
    return case.task


def test_an_only_expert_that_faults_leaves_a_right_candidate_without_speed(grade, faulty):
    faulty("library", "us_55", "us_300")
    verdict = grade()
    assert verdict.kind == "correct" and verdict.timing.kind == "not_timed"
    assert "us_55: library failed (simulated fault)" in verdict.timing.reason
    assert {c.workload for c in verdict.checks} == {"smoke", "four", "us_55", "us_300"}


def test_an_expert_that_faults_on_one_workload_leaves_the_others_timed(grade, faulty):
    faulty("library", "us_55")
    verdict = grade()
    assert (verdict.kind, verdict.timing.outcome) == ("correct", "unresolved")
    assert [(w.workload, w.outcome) for w in verdict.timing.workloads] == [("us_300", "on_par")]
    assert verdict.timing.untimed == {"us_55": "library failed (simulated fault)"}
    assert "us_55 was not timed" in verdict.timing.panel_note
    assert {c.workload for c in verdict.checks} == {"smoke", "four", "us_55", "us_300"}


def test_the_next_of_the_panel_plays_where_the_first_faults(grade, faulty, two_experts):
    faulty("library", "us_55")
    timing = grade().timing
    assert [(w.workload, w.expert) for w in timing.workloads] == [("us_55", "second"), ("us_300", "library")]
    assert timing.workloads[0].flags[0] == "library failed (simulated fault): the next of the panel plays"
    assert timing.outcome == "on_par" and timing.untimed == {}


def test_an_expert_that_fails_once_plays_again(grade, station, two_experts, monkeypatch):
    opened, faults = station.open_expert, [3]

    def open_it(task, expert, workload):
        contestant = opened(task, expert, workload)
        contestant.faults_at = faults.pop() if faults else None
        return contestant

    monkeypatch.setattr(station, "open_expert", open_it)
    timing = grade().timing
    assert [(w.workload, w.expert) for w in timing.workloads] == [("us_55", "library"), ("us_300", "library")]
    assert timing.workloads[0].flags[0] == "library failed once (simulated fault) and played again"
    assert timing.outcome == "on_par" and not any("played again" in f for f in timing.workloads[1].flags)


def test_the_next_of_the_panel_plays_where_the_first_declines(grade, station, two_experts):
    station.declines["library"] = ExpertDeclined("no such mask")
    timing = grade().timing
    assert {w.expert for w in timing.workloads} == {"second"} and ("library", "us_55") not in station.opened
    assert all("library declined (no such mask)" in w.flags[0] for w in timing.workloads)


def test_all_decline(grade, station, two_experts):
    station.declines.update(library=ExpertDeclined("no such mask"), second=ContestantLost("no memory"))
    verdict = grade()
    assert verdict.kind == "correct" and not station.opened
    assert "library declined (no such mask); second failed (no memory)" in verdict.timing.reason


def test_no_inputs_come_twice_when_another_opponent_plays(grade, faulty, two_experts, monkeypatch):
    seen = []
    batch = Simulated.batch

    def counted(self, requests):
        seen.extend((self.side, id(self), r.seed) for r in requests)
        return batch(self, requests)

    monkeypatch.setattr(Simulated, "batch", counted)
    faulty("library", "us_55", "us_300")
    grade()
    seeds = [seed for side, _, seed in seen if side == "candidate"]
    assert len(seeds) == len(set(seeds)) > 100


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize("differ_at", [None, 2])
def test_no_process_is_given_work_while_it_is_busy(grade, station, monkeypatch, lanes, differ_at):
    """The next workload opens ahead in the other process, also when it has to be recorded again."""
    monkeypatch.setattr(station, "candidate_lanes", lambda: Lanes([Lane(None) for _ in range(lanes)]))
    start, batch = gpu_grading.start_replay, Simulated.batch
    busy, opened, clashes = set(), [], []

    def started(plan, artifact, task, workload, device, *, process, sample_s):
        opened.append(workload.name)
        if process is not None and id(process) in busy:
            clashes.append(workload.name)
        if len(opened) == differ_at:
            raise AnswersDiffer((DeviceAnswer(question="attribute 16", answer="132"),))
        return start(plan, artifact, task, workload, device, process=process, sample_s=sample_s)

    def sampled(self, requests):
        busy.add(id(self))
        time.sleep(0.005)
        try:
            return batch(self, requests)
        finally:
            busy.discard(id(self))

    monkeypatch.setattr(gpu_grading, "start_replay", started)
    monkeypatch.setattr(Simulated, "batch", sampled)
    verdict = grade(roles=(WorkloadRole.SMOKE, WorkloadRole.CHECK))
    assert verdict.kind == "correct" and not clashes
    assert opened == (["smoke", "four"] if differ_at is None else ["smoke", "four", "four"])


def test_where_the_seconds_went_is_said(grade, station, case):
    verdict = grade()
    stages = verdict.seconds.stages
    assert {"record", "correctness", "experts", "settling", "open", "samples", "reference"} <= set(stages)
    assert 0 < verdict.seconds.gpu_held <= case.watch.timeline.now
    document = case.watch.timeline.document()
    assert any(s["stage"] == "record us_55" and s["beside"] for s in document["spans"])
    own = sum(s["ended"] - s["began"] for s in document["spans"] if not s["beside"] and not s["inside"])
    assert own == pytest.approx(sum(document["seconds"].values()), abs=0.01)
    assert station.settled == 1


def test_a_wrong_answer_says_how_long_the_gpu_was_held(grade, behaviour):
    behaviour.wrong = lambda workload, taken: workload == "smoke"
    assert grade().seconds.gpu_held > 0


def test_too_little_memory_is_said_with_numbers(grade, station):
    station.free = 1 << 30
    verdict = grade()
    assert verdict.kind == "infrastructure_error"
    assert "us_55 needs" in verdict.message and "1.0 GiB are free" in verdict.message


@pytest.mark.parametrize("workload", ["smoke", "four", "us_300"])
def test_scratch_that_no_card_can_hold_twice_is_the_candidates_doing(grade, make_plan, monkeypatch, workload):
    def hoards(artifact, task, asked, profile):
        plan = make_plan(task, asked)
        size = (36 << 30) if asked.name == workload else 4096
        scratch = Buffer(name="scratch 0", kind="scratch", address=ARENA_BASE + (1 << 40), size=size)
        return plan.model_copy(update={"buffers": (*plan.buffers, scratch)})

    monkeypatch.setattr(gpu_grading, "record", hoards)
    verdict = grade()
    assert (verdict.kind, verdict.workload) == ("contract_error", workload)
    assert "36.0 GiB of scratch memory" in verdict.message and "35.0 GiB are allowed" in verdict.message


def test_stacks_that_no_card_can_hold_twice_are_the_candidates_doing(grade, make_plan, monkeypatch):
    def deep(artifact, task, asked, profile):
        return make_plan(task, asked).model_copy(update={"stack_limit": 511 << 10})

    monkeypatch.setattr(gpu_grading, "record", deep)
    verdict = grade()
    assert verdict.kind == "contract_error"
    assert "131.7 GiB of local memory (stacks)" in verdict.message  # 132 multiprocessors of 2048 threads


def test_memory_needed_counts_everybody(task, make_plan):
    workload = next(w for w in task.workloads if w.name == "us_300")
    big = workload.model_copy(update={"dimensions": {"n": 1 << 28}})
    plan = make_plan(task, big)
    alone = memory_needed(task, big, plan, False, 60 << 20)
    both = memory_needed(task, big, plan, True, 60 << 20)
    operands = 2 * (4 << 28)
    assert both - alone >= 2 * operands
    assert alone >= 2 * operands + 16 * (4 << 28)  # two arenas and the kept outputs of the longest look


def test_other_answers_of_the_device_record_again(grade, behaviour):
    behaviour.device_answers_differ = 1
    assert grade().kind == "correct"


def test_answers_that_keep_differing_are_our_problem(grade, behaviour):
    behaviour.device_answers_differ = 4
    verdict = grade()
    assert verdict.kind == "infrastructure_error" and "attribute 16 is 132" in verdict.message


def test_questions_that_differ_each_time_are_the_candidates_doing(grade, behaviour):
    behaviour.device_answers_differ, behaviour.question = 4, "occupancy twice 256 0 0"
    verdict = grade()
    assert verdict.kind == "contract_error"
    assert "something else each of 4 times (occupancy twice 256 0 0 is 132)" in verdict.message


def test_what_the_device_answered_is_told_to_the_next_recording(grade, behaviour, monkeypatch):
    told, record = [], gpu_grading.record

    def listening(artifact, task, workload, profile):
        told.append(profile.told)
        return record(artifact, task, workload, profile)

    monkeypatch.setattr(gpu_grading, "record", listening)
    behaviour.device_answers_differ, behaviour.question = 1, "occupancy twice 256 0 0"
    assert grade().kind == "correct"
    assert {"occupancy twice 256 0 0": "132"} in told


def test_a_machine_that_is_not_well_gives_invalid_measurement(grade, station):
    station.world.strangers = (4711,)
    verdict = grade()
    assert verdict.kind == "invalid_measurement" and "4711" in verdict.message


def test_without_an_opponent_bench_is_checked_and_not_timed(case, artifact, task, station):
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


def test_memory_that_an_expert_lacks_brings_no_weaker_opponent(grade, station, two_experts):
    station.declines["library"] = OutOfMemory("the expert's process could not get ready: 2 GiB")
    verdict = grade()
    assert verdict.kind == "infrastructure_error"
    assert "too little free memory for the expert library beside the candidate" in verdict.message


def test_memory_that_an_expert_lacks_in_the_middle_brings_no_weaker_opponent(
    grade, station, two_experts, monkeypatch
):
    def full(task, expert, workload):
        raise OutOfMemory("the expert's process could not get ready: 2 GiB")

    monkeypatch.setattr(station, "open_expert", full)
    verdict = grade()
    assert verdict.kind == "infrastructure_error" and "the expert library" in verdict.message


@pytest.mark.parametrize("xid, kind", [(79, "infrastructure_error"), (31, "crash")])
def test_a_gpu_that_fails_is_not_the_candidates_crash(grade, station, behaviour, monkeypatch, xid, kind):
    behaviour.faults_at = 0
    monkeypatch.setattr(gpu_grading, "locate_fault", lambda *_: None)
    monkeypatch.setattr(type(station.world), "read", lambda self: Reading(xids=(xid,)))
    verdict = grade()
    assert verdict.kind == kind, verdict
    assert (f"Xid {xid}" in verdict.message) == (kind == "infrastructure_error")


def test_an_expert_that_the_hardware_ended_brings_no_weaker_opponent(
    grade, station, faulty, two_experts, monkeypatch
):
    faulty("library", "us_55")
    monkeypatch.setattr(type(station.world), "read", lambda self: Reading(xids=(94,)))
    verdict = grade()
    assert verdict.kind == "infrastructure_error" and "Xid 94" in verdict.message
