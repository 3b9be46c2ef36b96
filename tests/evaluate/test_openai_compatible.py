"""A model behind an OpenAI-compatible server, on a real connection: what such servers do, good and bad."""

from __future__ import annotations

import json
import time

import pytest

pytest.importorskip("inspect_ai")
pytest.importorskip("openai")

from chat_server import USAGE, Fail, Say, serving
from inspect_ai.log import list_eval_logs, read_eval_log
from made_verdicts import timed

from cudahercules.evaluate import judging
from cudahercules.evaluate import refine as refining_module
from cudahercules.evaluate import scorer as scorer_module
from cudahercules.evaluate.agent import tools as tools_module
from cudahercules.evaluate.run import Call, evaluate

CODE = 'extern "C" void solve(int) { k<<<1, 1>>>(); }'
GOOD = Say(f"Here it is.\n\n```cuda\n{CODE}\n```\n")


@pytest.fixture(autouse=True)
def judge(monkeypatch):
    """Whatever code arrives is right; the codes are kept."""
    seen = []

    async def judge(task, files, device, *, seed=None, limit_s=60.0):
        seen.append(files)
        return timed({"bert_attention": 0.5})

    monkeypatch.setattr(scorer_module, "judge", judge)
    monkeypatch.setattr(tools_module, "judge", judge)
    monkeypatch.setenv("LOCAL_API_KEY", "none")
    return seen


def ask(server, tmp_path, *, setting="oneshot", samples=1, resume=False, **call):
    options = {"tasks": "softmax/fp32", "device": "cpu", "samples": samples, **call.pop("options", {})}
    wanted = Call(model="openai-api/local/m", base_url=server.url, setting=setting, options=options, **call)
    outcome = evaluate(wanted, tmp_path / "logs", resume=resume)
    newest = max(list_eval_logs(str(outcome.directory)), key=lambda info: info.name)
    return outcome, read_eval_log(newest.name, resolve_attachments=True).samples


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_arrives_whole_or_in_pieces(tmp_path, judge, stream):
    with serving(GOOD) as server:
        outcome, _ = ask(server, tmp_path, model_arguments={"stream": stream}, temperature=0.5)
    assert [r.outcome for r in outcome.records] == ["correct"]
    assert judge == [{"solution.cu": CODE + "\n"}]
    assert outcome.records[0].usage.input_tokens == USAGE["prompt_tokens"]
    assert outcome.records[0].usage.output_tokens == USAGE["completion_tokens"]
    assert outcome.records[0].usage.money is None  # nobody knows this model's price
    (request,) = server.requests
    assert bool(request.get("stream")) is stream and request["temperature"] == 0.5
    assert "void solve(" in request["messages"][0]["content"]


def test_limits_of_rate_errors_and_dropped_connections_are_tried_again(tmp_path):
    failures = (Fail(429, {"retry-after": "1"}), Fail(500), Fail(0))
    started = time.monotonic()
    with serving(*failures, GOOD) as server:
        outcome, _ = ask(server, tmp_path, samples=4)
    assert [r.outcome for r in outcome.records] == ["correct"] * 4 and outcome.finished
    assert len(server.requests) == 7 and time.monotonic() - started >= 1


@pytest.mark.parametrize(
    ("say", "reason"),
    [
        (Say(f"```cuda\n{CODE[:20]}", finish="length"), "at its token limit inside a block"),
        (Say("", finish="length"), "the answer is empty at its token limit"),
        (Say(None, message={"refusal": "I cannot help with that."}), "No code"),
        (Say("", finish="content_filter"), "No code"),
        (Say(f"```cuda\n{CODE}\n// \0\n```"), "is not text"),
        (Say(f"```cuda\n{CODE}\n// \ud83d\n```"), "is not text"),
        (Say("I cannot. \ud83d"), "No code"),
        (Say(""), "the answer is empty"),
        (Say("", message={"reasoning_content": f"```cuda\n{CODE}\n```"}), "the answer is empty"),
    ],
    ids=[
        "cut_off",
        "cut_off_before_it_began",
        "refusal",
        "filtered",
        "nul",
        "half_a_pair",
        "half_a_pair_in_words",
        "empty",
        "only_reasoning",
    ],
)
def test_an_answer_without_code_is_the_models_failure_and_not_tried_again(tmp_path, judge, say, reason):
    with serving(say) as server:
        outcome, samples = ask(server, tmp_path)
    assert [r.outcome for r in outcome.records] == ["no_code"] and outcome.finished
    assert reason in samples[0].scores["judge"].explanation
    assert len(server.requests) == 1 and judge == []


@pytest.mark.parametrize(
    "say",
    [
        Say(GOOD.content, message={"reasoning_content": "```cuda\nvoid solve(int) { draft(); }\n```"}),
        Say(f"<think>\n```cuda\nvoid solve(int) {{ draft(); }}\n```\n</think>\n{GOOD.content}"),
    ],
    ids=["reasoning_content", "think"],
)
def test_code_in_the_reasoning_is_not_the_answer(tmp_path, judge, say):
    with serving(say) as server:
        outcome, _ = ask(server, tmp_path)
    assert outcome.records[0].outcome == "correct"
    assert judge == [{"solution.cu": CODE + "\n"}]


def calls(*functions: tuple[str, str]) -> Say:
    made = [
        {"id": f"c{i}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for i, (name, arguments) in enumerate(functions)
    ]
    return Say(None, finish="tool_calls", message={"tool_calls": made})


def test_malformed_tool_calls_are_answered_and_the_agent_goes_on(tmp_path, judge):
    script = (
        calls(("write", '{"path": "a.cu", "text": ')),  # no JSON
        calls(("write", "{}")),  # no arguments
        calls(("fly", "{}")),  # no such tool
        calls(("write", json.dumps({"path": "a.cu", "text": CODE}))),
        calls(("submit", "{}")),
    )
    with serving(*script) as server:
        outcome, samples = ask(server, tmp_path, setting="agent")
    assert outcome.records[0].outcome == "correct" and judge[-1] == {"a.cu": CODE}
    errors = [m.error.message for m in samples[0].messages if m.role == "tool" and m.error]
    assert len(errors) == 3 and "fly" in errors[2]
    assert len(server.requests) == 5


def test_a_request_that_the_server_will_never_take_ends_at_once_and_is_explained(tmp_path):
    from typer.testing import CliRunner

    from cudahercules.cli.program import app

    with serving(Fail(401)) as server:
        arguments = ["eval", "openai-api/local/m", "--base-url", server.url, "--tasks", "softmax/fp32"]
        result = CliRunner().invoke(app, [*arguments, "--device", "cpu", "--logs", str(tmp_path / "logs")])
    assert result.exit_code == 3 and "1 answers have no verdict; the first met:" in result.output
    assert "401" in result.output and "--resume" in result.output and "Traceback" not in result.output
    assert len(server.requests) == 2  # the evaluation itself is tried once more


def test_a_server_that_keeps_failing_is_named_with_its_own_error(tmp_path):
    with serving(Fail(500)) as server:
        outcome, _ = ask(server, tmp_path, retries=1)
    assert not outcome.finished
    assert "InternalServerError" in outcome.error and "tried again in vain" in outcome.error


def test_money_is_counted_where_prices_are_known_and_limited_for_each_sample(tmp_path):
    prices = tmp_path / "prices.yaml"
    million = 1_000_000
    price = {"input": 2.0, "output": 50.0, "input_cache_write": 0.0, "input_cache_read": 0.0}
    prices.write_text(json.dumps({"openai-api/local/m": price}))
    with serving(Say("no code"), Say("no code"), GOOD) as server:
        outcome, _ = ask(server, tmp_path, samples=2, prices=str(prices))
        each = (USAGE["prompt_tokens"] * 2.0 + USAGE["completion_tokens"] * 50.0) / million
        assert [r.usage.money for r in outcome.records] == pytest.approx([each, each])
        more = {"rounds": 5, "until": "rounds", "samples": 1}
        outcome, samples = ask(
            server, tmp_path / "b", setting="refine", prices=str(prices), cost_limit=1.5 * each, options=more
        )
    assert samples[0].limit.type == "cost" and outcome.records[0].rounds < 5


@pytest.mark.parametrize("setting", ["oneshot", "refine", "agent"])
def test_what_was_paid_is_not_paid_again_when_the_judge_fails(tmp_path, monkeypatch, setting):
    """The answers of samples that could not be judged come from the cache when they are resumed, although
    measured times differ from run to run."""
    from cudahercules.evaluate.judging import NotJudged

    async def broken(task, files, device, *, seed=None, limit_s=60.0):
        raise NotJudged("the machine is on fire")

    speeds = iter(range(1, 1000))

    def grade(task, path, device, *, seed, limit_s):  # beneath the memory for guidance
        return timed({"bert_attention": next(speeds) / 1000})

    monkeypatch.setattr(judging, "grade", grade)
    for module in (refining_module, tools_module):
        monkeypatch.setattr(module, "judge", judging.judge)
    agent = [calls(("write", json.dumps({"path": "a.cu", "text": CODE}))), calls(("check", "{}"))]
    script = {"oneshot": [GOOD], "refine": [GOOD], "agent": [*agent, calls(("submit", "{}"))]}[setting]
    options = {"refine": {"rounds": 3, "until": "rounds"}}.get(setting, {})
    with serving(*script) as server:
        monkeypatch.setattr(scorer_module, "judge", broken)
        outcome, _ = ask(server, tmp_path, setting=setting, options=options)
        assert not outcome.finished and "on fire" in outcome.error
        assert [r.outcome for r in outcome.records] == ["infrastructure_error"]
        asked = len(server.requests)
        assert asked == {"oneshot": 1, "refine": 3, "agent": 3}[setting]
        monkeypatch.setattr(scorer_module, "judge", judging.judge)
        outcome, _ = ask(server, tmp_path, setting=setting, options=options, resume=True)
        assert outcome.finished and [r.outcome for r in outcome.records] == ["correct"]
        assert len(server.requests) == asked
