"""Batches: order, resume, damaged resume files, compilers beside the card."""

import os
import subprocess
import threading
from pathlib import Path

import pytest

from cudahercules.build.compile import BuildFailure
from cudahercules.errors import MachineError, UsageError
from cudahercules.judge import batch, gpu_grading
from cudahercules.judge.batch import append, finished, judge_many_on_gpu
from cudahercules.judge.verdict import NotTimed
from cudahercules.record.plan import LaunchPlan
from cudahercules.record.recorder import RecordFailure


@pytest.fixture
def sources(tmp_path):
    made = []
    for k in range(6):
        path = tmp_path / f"{k}.cu"
        path.write_text(f'#include "solve.h"\n// {k}\n')
        made.append(path)
    return made


@pytest.fixture
def card(monkeypatch, artifact):
    """Builds that succeed (or fail for sources that say so) and a card that calls all correct."""
    seen = {"built": [], "judged": [], "judging": threading.Lock()}

    def build(candidate, task, architecture):
        seen["built"].append(candidate.name)
        text = candidate.files[0].text
        if "broken" in text:
            return BuildFailure(kind="error", message="s.cu:1: error", diagnostics=(), seconds=0.1)
        if "no compiler" in text:
            raise MachineError("there is no compiler")
        return artifact

    def judge(case, artifact, evidence, *, at, recordings, limit_s):
        assert seen["judging"].acquire(blocking=False), "two candidates on the card at once"
        seen["judged"].append(case.candidate)
        seen["limit"] = limit_s
        seen["recorded"] = {name: future.result() for name, future in recordings.items()}
        seen["judging"].release()
        return case.correct((), (), NotTimed(reason="pretend"))

    monkeypatch.setattr(batch, "build", build)
    monkeypatch.setattr(batch, "judge_on_gpu", judge)
    return seen


def test_every_candidate_gets_its_verdict(task, sources, station, card):
    results = dict(judge_many_on_gpu(task, sources, station, compilers=3))
    assert sorted(results) == list(range(6))
    assert all(v.kind == "correct" and v.candidate == f"{k}.cu" for k, v in results.items())
    assert sorted(card["judged"]) == [f"{k}.cu" for k in range(6)]


def test_every_workload_was_recorded_beside_the_card(task, sources, station, card):
    list(judge_many_on_gpu(task, sources[:1], station))
    assert set(card["recorded"]) == {w.name for w in task.workloads}
    assert all(isinstance(plan, LaunchPlan) for plan in card["recorded"].values())


def test_host_code_that_fails_on_the_first_workload_is_recorded_once(
    task, sources, station, card, monkeypatch
):
    failure = RecordFailure(kind="timeout", message="the host code hangs", seconds=10.0)
    monkeypatch.setattr(gpu_grading, "record", lambda *_: failure)
    list(judge_many_on_gpu(task, sources[:1], station))
    assert card["recorded"] == {"smoke": failure}


def test_few_compilers_that_give_way(monkeypatch):
    counts = {1: 1, 2: 1, 8: 2, 16: 4, 128: 4}
    for processors, expected in counts.items():
        monkeypatch.setattr(batch.os, "cpu_count", lambda n=processors: n)
        assert batch.default_compilers() == expected
    seen = []
    thread = threading.Thread(
        target=lambda: (
            batch.give_way(),
            seen.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id())),
            seen.append(int(subprocess.run(["nice"], capture_output=True, check=True).stdout)),
        )
    )
    before = os.getpriority(os.PRIO_PROCESS, os.getpid())
    thread.start()
    thread.join()
    assert seen == [batch.NICENESS] * 2 and os.getpriority(os.PRIO_PROCESS, os.getpid()) == before


def test_a_broken_source_is_a_verdict_and_the_others_go_on(task, sources, station, card):
    sources[2].write_text("broken")
    results = dict(judge_many_on_gpu(task, sources, station))
    assert results[2].kind == "build_error"
    assert sum(v.kind == "correct" for v in results.values()) == 5


def test_a_resumed_batch_grades_only_what_is_missing(task, sources, station, card, tmp_path):
    resume = tmp_path / "verdicts.jsonl"
    first = judge_many_on_gpu(task, sources, station, resume=resume, compilers=1)
    for _ in range(2):
        next(first)
    first.close()  # as Ctrl-C does
    done = len(card["judged"])
    assert done == 2 == len(resume.read_text().splitlines())
    results = dict(judge_many_on_gpu(task, sources, station, resume=resume))
    assert sorted(results) == list(range(6))
    assert len(card["judged"]) == 6
    assert len(resume.read_text().splitlines()) == 6


def test_a_line_cut_off_by_a_kill_is_dropped(task, sources, station, card, tmp_path):
    resume = tmp_path / "verdicts.jsonl"
    list(judge_many_on_gpu(task, sources[:2], station, resume=resume))
    whole = resume.read_bytes()
    resume.write_bytes(whole[:-30])
    assert len(finished(resume, task)) == 1
    list(judge_many_on_gpu(task, sources[:2], station, resume=resume))
    assert len(finished(resume, task)) == 2


def test_machine_faults_are_graded_again(task, case, tmp_path):
    resume = tmp_path / "verdicts.jsonl"
    append(resume, case.invalid_measurement("hot"))
    append(resume, case.infrastructure_error("ours"))
    assert finished(resume, task) == {}
    append(resume, case.correct((), (), NotTimed(reason="pretend")))
    assert list(finished(resume, task)) == [case.candidate_sha256]


def test_what_another_device_said_is_graded_again(task, case, sources, station, card, tmp_path):
    """A verdict without a time, by the emulator, must not stand for the card's."""
    from cudahercules.build.candidate import load_candidate

    resume = tmp_path / "verdicts.jsonl"
    case.candidate_sha256 = load_candidate(sources[0]).sha256
    append(resume, case.correct((), (), NotTimed(reason="the emulator has no clock")))
    ((_, verdict),) = judge_many_on_gpu(task, sources[:1], station, resume=resume)
    assert card["judged"] == ["0.cu"] and verdict.fingerprint.device == station.gpu.name
    assert len(finished(resume, task)) == 1  # the later line counts
    assert list(judge_many_on_gpu(task, sources[:1], station, resume=resume)) == [(0, verdict)]
    assert card["judged"] == ["0.cu"]


def test_a_resume_file_of_something_else_is_refused(task, case, tmp_path):
    resume = tmp_path / "verdicts.jsonl"
    resume.write_text("{}\n")
    with pytest.raises(UsageError, match="line 1 is no verdict"):
        finished(resume, task)
    resume.unlink()
    append(resume, case.build_error("m", ()))
    with pytest.raises(UsageError, match="holds verdicts of"):
        finished(resume, task.model_copy(update={"id": "kernel/other/x@general"}))


def test_a_missing_source_is_said_before_anything_runs(task, sources, station, card, tmp_path):
    with pytest.raises(UsageError):
        list(judge_many_on_gpu(task, [*sources, tmp_path / "none.cu"], station))
    assert not card["built"]


def test_a_fault_of_ours_is_that_candidates_verdict_only(task, sources, station, card, monkeypatch):
    judge = batch.judge_on_gpu

    def fail(case, artifact, evidence, **options):
        if case.candidate == "1.cu":
            raise RuntimeError("CUDA out of memory")
        return judge(case, artifact, evidence, **options)

    monkeypatch.setattr(batch, "judge_on_gpu", fail)
    results = dict(judge_many_on_gpu(task, sources[:3], station))
    assert [results[k].kind for k in range(3)] == ["correct", "infrastructure_error", "correct"]
    assert "CUDA out of memory" in results[1].message


def test_a_fault_of_ours_in_compiling_does_not_stop_the_batch(task, sources, station, card, monkeypatch):
    build = batch.build

    def fail(candidate, task, architecture):
        if candidate.name == "1.cu":
            raise RuntimeError("a surprise")
        return build(candidate, task, architecture)

    monkeypatch.setattr(batch, "build", fail)
    results = dict(judge_many_on_gpu(task, sources[:3], station))
    assert [results[k].kind for k in range(3)] == ["correct", "infrastructure_error", "correct"]
    assert "a surprise" in results[1].message


@pytest.mark.parametrize("name, says", [(".", "this is no file"), ("none/v.jsonl", "No such file")])
def test_a_resume_file_that_cannot_be_is_said_before_anything_runs(
    task, sources, station, card, tmp_path, name, says
):
    with pytest.raises(UsageError, match=says):
        list(judge_many_on_gpu(task, sources, station, resume=tmp_path / name))
    assert not card["built"]


def test_a_disk_that_is_full_is_said_with_the_verdict(case):
    verdict = case.correct((), (), NotTimed(reason="pretend"))
    with pytest.raises(MachineError, match=r"No space left on device: the correct of .* is not in it"):
        append(Path("/dev/full"), verdict)


def machine_errors(monkeypatch, names):
    judge = batch.judge_on_gpu

    def fail(case, artifact, evidence, **options):
        if case.candidate in names:
            raise MachineError("no memory")
        return judge(case, artifact, evidence, **options)

    monkeypatch.setattr(batch, "judge_on_gpu", fail)


def test_one_machine_error_in_judging_is_that_candidates_verdict(task, sources, station, card, monkeypatch):
    machine_errors(monkeypatch, {"1.cu"})
    results = dict(judge_many_on_gpu(task, sources[:3], station, compilers=1))
    assert [results[k].kind for k in range(3)] == ["correct", "infrastructure_error", "correct"]


def test_two_in_a_row_are_the_machine(task, sources, station, card, monkeypatch):
    machine_errors(monkeypatch, {"1.cu", "2.cu"})
    seen = []
    with pytest.raises(MachineError, match="no memory"):
        for number, verdict in judge_many_on_gpu(task, sources[:4], station, compilers=1):
            seen.append((number, verdict.kind))
    assert seen == [(0, "correct"), (1, "infrastructure_error")]


def test_a_machine_error_ends_the_batch(task, sources, station, card):
    sources[0].write_text("no compiler")
    with pytest.raises(MachineError, match="no compiler"):
        list(judge_many_on_gpu(task, sources[:1], station))


def test_bundled_candidates_are_batches_by_task(task, sources, station, card, monkeypatch):
    """``demo`` and ``lint`` on a GPU: every case gets the verdict of its own file, with their time limit."""
    from cudahercules.judge import bundled, gpu

    started, compiled = [], []

    def compile_ahead(candidate, task, architecture):
        assert not card["judged"], "nothing is compiled ahead once something is timed"
        compiled.append(candidate.name)
        raise MachineError("there is no compiler")

    monkeypatch.setattr(bundled, "build", compile_ahead)
    monkeypatch.setattr(gpu, "station", lambda: station)
    monkeypatch.setattr(station, "start_experts", lambda t: started.append(t.id), raising=False)
    sources[1].write_text("broken")
    moved = task.model_copy(update={"directory": sources[0].parent})
    other = moved.model_copy(update={"member": "other"})
    cases = [
        bundled.Bundled(moved, "0.cu", "honest", "correct", "an honest one"),
        bundled.Bundled(other, "2.cu", "honest", "correct", "of another task"),
        bundled.Bundled(moved, "1.cu", "mutant", "incorrect", "does not build, in fact"),
    ]
    told = []
    graded = {g.bundled.file: g for g in bundled.grade_bundled(cases, "gpu", notify=told.append)}
    assert {name: g.verdict.candidate for name, g in graded.items()} == {
        n: n for n in ("0.cu", "1.cu", "2.cu")
    }
    assert [graded[f"{k}.cu"].as_expected for k in range(3)] == [True, False, True]
    assert graded["2.cu"].verdict.task == other.id
    assert started[:2] == [moved.id, other.id] and card["limit"] == bundled.LIMIT_S
    assert told[-1] == "3 of 3 candidates graded" and sorted(compiled) == ["0.cu", "1.cu", "2.cu"]
