"""A station's processes: who is brought up when, what is waited for, and how all of it ends."""

import threading
import time
from typing import ClassVar

import pytest

from cudahercules.judge import station as station_module
from cudahercules.judge.device import Gpu
from cudahercules.judge.lanes import LANES, Lane, Lanes, await_ends, end
from cudahercules.judge.station import SPARES, Station
from cudahercules.measure import panel as panels
from cudahercules.replay.interface import AnswersDiffer, ContestantLost, ExpertDeclined

GPU = Gpu(0, "NVIDIA H200", "90a", (9, 0), "13.0", 140 << 30, 60 << 20)


class Process:
    """What a station does with a GPU process."""

    made: ClassVar[list] = []

    def __init__(self, side, device, begin=True):
        self.side, self.begun, self.alive = side, begin, False
        self.ending, self.dead, self.slow_end = False, False, 0.0
        self.made.append(self)

    def begin(self):
        self.begun = True

    def await_alive(self, deadline):
        self.begin()
        self.alive = True

    def signal_end(self):
        self.ending = True

    def kill(self):
        time.sleep(self.slow_end)
        self.dead = True


class NoTorch:
    """Instead of importing PyTorch."""

    def __init__(self, device):
        pass


class Opened:
    """A contestant in a process."""

    class ready:
        device_bytes = 1000

    def __init__(self, process):
        self.process = process

    def forget(self):
        pass

    def rest(self):
        return self.process


@pytest.fixture
def at(monkeypatch, tmp_path):
    monkeypatch.setenv("HERCULES_CACHE", str(tmp_path))
    monkeypatch.setattr(panels, "SHIPPED", tmp_path / "none")
    monkeypatch.setattr(Process, "made", [])
    monkeypatch.setattr(station_module, "warm_process", Process)
    monkeypatch.setattr(station_module, "Torch", NoTorch)
    with Station(GPU) as made:
        made._answers = Answers()
        yield made


class Answers:
    warmed = 0

    def warm_up(self, task):
        self.warmed += 1


def bench(task):
    return [w for w in task.workloads if w.role.value == "bench"]


@pytest.fixture
def opening(at, monkeypatch):
    """Replaces the start of experts; ``opening.answer(expert, workload)`` may raise or wait."""

    class Opening:
        def __init__(self):
            self.seen = []

        def answer(self, expert, workload):
            pass

    made = Opening()

    def start(task, expert, workload, device, *, process, start_s, sample_s):
        made.seen.append((expert, workload.name, threading.current_thread().name))
        made.answer(expert, workload.name)
        return Opened(process.process if isinstance(process, Opened) else process or Process("expert", 0))

    monkeypatch.setattr(station_module, "start_expert", start)
    return made


def test_a_single_grading_starts_no_more_than_it_needs(at):
    at.candidate_lanes()
    assert len(Process.made) == LANES and all(p.begun for p in Process.made)


def test_where_candidates_follow_each_other_the_next_ones_contexts_come_up_and_others_import(at):
    at.ahead = True
    at.candidate_lanes()
    assert [p.begun for p in Process.made] == [True] * 2 * LANES + [False] * (SPARES - LANES)
    second = at.candidate_lanes()
    assert [lane.process for lane in second.lanes] == Process.made[LANES : 2 * LANES]
    assert sum(not p.begun for p in Process.made) == SPARES - LANES
    at.settle()
    assert [p.alive for p in Process.made if p.begun and p not in [x.process for x in second.lanes]] == [
        False,  # the first candidate's: its grading waits for them itself
        False,
        True,
        True,
    ]


def test_a_second_candidate_of_its_own_grading_finds_the_next_one_prepared(at):
    at.candidate_lanes()
    at.candidate_lanes()
    assert len(Process.made) == 2 * LANES + SPARES


def test_opponents_are_opened_once_on_every_workload_and_kept(at, task, opening, monkeypatch):
    monkeypatch.setattr(Station, "usable_experts", lambda self, task: ("library",))
    at.start_experts(task)
    at.settle()
    names = [w.name for w in bench(task)]
    assert [(e, w) for e, w, _ in opening.seen] == [("library", n) for n in names]
    assert {thread for *_, thread in opening.seen} == {"bring up library"}
    at.start_experts(task)
    for workload in bench(task):
        at.await_expert(task, "library", workload)
    assert len(opening.seen) == len(names) and at.answers.warmed == 1
    assert at.held_by(task, "library") == 0, "an opponent that is up must leave room for others to come up"
    at.open_expert(task, "library", bench(task)[0])
    assert at.held_by(task, "library") == 1000 and at.held_by(task, "another") == 0
    at.rest(task, "library")
    assert at.held_by(task, "library") == 0


def test_a_contestant_that_dies_when_it_is_to_rest_is_replaced(at, task, opening, monkeypatch):
    at.open_expert(task, "library", bench(task)[0])

    def die(self):
        raise ContestantLost("the process ended")

    monkeypatch.setattr(Opened, "rest", die)
    at.rest(task, "library")
    made = len(Process.made)
    at.open_expert(task, "library", bench(task)[0])
    assert opening.seen[-1][:2] == ("library", bench(task)[0].name) and len(Process.made) == made + 1


def test_settling_waits_for_what_still_comes_up(at, task, opening):
    go = threading.Event()
    opening.answer = lambda expert, workload: go.wait(10)
    coming = at.bring_up(task, "library", bench(task)[0])
    threading.Timer(0.1, go.set).start()
    assert not coming.done()
    at.settle()
    assert coming.done()


def test_a_decline_is_remembered_and_its_process_lives(at, task, opening):
    def declines(expert, workload):
        raise ExpertDeclined("no such mask")

    opening.answer = declines
    for _ in range(2):
        with pytest.raises(ExpertDeclined, match="no such mask"):
            at.await_expert(task, "library", bench(task)[0])
    assert len(opening.seen) == 1
    assert at.expert_lanes(task, "library").lanes[0].process is not None


def test_a_failure_is_tried_again_for_the_next_candidate(at, task, opening):
    def fails(expert, workload):
        raise ContestantLost("killed from outside")

    opening.answer = fails
    with pytest.raises(ContestantLost):
        at.await_expert(task, "library", bench(task)[0])
    assert at.expert_lanes(task, "library").lanes[0].process is None
    opening.answer = lambda expert, workload: None
    at.await_expert(task, "library", bench(task)[0])
    assert len(opening.seen) == 2


def test_one_expert_that_fails_does_not_hold_up_another(at, task, opening):
    def answer(expert, workload):
        if expert == "bad":
            raise ContestantLost("broken")

    opening.answer = answer
    bad, good = (at.bring_up(task, name, bench(task)[0]) for name in ("bad", "good"))
    at.settle()
    assert isinstance(bad.exception(), ContestantLost) and good.exception() is None


def test_processes_end_at_the_same_time():
    processes = [Process("candidate", 0) for _ in range(3)]
    seen = []
    for p in processes:
        p.kill = lambda p=p: seen.append(sum(q.ending for q in processes))
    end([*processes, None])
    assert seen == [3, 3, 3]


def test_processes_end_beside_what_comes_next():
    lanes = Lanes([Lane(Process("candidate", 0)) for _ in range(2)])
    processes = [lane.process for lane in lanes.lanes]
    for p in processes:
        p.slow_end = 0.2
    start = time.monotonic()
    lanes.close(waiting=False)
    assert time.monotonic() - start < 0.1 and all(p.ending for p in processes)
    await_ends()
    assert all(p.dead for p in processes) and all(lane.process is None for lane in lanes.lanes)


def test_a_process_that_died_while_it_was_started_is_forgotten():
    lane = Lane(Process("candidate", 0))
    kept = lane.process

    def differ(process):
        raise AnswersDiffer(())

    def lost(process):
        raise ContestantLost("gone")

    with pytest.raises(AnswersDiffer):
        lane.open(differ)
    assert lane.process is kept
    with pytest.raises(ContestantLost):
        lane.open(lost)
    assert lane.process is None


def test_a_contestant_that_died_in_use_is_followed_by_a_fresh_process():
    died = Opened(Process("expert", 0))
    died.process.kill()
    for given in (died, died.process):
        lane = Lane(given)
        assert lane.open(lambda process: process) is None  # what start_expert starts anew


def test_closing_ends_everything_also_what_is_still_coming_up(at, task, opening):
    go = threading.Event()
    opening.answer = lambda expert, workload: go.wait(10)
    first, second = (at.bring_up(task, "library", w) for w in bench(task))
    while not opening.seen:
        time.sleep(0.001)
    at.close()
    assert all(p.dead for p in Process.made)
    assert second.cancelled() and not first.cancelled()
    go.set()
