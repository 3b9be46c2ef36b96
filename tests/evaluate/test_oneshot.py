"""One-shot evaluations end to end: the bundled answers through the CPU judge, logs, scores, resumption."""

from __future__ import annotations

import json
import re

import pytest

inspect_ai = pytest.importorskip("inspect_ai")

from inspect_ai.log import list_eval_logs, read_eval_log  # noqa: E402
from typer.testing import CliRunner  # noqa: E402

from cudahercules.errors import UsageError  # noqa: E402
from cudahercules.evaluate.logs import read_records  # noqa: E402
from cudahercules.evaluate.run import Call, evaluate  # noqa: E402
from cudahercules.evaluate.samples import select  # noqa: E402
from cudahercules.judge.bundled import REPRESENTATIVE  # noqa: E402

TASK = "kernel/gemm/fp32@general"
ALL_ANSWERS = 10
CPU = {"tasks": TASK, "device": "cpu"}


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """Every bundled answer to one task, judged on the CPU."""
    directory = tmp_path_factory.mktemp("demo")
    lines: list[str] = []
    call = Call(model="replay/demo", options={**CPU, "samples": ALL_ANSWERS})
    outcome = evaluate(call, directory / "logs", tell=lines.append)
    return outcome, lines


def test_each_bundled_answer_gets_the_verdict_that_it_deserves(demo):
    outcome, _ = demo
    log = read_eval_log(list_eval_logs(str(outcome.directory))[0].name)
    by_answer = {}
    for sample in log.samples:
        score = sample.scores["judge"]
        by_answer[_which(sample.output.completion)] = (score.metadata["record"]["outcome"], score.explanation)
    assert {name: kind for name, (kind, _) in by_answer.items()} == {
        "good": "correct",
        "slow": "correct",
        "wrong": "incorrect",
        "cheating": "contract_error",
        "no_code": "no_code",
        "several_files": "correct",
        "in_prose": "no_code",
        "two_blocks": "correct",
        "cut_off": "no_code",
        "does_not_compile": "build_error",
    }
    assert "device to host" in by_answer["cheating"][1]
    assert "outside a fenced block" in by_answer["in_prose"][1]
    assert "at its token limit" in by_answer["cut_off"][1]
    assert "the last one that defines solve" in by_answer["two_blocks"][1]


def _which(answer: str) -> str:
    marks = {
        "The fastest version": "good",
        "A plain version": "slow",
        "I have not run it": "wrong",
        "This passes every check": "cheating",
        "To make this fast": "no_code",
        "The solution is in two files": "several_files",
        "no fence is needed": "in_prose",
        "My first attempt": "two_blocks",
        "Here is the complete program": "cut_off",
        "static_assert(sizeof(int) == 8": "does_not_compile",
    }
    return next(name for mark, name in marks.items() if mark in answer)


def test_the_score_keeps_the_whole_typed_verdict(demo):
    from cudahercules.judge.verdict import VERDICT

    outcome, _ = demo
    log = read_eval_log(list_eval_logs(str(outcome.directory))[0].name)
    kinds = set()
    for sample in log.samples:
        metadata = sample.scores["judge"].metadata
        if metadata["verdict"] is not None:
            verdict = VERDICT.validate_python(metadata["verdict"])
            assert verdict.task == TASK and verdict.kind == metadata["record"]["outcome"]
            kinds.add(verdict.kind)
    assert len(kinds) == 4


def test_rates_of_the_demo_and_no_speed_on_the_cpu(demo):
    outcome, _ = demo
    assert outcome.finished and len(outcome.records) == ALL_ANSWERS
    assert sum(r.correct for r in outcome.records) == 4
    assert sum(r.compiled for r in outcome.records) == 6
    assert all(r.speed is None and r.device == "cpu" for r in outcome.records)
    assert all(r.usage.money == 0 and r.usage.output_tokens > 0 for r in outcome.records)
    log = read_eval_log(list_eval_logs(str(outcome.directory))[0].name, header_only=True)
    shown = {
        (s.name, s.reducer): {k.split("/")[-1]: m.value for k, m in s.metrics.items()}
        for s in log.results.scores
    }
    assert shown["correct", "mean"]["mean"] == pytest.approx(0.4)
    assert shown["compiled", "mean"]["family_mean"] == pytest.approx(0.6)
    assert shown["correct", "pass_at_3"]["mean"] == pytest.approx(1 - (6 * 5 * 4) / (10 * 9 * 8))
    assert not any(name.startswith(("speed", "fast")) for name, _ in shown)


def test_progress_counts_verdicts_tokens_and_time(demo):
    _, lines = demo
    assert re.search(r"10 of 10: 4 correct, .*3 no_code.*; \d+ k? ?tokens, 0\.00 US\$; \d+ s$", lines[-1])
    assert any("left" in line for line in lines)


def test_a_finished_evaluation_is_resumed_without_asking_anything(demo):
    outcome, _ = demo
    lines: list[str] = []
    call = Call(model="replay/demo", options={**CPU, "samples": ALL_ANSWERS})
    again = evaluate(call, outcome.directory, resume=True, tell=lines.append)
    assert again.records == outcome.records and lines == []
    with pytest.raises(UsageError, match="in use: --resume"):
        evaluate(call, outcome.directory)
    with pytest.raises(UsageError, match="was begun with options"):
        evaluate(Call(model="replay/demo", options={**CPU, "samples": 2}), outcome.directory, resume=True)


def test_score_reads_the_logs_in_every_format(demo):
    from cudahercules.cli.program import app

    outcome, _ = demo
    run = CliRunner()
    table = run.invoke(app, ["score", str(outcome.directory)])
    assert (
        table.exit_code == 0
        and "| pass_rate | 40.0 % | 40.0 % | 10 answers, 1 task, 1 family |" in table.output
    )
    assert "not timed" in table.output
    data = json.loads(run.invoke(app, ["score", str(outcome.directory), "--format", "json"]).output)
    rows = {(r["group"], r["metric"], r["weighting"]): r for r in data[0]["rows"]}
    assert rows["all", "pass@10", "task"]["value"] == 1.0
    assert run.invoke(app, ["score", str(outcome.directory), "--format", "xml"]).exit_code == 2
    assert run.invoke(app, ["score", str(outcome.directory / "no")]).exit_code == 2


def test_logs_of_other_evaluations_are_refused(tmp_path):
    with pytest.raises(UsageError, match="no log of a CUDAHercules evaluation"):
        read_records([tmp_path])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["replay/nowhere"], "there is no folder nowhere"),
        (["replay/demo", "--tasks", "nope"], "there is no task 'nope'"),
        (["replay/demo", "--target", "ampere"], "no task is left"),
        (["replay/demo", "--target", "moon"], "choose one of general"),
        (["replay/demo", "--setting", "both"], "choose one of oneshot"),
        (["replay/demo", "--level", "most"], "full, algorithm, name"),
        (["replay/demo", "-T", "nonsense=1"], "option nonsense"),
        (["replay/demo", "-T", "nonsense"], "write -T name=value"),
        (["replay/demo", "--resume"], "was begun with these options"),
        (["nobody/model"], "nobody/model"),
        (["replay/demo", "--prices", "nowhere.yaml"], "--prices nowhere.yaml"),
        (["replay/demo", "-M", "delay=1"], "unexpected keyword"),
    ],
)
def test_wrong_calls_are_explained_in_a_line_and_leave_nothing_behind(
    arguments, message, tmp_path, monkeypatch
):
    from cudahercules.cli.program import app

    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["eval", *arguments, "--device", "cpu"])
    assert result.exit_code == 2, result.output
    assert message in result.output and "Traceback" not in result.output
    assert not (tmp_path / "logs").exists()


def test_which_tasks_are_chosen():
    families = select("families")
    assert len(families) == len({t.family for t in families}) >= 9
    assert [t.family for t in select("demo")] == list(REPRESENTATIVE)
    assert {t.id for t in select("demo")} <= {t.id for t in families}
    assert {t.target for t in select("kernel/gemm", "hopper")} == {"hopper"}
    assert [t.id for t in select("gemm/fp32,softmax/fp32")] == [TASK, "kernel/softmax/fp32@general"]
    assert len(select("all")) > 40
