"""Agents: the workspace, the tools and their budgets, what counts as the answer, NVIDIA's tools."""

from __future__ import annotations

import pytest

pytest.importorskip("inspect_ai")

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.log import list_eval_logs, read_eval_log
from inspect_ai.solver import generate, solver
from inspect_ai.tool import ToolDef, ToolError
from inspect_ai.util import store_as
from made_verdicts import SOFTMAX, timed, wrong

from cudahercules.evaluate import refine as refining_module
from cudahercules.evaluate import scorer as scorer_module
from cudahercules.evaluate.agent import agents, instruments, nvidia_tools, toolbox
from cudahercules.evaluate.agent import tools as tools_module
from cudahercules.evaluate.agent.tools import NOTES, submit_tool
from cudahercules.evaluate.agent.workspace import Workspace, edited, read, written
from cudahercules.evaluate.judging import NotJudged
from cudahercules.evaluate.run import Call, evaluate
from cudahercules.evaluate.state import Answer
from cudahercules.evaluate.tasks import agent as agent_task
from cudahercules.evaluate.tasks import take_seat

RIGHT = timed({"bert_attention": 0.7})


# --- the workspace ---------------------------------------------------------------------------------


def test_files_are_read_with_numbers_and_listed():
    files = {"a.cu": "int x;\nint y;\n"}
    assert read(files, "a.cu", "") == "   1  int x;\n   2  int y;"
    assert read(files, ".", "") == "a.cu  2 lines\nsolve.h  generated, read-only"
    assert "#pragma once" in read(files, "solve.h", "#pragma once\n")
    with pytest.raises(ToolError, match=r"there is no b\.cu"):
        read(files, "b.cu", "")


@pytest.mark.parametrize(
    "name", ["../a.cu", "/etc/a.cu", "a/../../b.cu", "a b.cu", "solve.h", "notes.txt", ".a.cu"]
)
def test_names_that_no_candidate_can_have_are_refused(name):
    with pytest.raises(ToolError):
        written({}, name, "int x;")


def test_a_workspace_is_as_small_as_a_candidate_must_be():
    with pytest.raises(ToolError, match="limit"):
        written({}, "a.cu", "x" * (3 << 20))


def test_an_edit_needs_a_passage_that_stands_once():
    files = {"a.cu": "int x; int x; int y;"}
    assert edited(files, "a.cu", "int y", "int z") == {"a.cu": "int x; int x; int z;"}
    for old in ("int x", "int q", ""):
        with pytest.raises(ToolError, match="exactly once"):
            edited(files, "a.cu", old, "int z")
    with pytest.raises(ToolError, match=r"there is no b\.cu"):
        edited(files, "b.cu", "int y", "int z")


# --- tools in a sample -----------------------------------------------------------------------------


def in_sample(tmp_path, steps, device="gpu"):
    """Run ``steps`` (an async function of the tools by name) inside a sample of the softmax task."""

    @solver
    def play():
        async def solve(state, generate):
            tools = {ToolDef(t).name: t for t in (*toolbox(device, 60.0, 2), submit_tool().as_tool())}
            await steps(tools)
            return state

        return solve

    task = Task(dataset=[Sample(id=SOFTMAX.id, input="x")], setup=take_seat(), solver=play())
    log = eval(task, model="replay/demo", log_dir=str(tmp_path / "logs"), display="none")[0]
    assert log.status == "success", log.error
    assert not log.samples[0].error, log.samples[0].error.traceback


@pytest.fixture
def verdicts(monkeypatch):
    """What the judge says next; collects on which device and workloads it was asked."""
    asked = []

    def install(*answers):
        coming = iter(answers)

        async def judge(task, files, device, *, seed=None, limit_s=60.0):
            asked.append((device, len(task.workloads), seed is not None))
            return next(coming)

        for module in (tools_module, scorer_module, refining_module):
            monkeypatch.setattr(module, "judge", judge)
        return asked

    return install


def test_measurements_have_a_budget_that_is_shown_and_kept(tmp_path, verdicts):
    asked = verdicts(RIGHT, wrong())

    async def steps(tools):
        with pytest.raises(ToolError, match=r"no \.cu file yet"):
            await tools["measure"]()
        await tools["write"](path="a.cu", text="int x;")
        first = await tools["measure"]()
        assert "| bert_attention | 142.9 | 100.0 | 0.700 |" in first and "1 of 2 measurements" in first
        assert "0 of 2 measurements" in await tools["measure"]()
        with pytest.raises(ToolError, match="no measurements are left"):
            await tools["measure"]()

    in_sample(tmp_path, steps)
    assert [device for device, _, _ in asked] == ["gpu", "gpu"]
    assert all(count < len(SOFTMAX.workloads) and has_seed for _, count, has_seed in asked)


def test_without_a_submission_the_best_checked_version_counts(tmp_path, verdicts):
    verdicts(RIGHT, wrong())

    async def steps(tools):
        await tools["write"](path="a.cu", text="int first;")
        assert store_as(Answer).files == {"a.cu": "int first;"}  # nothing is checked yet
        await tools["check"]()
        await tools["write"](path="a.cu", text="int second;")
        await tools["check"]()
        assert store_as(Answer).files == {"a.cu": "int first;"}
        assert "best version that was checked (check 1)" in store_as(Answer).explanation
        await tools["submit"]()
        assert store_as(Answer).files == {"a.cu": "int second;"} and store_as(Workspace).submitted

    in_sample(tmp_path, steps)


def test_a_machine_that_fails_is_not_the_agents_mistake(tmp_path, monkeypatch):
    async def judge(*_, **__):
        raise NotJudged("the machine is on fire")

    monkeypatch.setattr(tools_module, "judge", judge)

    async def steps(tools):
        await tools["write"](path="a.cu", text="int x;")
        with pytest.raises(NotJudged):  # not a ToolError: the sample ends, and can be resumed
            await tools["measure"]()
        assert store_as(Workspace).measured == 0

    in_sample(tmp_path, steps)


def test_documents_are_there_for_every_topic_that_the_tool_names(tmp_path, verdicts):
    topics = ToolDef(next(t for t in toolbox() if ToolDef(t).name == "docs")).parameters.properties["topic"]
    names = " ".join(topics.description.split()).replace(" or ", ", ").rstrip(".").split(", ")
    assert len(names) == 10 and len(list(NOTES.glob("*.md"))) == 5

    async def steps(tools):
        for name in names:
            assert len((await tools["docs"](topic=name.strip())).split()) > 40, name
        with pytest.raises(ToolError, match="nothing about"):
            await tools["docs"](topic="../workspace")

    in_sample(tmp_path, steps, "cpu")


def test_build_and_sass_say_what_the_compiler_made():
    good = {"solution.cu": (SOFTMAX.directory / "naive.cu").read_text()}
    assert "Builds for sm_80" in instruments.build_text(SOFTMAX, good, "cpu")
    assert "registers a thread" in instruments.build_text(SOFTMAX, good, "cpu")
    bad = {"solution.cu": '#include "solve.h"\nint x = ;\n'}
    assert "solution.cu:2" in instruments.build_text(SOFTMAX, bad, "cpu")
    text = instruments.sass_text(SOFTMAX, good, "cpu")
    assert "instructions;" in text or "nvdisasm is not installed" in text


def test_the_emulators_profile_counts_and_says_that_it_does():
    from cudahercules.evaluate.holdout import guidance

    shown = guidance(SOFTMAX)
    few = shown.model_copy(update={"workloads": shown.workloads[:2]})
    good = {"solution.cu": (SOFTMAX.directory / "naive.cu").read_text()}
    text = instruments.emulated_profile(few, good, "s", 60.0)
    assert "counts, not times" in text and "* smoke (rows=6 columns=256):" in text
    assert "for each element of output" in text


# --- agents ----------------------------------------------------------------------------------------


def run(tmp_path, verdicts_given, verdicts, **options):
    verdicts(*verdicts_given)
    given = {"tasks": "softmax/fp32", "device": "cpu", **options}
    outcome = evaluate(Call(model="replay/demo", setting="agent", options=given), tmp_path / "logs")
    return outcome, read_eval_log(
        list_eval_logs(str(outcome.directory))[0].name, resolve_attachments=True
    ).samples[0]


@pytest.fixture
def no_profile(monkeypatch):
    monkeypatch.setattr(tools_module, "diagnosis", lambda *_: "nothing found")
    monkeypatch.setattr(refining_module, "diagnosis_if_any", lambda *_: "")
    monkeypatch.setattr(instruments, "emulated_profile", lambda *_: "PROFILE: 7 instructions")


def test_the_default_agent_works_and_submits(tmp_path, verdicts, no_profile):
    outcome, sample = run(tmp_path, [wrong(), RIGHT, RIGHT], verdicts)
    results = {m.function: m.text for m in sample.messages if m.role == "tool"}
    assert "[left: 15 of 20 rounds]" in results["sanitize"]
    assert "nothing can be measured here" in results["measure"]
    assert "PROFILE" in results["profile"]
    assert "were submitted" in sample.scores["judge"].explanation
    assert outcome.records[0].setting == "agent@20" and outcome.records[0].correct


def test_an_agent_that_runs_out_of_rounds_is_judged_by_its_best_check(tmp_path, verdicts, no_profile):
    outcome, sample = run(tmp_path, [wrong(), RIGHT, RIGHT], verdicts, rounds=3)
    assert sample.limit.type == "turn"
    assert "best version that was checked (check 2)" in sample.scores["judge"].explanation
    assert outcome.records[0].correct and outcome.finished


def test_the_two_roles_talk(tmp_path, verdicts, no_profile):
    outcome, sample = run(
        tmp_path, [wrong(), wrong(), RIGHT, RIGHT], verdicts, agent="coder_and_judge", rounds=3
    )
    calls = [e for e in sample.events if e.event == "model"]
    said = [c.output.completion for c in calls]
    assert sum("Every block reads the same data" in text for text in said) == 2
    asked = [c.input[-1].text for c in calls]
    assert sum("A reviewer says: Every block reads" in text for text in asked) == 2
    assert any("# What the judge found" in text and "# Profile" in text for text in asked)
    assert outcome.records[0].setting == "coder_and_judge@3"


def test_any_inspect_solver_finds_the_tools(tmp_path, verdicts, no_profile):
    verdicts(wrong(), RIGHT, RIGHT)
    built = agent_task(tasks="softmax/fp32", device="cpu")
    log = eval(
        built, solver=generate(), model="replay/demo", log_dir=str(tmp_path), display="none", turn_limit=6
    )[0]
    sample = log.samples[0]
    assert {m.function for m in sample.messages if m.role == "tool"} >= {"write", "check", "submit"}
    assert sample.scores["judge"].metadata["record"]["outcome"] == "correct"


def test_the_reviewer_may_be_another_model(tmp_path, verdicts, no_profile):
    other = tmp_path / "other"
    (other / "critic").mkdir(parents=True)
    (other / "critic" / "01.md").write_text("Use tensor cores.")
    verdicts(wrong(), RIGHT, RIGHT)
    options = {"tasks": "softmax/fp32", "device": "cpu", "agent": "coder_and_judge", "rounds": 2}
    call = Call(model="replay/demo", setting="agent", options=options, roles={"judge": f"replay/{other}"})
    outcome = evaluate(call, tmp_path / "logs")
    sample = read_eval_log(list_eval_logs(str(outcome.directory))[0].name, resolve_attachments=True).samples[
        0
    ]
    assert any(
        "A reviewer says: Use tensor cores." in e.input[-1].text for e in sample.events if e.event == "model"
    )
    assert agents.DIAGNOSIS.startswith("## Diagnosis")


# --- NVIDIA's tools --------------------------------------------------------------------------------

NCU = """==PROF== Connected to process 7
==PROF== Profiling "k": 0%....50%....100%
"ID","Kernel Name","Block Size","Grid Size","gpu__time_duration.sum","dram__bytes.sum.per_second","unknown"
"","","","","ns","byte/s",""
"0","k","(256, 1, 1)","(1,024, 1, 1)","12,345","1,500,000,000,000","7"
"""


def test_nsight_computes_figures_become_lines_with_units():
    lines = nvidia_tools.profile_lines(NCU).splitlines()
    assert lines == [
        "k grid (1,024, 1, 1) block (256, 1, 1)",
        "  time: 12.35 us",
        "  device memory traffic: 1.5 TB/s",
    ]
    assert "==ERROR== ERR_NVGPUCTRPERM" in nvidia_tools.profile_lines("==ERROR== ERR_NVGPUCTRPERM\n")


def test_only_the_candidates_kernels_are_profiled():
    options = nvidia_tools.profiler_options(["_Z1kPf", "plus+"])
    assert options[options.index("--kernel-name") + 1] == r"regex:^(_Z1kPf|plus\+)$"


def test_the_sanitizers_lines_are_kept_without_their_prefix():
    output = "correct all right\n========= COMPUTE-SANITIZER\n========= \n========= ERROR SUMMARY: 0 errors\n"
    assert nvidia_tools.sanitizer_lines(output) == "COMPUTE-SANITIZER\nERROR SUMMARY: 0 errors"


def test_a_tool_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("CUDA_HOME", "/nowhere")
    monkeypatch.setattr(nvidia_tools, "_in_toolkit", lambda _program: None)
    assert nvidia_tools.profiled(SOFTMAX, {"a.cu": "int x;"}) == "ncu is not installed on this machine."
