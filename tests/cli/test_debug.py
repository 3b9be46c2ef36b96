"""``hercules debug``: what is found, said and returned."""

from __future__ import annotations

import pytest
from cli_candidates import TASK

from cudahercules.judge.debug import DebugReport, debug
from cudahercules.task.load import BUNDLED

GEMM = BUNDLED / "kernel" / "gemm"
PRODUCT = "kernel/gemm/fp32"


@pytest.fixture
def racing(tmp_path):
    """The tiled product without the barrier that protects its slices from the next round."""
    head, barrier, tail = (GEMM / "tiled.cu").read_text().rpartition("__syncthreads();")
    path = tmp_path / "racing.cu"
    path.write_text(head + tail)
    assert barrier
    return path


def test_nothing_is_found_in_a_sound_candidate(hercules):
    ended = hercules("debug", PRODUCT, GEMM / "tiled.cu", "--json", "--seed", "s")
    report = DebugReport.model_validate_json(ended.out)
    assert (ended.code, report.answer, report.findings) == (0, "right", ())
    assert (report.workload, report.asynchrony, report.seed, report.ending) == (
        "smoke",
        "late",
        "s",
        "completed",
    )


def test_a_race_is_said_and_typed(hercules, racing):
    ended = hercules("debug", PRODUCT, racing, "--json")
    report = DebugReport.model_validate_json(ended.out)
    assert (ended.code, report.answer) == (1, "wrong") and report.wrong is not None
    assert {f.kind for f in report.findings} == {"race"} and len(report.findings) == 2
    lines = racing.read_text().splitlines()
    for race in report.findings:
        texts = {t.touch: lines[t.place.line - 1] for t in (race.first, race.second)}
        assert "_slice[p][" in texts["write"] and "= " in texts["read"]
    said = hercules("debug", PRODUCT, racing).out
    assert "racing.cu  2 findings" in said and "Likely cause: A __syncthreads() is missing" in said


def test_an_unwritten_output_has_an_index(hercules):
    ended = hercules("debug", PRODUCT, GEMM / "mutants" / "edge_off_by_one.cu", "--json")
    (finding,) = ended.json["findings"]
    assert (finding["kind"], finding["output"], finding["index"]) == ("unwritten", "c", [0, 39])


def test_another_workload_and_order(hercules):
    ended = hercules(
        "debug", PRODUCT, GEMM / "naive.cu", "--workload", "odd", "--async", "random:3", "--json"
    )
    assert ended.code == 0 and (ended.json["workload"], ended.json["asynchrony"]) == ("odd", "random:3")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--workload", "nowhere"), "has no workload 'nowhere'"),
        (("--async", "sometimes"), "eager, late or random:SEED"),
        (("--async", "random:"), "eager, late or random:SEED"),
        (("--async", f"random:{2**64}"), "below 2**64"),
        (("--seed", ""), "--seed"),
    ],
)
def test_wrong_use_is_one_message(hercules, arguments, words):
    ended = hercules("debug", PRODUCT, GEMM / "naive.cu", *arguments)
    assert ended.code == 2 and words in ended.err and ended.err.count("\n") == 1


def test_a_candidate_that_does_not_compile(hercules, tmp_path):
    (tmp_path / "bad.cu").write_text('#include "solve.h"\nint solve = nothing;\n')
    ended = hercules("debug", TASK, tmp_path / "bad.cu")
    assert ended.code == 1 and "does not build" in ended.err


def test_a_run_without_end_names_its_line(racing, tmp_path):
    path = GEMM / "hostile" / "endless_kernel.cu"
    report = debug(PRODUCT, path, limit_s=1.5)
    (finding,) = report.findings
    assert (finding.kind, report.answer, report.ending) == ("out_of_fuel", "unknown", "out_of_fuel")
    assert finding.place.file == "endless_kernel.cu" and finding.place.line


def test_grade_takes_an_order_on_the_cpu_alone(hercules, monkeypatch):
    ended = hercules(
        "grade", PRODUCT, GEMM / "naive.cu", "--device", "cpu", "--smoke", "--async", "eager", "--json"
    )
    assert ended.code == 0 and ended.verdict.checks[0].asynchrony == ("eager",)
    monkeypatch.setattr("cudahercules.judge.grade.choose_device", lambda _device: "gpu")
    ended = hercules("grade", PRODUCT, GEMM / "naive.cu", "--async", "eager")
    assert ended.code == 2 and "--device cpu" in ended.err
