"""From asynchronous code to the judge: repetition of what is our fault, lanes, and cancellation."""

from __future__ import annotations

import threading
import time

import pytest

pytest.importorskip("anyio")

import anyio
from made_verdicts import SOFTMAX, case, timed, wrong

from cudahercules.build.artifact import BuildFailure
from cudahercules.errors import MachineError
from cudahercules.evaluate import judging
from cudahercules.evaluate.judging import ATTEMPTS, NotJudged, in_thread, judge, write_candidate
from cudahercules.evaluate.remembered import remembering

FILES = {"solution.cu": "int x;"}


def run(function, *arguments, **options):
    async def main():
        return await function(*arguments, **options)

    return anyio.run(main)


@pytest.fixture
def grades(monkeypatch):
    """What ``grade`` does next: returns verdicts, raises exceptions."""
    seen = []

    def install(*answers):
        coming = iter(answers)

        def grade(task, path, device, *, seed, limit_s):
            seen.append((path.read_text(), device, seed))
            answer = next(coming)
            if isinstance(answer, Exception):
                raise answer
            return answer

        monkeypatch.setattr(judging, "grade", grade)
        return seen

    return install


def test_what_is_our_fault_is_tried_again(grades):
    right = timed({"bert_attention": 1.0})
    seen = grades(case().infrastructure_error("fire"), MachineError("no compiler"), right)
    assert run(judge, SOFTMAX, FILES, "cpu", seed="s") == right
    assert seen == [("int x;", "cpu", "s")] * 3


@pytest.mark.parametrize("trouble", [case().invalid_measurement("too hot"), MachineError("too hot")])
def test_after_some_attempts_an_answer_is_not_judged_rather_than_wrong(grades, trouble):
    seen = grades(*[trouble] * ATTEMPTS)
    with pytest.raises(NotJudged, match="too hot"):
        run(judge, SOFTMAX, FILES, "cpu")
    assert len(seen) == ATTEMPTS


def test_a_wrong_answer_is_judged_once(grades):
    seen = grades(wrong())
    assert run(judge, SOFTMAX, FILES, "cpu").kind == "incorrect" and len(seen) == 1


def test_guidance_is_given_once_also_after_a_restart_and_final_verdicts_never(grades, tmp_path):
    first, second = timed({"bert_attention": 0.5}), timed({"bert_attention": 0.6})
    seen = grades(first, second, wrong(), wrong())
    with remembering(tmp_path):
        assert run(judge, SOFTMAX, FILES, "cpu", seed="g") == first
        assert run(judge, SOFTMAX, FILES, "cpu", seed="g") == first
    with (tmp_path / "guidance.jsonl").open("ab") as file:
        file.write(b"cut off")
    with remembering(tmp_path):
        assert run(judge, SOFTMAX, FILES, "cpu", seed="g") == first
        assert run(judge, SOFTMAX, {"solution.cu": "int y;"}, "cpu", seed="g") == second
        assert run(judge, SOFTMAX, {"solution.cu": "int y;"}, "cpu", seed="g") == second
        assert run(judge, SOFTMAX, FILES, "cpu") == run(judge, SOFTMAX, FILES, "cpu")  # both are graded
    assert len(seen) == 4


def test_what_does_not_compile_never_reaches_the_gpus_queue(grades, monkeypatch):
    seen = grades()
    monkeypatch.setattr(judging, "architecture_of", lambda *_: "80")
    monkeypatch.setattr(judging, "_gpu", lambda: type("Gpu", (), {"name": "NVIDIA H200"}))
    failure = BuildFailure(kind="error", message="solution.cu:1: no", diagnostics=(), seconds=0.1)
    monkeypatch.setattr(judging, "build", lambda *_: failure)
    verdict = run(judge, SOFTMAX, FILES, "gpu")
    assert verdict.kind == "build_error" and verdict.fingerprint.device == "NVIDIA H200" and seen == []


def test_one_at_a_time_on_the_gpu_while_others_compile(monkeypatch):
    building, grading, threads = [0, 0], [0, 0], set()
    lock = threading.Lock()

    def busy(counts):
        with lock:
            counts[0] += 1
            counts[1] = max(counts)
        time.sleep(0.05)
        with lock:
            counts[0] -= 1

    def grade(*_, **__):
        threads.add(threading.current_thread().name)
        busy(grading)
        return timed({"bert_attention": 1.0})

    monkeypatch.setattr(judging, "grade", grade)
    monkeypatch.setattr(judging, "architecture_of", lambda *_: "80")
    monkeypatch.setattr(judging, "build", lambda *_: busy(building))

    async def several():
        async with anyio.create_task_group() as group:
            for _ in range(6):
                group.start_soon(judge, SOFTMAX, FILES, "gpu")

    anyio.run(several)
    assert grading[1] == 1 and len(threads) == 1
    assert building[1] == min(6, judging.builders()._max_workers)


def test_a_cancelled_wait_ends_at_once_and_takes_back_what_has_not_begun():
    from concurrent.futures import ThreadPoolExecutor

    lane, go, done = ThreadPoolExecutor(1), threading.Event(), []

    async def several():
        with anyio.move_on_after(0.2):
            async with anyio.create_task_group() as group:
                for number in range(3):
                    group.start_soon(in_thread, lane, lambda n=number: (go.wait(10), done.append(n)))

    started = time.monotonic()
    anyio.run(several)
    assert time.monotonic() - started < 5
    go.set()
    lane.shutdown(wait=True)
    assert len(done) == 1


def test_a_single_file_is_graded_as_one_and_several_as_a_directory(tmp_path):
    assert write_candidate(FILES, tmp_path / "a").name == "solution.cu"
    root = write_candidate({"main.cu": "int x;", "include/tile.cuh": "int y;"}, tmp_path / "b")
    assert root.is_dir() and (root / "include/tile.cuh").read_text() == "int y;"
