"""Verdicts and tables as text."""

from __future__ import annotations

import io
import time
from dataclasses import replace

import pytest

from cudahercules.build.artifact import CompilerMessage
from cudahercules.emulator.outcome import Fault, UnsupportedInstruction
from cudahercules.judge.protocol import Case
from cudahercules.judge.verdict import (
    Checked,
    KernelReport,
    NotTimed,
    OutputCheck,
    Timed,
    TimedWorkload,
    WrongOutput,
)
from cudahercules.names import demangled, without_parameters
from cudahercules.report.text import brief, clean, console, cut, explanation, print_verdict
from cudahercules.task.load import load_task

CHECK = OutputCheck(
    output="c", l2=1e-7, l2_bound=1e-5, row_l2=2e-7, row_l2_bound=3e-5, element=1e-6, element_bound=1e-4
)
ROW = Checked(
    workload="smoke",
    role="smoke",
    seed="1",
    dimensions={"m": 3, "n": 4},
    outputs=(CHECK,),
    launches=2,
    plan_sha256="0" * 64,
    seconds=0.25,
)
WRONG = WrongOutput(
    output="c", reason="tolerance", message="c: 3 of 12 elements are wrong", wrong=3, total=12, check=CHECK
)
KERNEL = KernelReport(
    name="_Z8multiplyPKf",
    parameters=((0, 8),),
    registers=40,
    static_shared=1024,
    local=0,
    spill_stores=0,
    spill_loads=0,
    constant=0,
    max_threads=1024,
    launches=2,
    instruction_mix={"FFMA": 12, "LDG": 4},
)


@pytest.fixture
def case():
    return Case(
        task=load_task("kernel/gemm/fp32@general"),
        candidate="evil\x1b[2J.cu",
        candidate_sha256="0",
        seed="5eed",
        clock=time.monotonic,
        architecture="80",
    )


def text_of(verdict) -> str:
    stream = io.StringIO()
    print_verdict(verdict, console(stream))
    return stream.getvalue()


def timed() -> Timed:
    row = TimedWorkload(
        workload="square",
        outcome="faster",
        method="graph",
        expert="torch_mm",
        margin=0.01,
        level=0.99,
        pairs=40,
        instances=2,
        looks=1,
        checked_samples=8,
        ratio=1.25,
        low=1.24,
        high=1.26,
        candidate_us=80.0,
        expert_us=100.0,
        floor_us=20.0,
        ceiling_fraction=0.5,
    )
    return Timed(outcome="faster", ratio=1.25, low=1.24, high=1.26, margin=0.01, workloads=(row,))


def test_every_kind_can_be_shown(case):
    error = CompilerMessage(severity="error", file="k.cu", line=3, text="oops")
    warning = CompilerMessage(severity="warning", file="k.cu", line=1, text="hm")
    fault = Fault(
        what="deadlock", message="threads wait", kernel="k", file="k.cu", line=9, threads=("8 threads at 9",)
    )
    unknown = UnsupportedInstruction(instruction="wgmma.fence", kernel="k")
    expected = [
        (
            case.correct((ROW,), (KERNEL,), NotTimed(reason="an emulator")),
            (
                "Not timed: an emulator",
                "m=3 n=4",
                "multiply",
                "FFMA:12",
            ),
        ),
        (case.correct((ROW,), (KERNEL,), timed()), ("faster", "1.250", "[1.240, 1.260]", "torch_mm")),
        (case.incorrect("odd", WRONG, (ROW,)), ("In workload odd: c: 3 of 12", "smoke")),
        (case.build_error("k.cu: oops", (warning, error)), ("k.cu:3: error: oops",)),
        (case.contract_error("no", "smoke"), ("In workload smoke: no",)),
        (case.crash("smoke", fault), ("threads wait", "k.cu:9", "8 threads at 9")),
        (case.timeout("run", "too slow", 2.0, "smoke"), ("too slow",)),
        (case.cheating("it did", ("a",)), ("it did",)),
        (case.unsupported((unknown,)), ("wgmma.fence", "--device gpu")),
        (case.invalid_measurement("hot"), ("hot",)),
        (case.infrastructure_error("ours"), ("ours",)),
    ]
    for verdict, words in expected:
        text = text_of(verdict)
        assert "\x1b" not in text and verdict.kind in text and "5eed" in text
        for word in words:
            assert word in text, (verdict.kind, word, text)
        assert brief(verdict) and "\n" not in brief(verdict)
        assert explanation(verdict)


def test_what_the_cpu_judge_saw_names_the_command_that_looks_for_its_cause(case):
    wrong = case.incorrect("odd", WRONG, (ROW,), "late", ("eager",))
    assert (
        f"hercules debug {wrong.task} '{clean(wrong.candidate)}' --workload odd --async late --seed 5eed"
        in text_of(wrong)
    )
    fault = Fault(what="deadlock", message="threads wait", kernel="k")
    assert "hercules debug" in text_of(case.crash("smoke", fault))
    assert "--async" not in text_of(case.crash("smoke", fault))
    assert "hercules debug" in text_of(case.timeout("run", "too slow", 2.0, "smoke"))
    for verdict in (
        case.host_crash("smoke", "it crashed"),
        case.timeout("record", "too slow", 2.0, "smoke"),
        case.contract_error("no", "smoke"),
        replace(case, device="NVIDIA H200").incorrect("odd", WRONG, (ROW,)),
    ):
        assert "hercules debug" not in text_of(verdict)


def test_errors_come_before_warnings(case):
    error = CompilerMessage(severity="error", file="k.cu", line=3, text="oops")
    warning = CompilerMessage(severity="warning", file="k.cu", line=1, text="hm")
    text = text_of(case.build_error("no", (*[warning] * 9, error)))
    assert text.index("oops") < text.index("hm") and "2 more messages" in text


def test_markup_of_a_candidate_is_text(case):
    assert "[bold]x[/bold] [link=http://a]" in text_of(case.contract_error("[bold]x[/bold] [link=http://a]"))


def test_clean_and_cut():
    assert clean("a\x1b[31mb\x00\n\tc") == "a\ufffd[31mb\ufffd\n\tc"
    assert cut("abcdef\nmore", 4) == "abc\u2026" and cut("abc\nmore", 4) == "abc"


@pytest.mark.parametrize(
    ("signature", "name"),
    [
        ("void ns::f<(int)4, g<2>>(float*, int)", "ns::f<(int)4, g<2>>"),
        ("(anonymous namespace)::k(int)", "(anonymous namespace)::k"),
        ("plain", "plain"),
    ],
)
def test_parameters_are_left_out_of_names(signature, name):
    assert without_parameters(signature) == name


def test_demangling():
    assert demangled("_Z8multiplyPKf") == "multiply" and demangled("plain") == "plain"
    assert demangled("_Znonsense") == "_Znonsense"


def test_the_documented_example_is_a_verdict():
    from pathlib import Path

    from cudahercules.judge.verdict import VERDICT

    text = (Path(__file__).parents[2] / "docs" / "example-verdict.json").read_text()
    assert VERDICT.validate_json(text).kind == "correct"
