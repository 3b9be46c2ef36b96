"""What a person sees: 80 columns, dark and light terminals, and a paragraph to act on."""

from __future__ import annotations

import io
import re
import time

import pytest
from rich.console import Console

from cudahercules.judge.protocol import Case
from cudahercules.judge.verdict import Checked, KernelReport, OutputCheck, Timed, TimedWorkload, WrongOutput
from cudahercules.report.paragraph import brief, explanation, hint
from cudahercules.report.text import print_verdict
from cudahercules.task.load import load_task

YELLOW = re.compile(r"\x1b\[(?:\d+;)*(?:33|93|43|103)(?:;\d+)*m")
CODES = re.compile(r"\x1b\[[\d;]*m")


@pytest.fixture
def case():
    return Case(
        task=load_task("kernel/gemm/fp32@general"),
        candidate="mine.cu",
        candidate_sha256="0",
        seed="5eed" * 8,
        clock=time.monotonic,
        architecture="90a",
    )


def check(output: str = "c", part: float = 0.1) -> OutputCheck:
    bounds = {"l2_bound": 1e-5, "row_l2_bound": 1e-5, "element_bound": 1e-4}
    return OutputCheck(output=output, l2=part * 1e-5, row_l2=0.0, element=0.0, **bounds)


def row(name: str, part: float = 0.1) -> Checked:
    sizes = {"batch": 4, "heads": 32, "queries": 4096, "keys": 4096, "head_dimension": 128}
    return Checked(
        workload=name,
        role="check",
        seed="1",
        dimensions=sizes,
        outputs=(check(part=part), check("logsumexp", 0.02)),
        launches=2,
        plan_sha256="0" * 64,
        seconds=0.25,
    )


def kernel(**mix: int) -> KernelReport:
    resources = {"registers": 255, "static_shared": 101376, "local": 0, "spill_stores": 8, "spill_loads": 16}
    name = "_ZN7cutlass13device_kernelIN5flash11FlashAttnFwdINS_4gemm9collectiveEEEEEvNT_6ParamsE"
    return KernelReport(
        name=name,
        parameters=((0, 8),),
        **resources,
        constant=0,
        max_threads=1024,
        launches=2,
        instruction_mix={k.replace("_", "."): v for k, v in mix.items()},
    )


def timed_row(name: str, ratio: float, **more) -> TimedWorkload:
    outcome = "slower" if ratio < 0.99 else "faster" if ratio > 1.01 else "on_par"
    numbers = {
        "margin": 0.01,
        "level": 0.99,
        "pairs": 128,
        "instances": 16,
        "looks": 1,
        "checked_samples": 16,
    }
    return TimedWorkload(
        workload=name,
        outcome=outcome,
        method="graph",
        expert="cublaslt_searched",
        **numbers,
        ratio=ratio,
        low=ratio - 0.005,
        high=ratio + 0.005,
        candidate_us=100.0 / ratio,
        expert_us=100.0,
        floor_us=20.0,
        ceiling_fraction=0.8 * ratio,
        **more,
    )


def timed(*rows: TimedWorkload) -> Timed:
    ratio = min(r.ratio for r in rows)
    edges = {"low": ratio - 0.004, "high": ratio + 0.004}
    return Timed(outcome=rows[0].outcome, ratio=ratio, **edges, margin=0.01, workloads=rows)


def on_screen(verdict, width: int = 80) -> str:
    stream = io.StringIO()
    out = Console(file=stream, width=width, force_terminal=True, color_system="standard", highlight=False)
    print_verdict(verdict, out)
    return stream.getvalue()


def every_kind(case):
    slow = timed(timed_row("long_context_prefill", 0.4), timed_row("square_4096", 0.9))
    wrong = WrongOutput(output="c", reason="tolerance", message="c: " + "wrong " * 40, wrong=3, total=1000)
    return [
        case.correct([row("smoke"), row("outliers_everywhere", 0.5)], [kernel(HMMA=4, LDG_128=2)], slow),
        case.incorrect("odd", wrong, [row("smoke")]),
        case.contract_error("no " * 60, "smoke"),
        case.timeout("run", "too slow " * 20, 2.0, "smoke"),
        case.cheating("it did", ("a",)),
        case.invalid_measurement("hot " * 50),
        case.infrastructure_error("ours"),
    ]


def test_nothing_is_wider_than_80_columns(case):
    for verdict in every_kind(case):
        lines = CODES.sub("", on_screen(verdict)).splitlines()
        assert max(map(len, lines)) <= 80, max(lines, key=len)


def test_words_are_not_broken(case):
    """Wrapping is between words: names of kernels are cut with an ellipsis instead."""
    text = CODES.sub("", on_screen(every_kind(case)[0]))
    for word in ("long_context_prefill", "outliers_everywhere", "logsumexp", "cublaslt_searched"):
        assert word in text
    assert "\N{HORIZONTAL ELLIPSIS}" in text


def test_colours_can_be_read_on_white_and_say_nothing_alone(case):
    for verdict in every_kind(case):
        shown = on_screen(verdict)
        assert not YELLOW.search(shown), verdict.kind
        assert verdict.kind in CODES.sub("", shown)


def test_a_wide_terminal_shows_every_number(case):
    text = CODES.sub("", on_screen(every_kind(case)[0], width=200))
    assert "1.0e-06 / 1e-05" in text and "128 in 16" in text and "launches" in text


# --- the paragraph ---------------------------------------------------------------------------------


def test_slower_says_how_far_where_most_and_what_the_opponent_has(case):
    opponent = {"HGMMA.64x256x16.F32.BF16": 8, "UTMALDG": 4, "SYNCS": 12, "LDG.128": 1}
    rows = (timed_row("small", 0.9), timed_row("large", 0.4, expert_instructions=opponent))
    text = explanation(case.correct([row("smoke")], [kernel(HMMA=4, LDG_128=2, FFMA=9)], timed(*rows)))
    assert text.startswith("Right, but slower: 0.400 times the speed of cublaslt_searched [0.396, 0.404]")
    assert "2.50 times as long" in text
    assert "The largest gap is large: 250.0 us against 100.0 us" in text
    assert "32% of the card's ceiling, the opponent reaches 80%" in text
    assert "tensor-core products of a warp group [HGMMA]" in text and "(TMA) [UTMALDG]" in text
    assert "16-byte loads" not in text  # both have them


@pytest.mark.parametrize(
    ("ratio", "words"),
    [(1.2, "faster than the opponent: 1.200"), (1.0, "as fast as the opponent within 1%: 1.000")],
)
def test_faster_and_on_par(case, ratio, words):
    text = explanation(case.correct([row("smoke")], [kernel()], timed(timed_row("square", ratio))))
    assert words in text and "largest gap" not in text


def test_what_changes_the_reading_is_noted(case):
    flag = "below the floor: a sample of 1.0 us"
    result = timed(timed_row("square", 3.0, flags=(flag,)))
    result = result.model_copy(update={"panel_missing": ("deepgemm",), "panel_note": "never ranked"})
    text = explanation(case.correct([row("smoke")], [kernel()], result))
    assert f"square: {flag}" in text and "not in the panel here: deepgemm" in text and "never ranked" in text


def test_a_wrong_answer_says_what_passed_and_where_to_look(case):
    wrong = WrongOutput(output="c", reason="unwritten", message="c: 5 never written", wrong=5, total=100)
    text = explanation(case.incorrect("odd", wrong, [row("smoke"), row("even")]))
    assert "look at the size of the grid" in text and "Passed before: smoke, even." in text


@pytest.mark.parametrize(
    ("reason", "wrong", "word"),
    [("tolerance", 1, "edges"), ("not_equal", 99, "formula"), ("tolerance", 50, ""), ("nan", 1, "NaN")],
)
def test_hints(reason, wrong, word):
    text = hint(WrongOutput(output="c", reason=reason, message="m", wrong=wrong, total=100))
    assert (word in text) if word else text == ""


def test_one_element_of_many_is_not_called_zero_per_cent():
    one = WrongOutput(output="c", reason="tolerance", message="m", wrong=1, total=200_000_000)
    assert hint(one) == "Very few of the elements: look at edges, tails and special values."


def test_an_opponent_whose_code_is_unknown_is_said_so(case):
    text = explanation(case.correct([row("smoke")], [kernel()], timed(timed_row("square", 0.5))))
    assert "What cublaslt_searched runs was not read" in text
    text = explanation(case.correct([row("smoke")], [kernel()], timed(timed_row("square", 1.2))))
    assert "was not read" not in text


def test_brief_of_a_timed_verdict(case):
    verdict = case.correct([row("smoke")], [kernel()], timed(timed_row("square", 0.5)))
    assert brief(verdict) == "slower: 0.500 times cublaslt_searched [0.496, 0.504]"


def test_the_list_of_tasks_fits_80_columns_with_ids_that_can_be_copied(hercules, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    out = hercules("tasks").out
    assert max(map(len, out.splitlines())) <= 80
    assert all(row["id"] in out for row in hercules("tasks", "--json").json)
    assert "\N{HORIZONTAL ELLIPSIS}" not in out  # titles of one family differ in their last words
