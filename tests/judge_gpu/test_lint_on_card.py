"""``lint`` of many tasks on a GPU: waves, what experts do that fail or hang, and what targets share. The
whole is rehearsed in tests/replay/test_suite_on_pretend_card.py."""

import threading
import time
from concurrent.futures import Future

import pytest

from cudahercules.judge import lint_gpu
from cudahercules.judge.ranking import CONTENDER, INSTANCES, rank_panel
from cudahercules.judge.station import Room
from cudahercules.measure.panel import Standing, TaskPanel
from cudahercules.replay.interface import ContestantHang, ExpertDeclined, OutOfMemory
from cudahercules.task.model import Expert, Target


def panel_of(task, *rows):
    return TaskPanel(task=task.id, release=task.release, date="", driver="", standings=rows)


def test_who_is_far_behind_runs_once_and_the_fastest_run_on_fresh_memory_again(task, station, tmp_path):
    speeds = {"first": 100.0, "close": 100.0 * CONTENDER - 5, "far": 300.0}
    experts = tuple(Expert(name=n, title=n, packages=("numpy",)) for n in speeds)
    whole = task.model_copy(update={"experts": experts})
    opened = station.open_expert

    def open_it(task, expert, workload):
        made = opened(task, expert, workload)
        made.microseconds = speeds[expert]
        return made

    station.open_expert = open_it
    panel = rank_panel(whole, station, directory=tmp_path)
    counts = [e for e, w in station.opened if w == "us_55"]
    assert sorted(counts) == sorted(["first", "close"] * INSTANCES + ["far"])
    assert [s.outcome for s in panel.standings] == ["ranked"] * 6
    assert all(s.seconds > 0 and s.largest_error is not None for s in panel.standings)
    assert len(station.rested) == len(station.opened)  # others need the memory


def test_an_expert_that_hangs_is_not_waited_for_again(task, station, tmp_path):
    def hang(task, expert, workload):
        station.opened.append((expert, workload.name))
        raise ContestantHang("did not get ready within 60 s", 60)

    station.open_expert = hang
    panel = rank_panel(task, station, directory=tmp_path)
    assert station.opened == [("library", "us_55")]
    found = {s.workload: s for s in panel.standings}
    assert found["us_55"].outcome == found["us_300"].outcome == "failed"
    assert "not tried" in found["us_300"].why and "60 s" in found["us_300"].why


def test_a_reference_that_fails_costs_no_more_than_its_rows(task, station, tmp_path):
    def broken(task, workload, seed):
        raise RuntimeError("no such function in torch")

    station.answers.reference = broken
    (first, _) = rank_panel(task, station, directory=tmp_path).standings
    assert first.outcome == "failed" and first.why == "not checked: no such function in torch"


def test_what_is_known_is_taken_as_it_is(task, station, tmp_path):
    row = Standing(expert="library", workload="us_55", outcome="failed", why="not up after 60 s")
    panel = rank_panel(task, station, known={("library", "us_55"): row}, directory=tmp_path)
    assert row in panel.standings and ("library", "us_55") not in station.opened
    assert ("library", "us_300") in station.opened


# --- waves ------------------------------------------------------------------------------------------


def many(task, families, members=1):
    return [
        task.model_copy(
            update={
                "id": f"kernel/{f}/m{m}@general",
                "family": f"kernel/{f}",
                "member": f"m{m}",
                "directory": task.directory.parent / f"{f}",
            }
        )
        for f in range(families)
        for m in range(members)
    ]


def test_waves_keep_the_order_and_their_sizes(task, station):
    tasks = many(task, families=30, members=2)
    groups = lint_gpu.waves(tasks, station)
    assert [t for group in groups for t in group] == tasks
    assert len(groups[0]) <= lint_gpu.FIRST_WAVE_TASKS
    for group in groups:
        assert len(group) <= lint_gpu.WAVE_TASKS
        assert len({t.family for t in group}) <= lint_gpu.WAVE_PROCESSES
    assert lint_gpu.waves([], station) == []


def test_compiling_experts_begin_ahead_but_not_in_a_family_that_is_in_use(task, station, monkeypatch):
    compiling = Expert(name="library", title="", packages=("triton",))
    tasks = [t.model_copy(update={"experts": (compiling,)}) for t in many(task, families=2, members=2)]
    monkeypatch.setattr(station, "usable_experts", lambda task: ("library",))
    begun = []
    station.bring_up = lambda task, expert, workload: begun.append((task.id, workload.name))
    lint_gpu._compile_ahead([tasks[:1], tasks[1:]], station)
    assert {name for name, _ in begun} == {tasks[0].id, tasks[2].id, tasks[3].id}


def test_targets_of_a_member_share_what_experts_said(task):
    row = Standing(expert="library", workload="us_55", outcome="ranked", microseconds=50.0)
    gone = Standing(expert="other", workload="us_55", outcome="missing")
    done = {(task.family, task.member): (task, panel_of(task, row, gone))}
    twin = task.model_copy(update={"target": Target.HOPPER, "id": task.id.replace("general", "hopper")})
    assert lint_gpu._twins(twin, done) == {("library", "us_55"): row}
    assert lint_gpu._twins(twin.model_copy(update={"workloads": task.workloads[1:]}), done) == {}
    assert lint_gpu._twins(twin.model_copy(update={"member": "fp16"}), done) == {}


def finished(error=None):
    future = Future()
    future.set_exception(error) if error is not None else future.set_result(None)
    return future


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (None, None),
        (ExpertDeclined("no such size"), None),  # it says so again when it is ranked
        (OutOfMemory("beside the others"), None),  # alone it may fit
        (RuntimeError("the expert failed: no kernel\nmore"), "the expert failed: no kernel"),
        ("late", "not up after"),
    ],
)
def test_what_a_wave_knows_before_it_ranks(task, station, monkeypatch, error, why):
    monkeypatch.setattr(lint_gpu, "UP_S", 0.2)
    futures = {"us_55": Future() if error == "late" else finished(error), "us_300": finished()}
    dismissed = []
    station.bring_up = lambda task, expert, workload: futures[workload.name]
    station.dismiss = lambda family, expert: dismissed.append((family, expert))
    station.torch = type("Torch", (), {"ready": True})
    wave = lint_gpu._Wave([task], [], station, None, float("inf"))
    known = wave.bring_up().get(task.id, {})
    assert wave.grade() == {task.id: []}  # nothing to wait for
    assert dismissed == ([(task.family, "library")] if error == "late" else [])
    if why is None:
        assert known == {}
    else:
        row = known["library", "us_55"]
        assert row.outcome == "failed" and row.why.startswith(why)


def test_room_on_the_card_is_shared():
    room, order = Room(10), []

    def job(name, size, seconds):
        with room.of(size):
            order.append(name)
            time.sleep(seconds)
            order.append(f"{name} ends")

    first = threading.Thread(target=job, args=("first", 8, 0.2))
    first.start()
    time.sleep(0.05)
    small = threading.Thread(target=job, args=("small", 2, 0.0))
    huge = threading.Thread(target=job, args=("huge", 1000, 0.0))
    for thread in (small, huge):
        thread.start()
    for thread in (first, small, huge):
        thread.join(5)
    assert order == ["first", "small", "small ends", "first ends", "huge", "huge ends"]
