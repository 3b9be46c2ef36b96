"""Feedback: what guides and what scores, the words for it, the best so far, what is kept of each round."""

from __future__ import annotations

import pytest

pytest.importorskip("inspect_ai")

from inspect_ai.log import list_eval_logs, read_eval_log
from made_verdicts import SOFTMAX, broken, timed, wrong

from cudahercules.evaluate import refine as refining_module
from cudahercules.evaluate import scorer as scorer_module
from cudahercules.evaluate.diagnosis import diagnosis, diagnosis_if_any
from cudahercules.evaluate.feedback import feedback, round_message
from cudahercules.evaluate.holdout import guidance, guidance_seed, held_back
from cudahercules.evaluate.run import Call, evaluate
from cudahercules.evaluate.trajectory import Trajectory, fingerprint_of
from cudahercules.task.load import all_tasks, load_task

SHOWN = ["bert_attention", "long_attention", "llama3_vocabulary"]
HELD = ["vit_attention", "gpt2_vocabulary"]


def played(*rounds) -> Trajectory:
    """A trajectory of (name of the code, verdict) pairs."""
    trajectory = Trajectory()
    for code, verdict in rounds:
        trajectory = trajectory.extended({"solution.cu": code} if code else {}, "Taken: block 1.", verdict)
    return trajectory


# --- what guides and what scores -------------------------------------------------------------------


@pytest.mark.parametrize("task", [t for t in all_tasks() if t.target == "general"][::6], ids=lambda t: t.id)
def test_guidance_is_a_part_of_the_task_and_the_rest_is_held_back(task):
    shown = guidance(task)
    names = {w.name for w in shown.workloads}
    assert names | set(held_back(task)) == {w.name for w in task.workloads}
    assert not names & set(held_back(task))
    for role in ("smoke", "check", "bench"):
        assert any(w.role == role for w in shown.workloads) == any(w.role == role for w in task.workloads)
    assert any(w.role == "check" and w.name in held_back(task) for w in task.workloads)
    assert all(w.name not in held_back(task) for w in task.workloads if w.role == "smoke")


def test_rounds_of_a_sample_share_a_seed_and_samples_do_not():
    assert guidance_seed(SOFTMAX, 1) == guidance_seed(SOFTMAX, 1) != guidance_seed(SOFTMAX, 2)


# --- words -----------------------------------------------------------------------------------------


def test_feedback_on_a_right_answer_has_speeds_intervals_ceiling_resources_and_machine_code():
    text = feedback(
        guidance(SOFTMAX), timed({"bert_attention": 0.5, "long_attention": 0.9}), "Taken: block 1."
    )
    assert "| bert_attention | 200.0 | 100.0 | 0.500 | 0.480 to 0.520 | 40% |" in text
    assert "3 launches, 40 registers a thread, 1024 bytes of static shared memory, spills 12 bytes" in text
    assert "In bert_attention the expert has what this has not: asynchronous copies" in text


def test_feedback_on_other_verdicts_says_where_and_at_which_size():
    text = feedback(guidance(SOFTMAX), wrong("odd"), "Taken: block 1.")
    assert (
        "**incorrect**" in text and "In workload odd" in text and "Sizes of odd: rows=37 columns=197." in text
    )
    assert "solution.cu:1: error: no" in feedback(SOFTMAX, broken(), "Taken: block 1.")
    assert feedback(SOFTMAX, None, "No code: the answer is empty.").startswith(
        "No code: the answer is empty."
    )


def test_feedback_never_shows_a_seed():
    secret = timed({"bert_attention": 0.5}).model_copy(update={"seed": "SECRET"})
    assert "SECRET" not in feedback(SOFTMAX, secret, "Taken: block 1.")


def test_the_next_rounds_message_keeps_the_best_and_names_a_step_back():
    trajectory = played(("fast", timed({"bert_attention": 0.9})), ("slow", timed({"bert_attention": 0.5})))
    text = round_message(trajectory, "found", 3, 10)
    assert "slower than what you had" in text and "The best so far is round 1 (correct, 0.900 times" in text
    assert "```cuda\nfast\n```" in text and "## Round 3 of 10" in text
    again = played(("a", wrong()), ("b", broken()), ("a", wrong()))
    assert "the code of round 1 again" in round_message(again, "found", 4, 10)
    assert "Make it right first." in round_message(again, "found", 4, 10)


# --- the best so far -------------------------------------------------------------------------------


def test_the_best_round_is_the_furthest_then_the_fastest_then_the_earliest():
    assert played(("", None)).best is None
    assert played(("a", broken()), ("b", wrong()), ("c", broken())).best.number == 2
    assert played(("a", wrong(passed=2)), ("b", wrong(passed=5))).best.number == 2
    assert (
        played(("a", timed({"w": 0.8})), ("b", timed({"w": 0.9})), ("c", timed({"w": 0.7}))).best.number == 2
    )
    assert played(("a", timed({"w": 0.8})), ("b", timed({"w": 0.8}))).best.number == 1
    assert played(("a", timed({"w": 0.8})), ("b", wrong()), ("", None)).best.number == 1


def test_regressions_drift_repeats_and_cycles_are_recorded():
    trajectory = played(
        ("a", timed({"w": 0.80})),
        ("b", timed({"w": 0.79})),  # within 5 % of the best: neither a regression nor drift
        ("c", timed({"w": 0.70})),  # drift
        ("c // says more", timed({"w": 0.70})),  # the same code again, one round later: no cycle
        ("d", wrong()),  # a regression
        ("a", timed({"w": 0.80})),  # back to round 1: a cycle
        ("", None),  # a regression
    )
    rounds = trajectory.rounds
    assert [r.regression for r in rounds] == [False, False, True, True, True, False, True]
    assert [r.drift for r in rounds] == [False, False, True, True, False, False, False]
    assert [r.repeats for r in rounds] == [None, None, None, 3, None, 1, None]
    assert [r.cycle for r in rounds] == [False, False, False, False, False, True, False]
    fields = trajectory.record_fields()
    assert fields == {
        "rounds": 7,
        "best_round": 1,
        "guided_correct": True,
        "regressions": 4,
        "cycles": 1,
        "drifts": 2,
    }


def test_comments_and_white_space_do_not_make_another_program():
    assert fingerprint_of({"a.cu": "int x; // one\n"}) == fingerprint_of({"a.cu": "int  x;\n/* two */"})
    assert fingerprint_of({"a.cu": "int x;"}) != fingerprint_of({"b.cu": "int x;"})


def test_the_gap_compares_the_same_workloads_and_those_held_back():
    trajectory = played(("a", timed({"s": 0.8, "t": 0.8})))
    gap = trajectory.gap(timed({"s": 0.8, "t": 0.2, "h": 0.3}))
    assert gap["guided_speed"] == pytest.approx(0.8)
    assert gap["final_speed_shown"] == pytest.approx(0.4) and gap["final_speed_held_back"] == pytest.approx(
        0.3
    )
    lost = trajectory.gap(wrong())
    assert lost["guided_outcome"] == "correct" and lost["final_outcome"] == "incorrect"
    assert lost["final_speed_shown"] is None


# --- the setting -----------------------------------------------------------------------------------


@pytest.fixture
def judged(monkeypatch):
    """A judge that times: it says what it is told to, and notes what it is asked."""
    asked: list[tuple[bool, frozenset[str], str | None]] = []

    def install(guided, final):
        guidance_verdicts = iter(guided)

        async def judge(task, files, device, *, seed=None, limit_s=60.0):
            names = frozenset(w.name for w in task.workloads)
            is_final = names == frozenset(w.name for w in SOFTMAX.workloads)
            asked.append((is_final, names, seed))
            return final if is_final else next(guidance_verdicts)

        monkeypatch.setattr(refining_module, "judge", judge)
        monkeypatch.setattr(refining_module, "diagnosis_if_any", lambda *_: "DIAGNOSIS: a race")
        monkeypatch.setattr(scorer_module, "judge", judge)
        return asked

    return install


def refine(tmp_path, **options):
    call = Call(
        model="replay/demo",
        setting="refine",
        options={"tasks": "softmax/fp32", "device": "cpu", "rounds": 7, "until": "rounds", **options},
    )
    outcome = evaluate(call, tmp_path / "logs")
    return outcome, read_eval_log(list_eval_logs(str(outcome.directory))[0].name).samples[0]


def test_the_best_round_is_judged_with_fresh_seeds_on_all_workloads(tmp_path, judged):
    guided = [
        broken(),
        wrong(),
        timed(dict.fromkeys(SHOWN, 0.4)),
        wrong(),
        timed(dict.fromkeys(SHOWN, 0.9)),
        timed(dict.fromkeys(SHOWN, 0.4)),
    ]
    asked = judged(guided, timed({**dict.fromkeys(SHOWN, 0.88), **dict.fromkeys(HELD, 0.5)}))
    outcome, sample = refine(tmp_path)
    score = sample.scores["judge"]
    trajectory = score.metadata["trajectory"]
    assert [r["outcome"] for r in trajectory["rounds"]] == [
        "build_error",
        "incorrect",
        "correct",
        "incorrect",
        "correct",
        "correct",
        "no_code",
    ]
    assert score.metadata["files"] == trajectory["rounds"][4]["files"]
    assert "round 5 of 7" in score.explanation
    assert trajectory["gap"]["final_speed_shown"] == pytest.approx(0.88)
    assert trajectory["gap"]["final_speed_held_back"] == pytest.approx(0.5)
    seeds = {seed for final, _, seed in asked if not final}
    assert len(seeds) == 1 and None not in seeds
    assert [(final, seed) for final, _, seed in asked if final] == [(True, None)]
    record = outcome.records[0]
    assert (record.rounds, record.best_round, record.regressions, record.drifts, record.cycles) == (
        7,
        5,
        3,
        1,
        2,
    )


def test_right_under_guidance_and_wrong_in_the_end_is_reported(tmp_path, judged):
    judged([broken(), wrong(), timed(dict.fromkeys(SHOWN, 1.0))], wrong("one_row"))
    outcome, sample = refine(tmp_path, until="correct")
    assert outcome.records[0].outcome == "incorrect" and outcome.records[0].guided_correct
    assert sample.scores["judge"].metadata["trajectory"]["gap"]["guided_outcome"] == "correct"
    from cudahercules.score.summary import summaries
    from cudahercules.score.table import render

    assert "not right in the final verdict 1" in render(summaries(outcome.records), "md")


def test_on_the_cpu_a_right_answer_ends_the_rounds_unless_all_are_wanted(tmp_path, judged):
    judged([broken(), wrong(), timed({"bert_attention": 1.0})], timed({"bert_attention": 1.0}))
    outcome, _ = refine(tmp_path, until="auto")
    assert outcome.records[0].rounds == 3


def test_conversations_do_not_grow_with_the_rounds(tmp_path, judged):
    judged([broken(), *[wrong()] * 5], wrong())
    _, sample = refine(tmp_path)
    calls = [e for e in sample.events if e.event == "model"]
    assert [len(c.input) for c in calls] == [1, 3, 3, 3, 3, 3, 3]


def test_a_wrong_answer_is_told_what_the_checking_emulator_found(tmp_path, judged):
    judged([broken(), *[wrong()] * 5], wrong())
    outcome, _ = refine(tmp_path)
    name = list_eval_logs(str(outcome.directory))[0].name
    (sample,) = read_eval_log(name, resolve_attachments=True).samples
    asked = [e.input[-1].text for e in sample.events if e.event == "model"]
    assert ["DIAGNOSIS: a race" in text for text in asked] == [False, False, *[True] * 5]


def test_the_diagnosis_names_a_race_and_is_silent_where_there_is_none():
    gemm = load_task("kernel/gemm/fp32@general")
    sound = (gemm.directory / "tiled.cu").read_text()
    racing = "".join(sound.rsplit("        __syncthreads();\n", 1))  # the one at the end of the loop
    assert racing != sound
    text = diagnosis_if_any(gemm, {"solution.cu": racing}, None, "example", 30.0)
    assert "* race: byte" in text and "Likely cause: A __syncthreads() is missing" in text
    assert diagnosis_if_any(gemm, {"solution.cu": sound}, None, "example", 30.0) == ""
    assert "nothing found; the answer is right." in diagnosis(gemm, {"solution.cu": sound}, None, "s", 30.0)
    assert diagnosis_if_any(gemm, {"solution.cu": "int x = ;"}, None, "example", 30.0) == ""
