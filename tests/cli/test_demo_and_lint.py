"""``demo`` and ``lint`` on a family of their own, made in the test: one right and one wrong claim."""

from __future__ import annotations

import shutil

import pytest
from cli_candidates import LAUNCH, PRODUCT, candidate

YAML = """title: A small product
domain: dense linear algebra
targets: [general]
members:
  fp32: {{dtype: fp32}}
dimensions:
  m: rows
  n: columns
  k: depth
tensors:
  - {{name: a, role: in, dtype: "{{dtype}}", shape: [m, k]}}
  - {{name: b, role: in, dtype: "{{dtype}}", shape: [k, n]}}
  - {{name: c, role: out, dtype: "{{dtype}}", shape: [m, n]}}
workloads:
  - {{name: smoke, role: smoke, dimensions: {{m: 5, n: 6, k: 7}}}}
  - {{name: odd, role: check, dimensions: {{m: 61, n: 33, k: 20}}}}
  - {{name: big, role: bench, dimensions: {{m: 512, n: 512, k: 512}}, source: a test}}
tolerance:
  c: {{l2: {l2}, row_l2: {l2}, element: {l2}}}
lower_precision: {{c: tf32}}
candidates: [naive.cu]
mutants:
  - {{file: mutants/short.cu, verdict: {verdict}, reason: the last product is missing}}
provenance: made for a test
"""


@pytest.fixture
def family(tmp_path, monkeypatch):
    """``family(l2=…, verdict=…)`` writes kernel/small and puts it on HERCULES_TASKS."""
    from cudahercules.task.load import BUNDLED

    def make(l2: str = "1.0e-5", verdict: str = "incorrect") -> str:
        directory = tmp_path / "kernel" / "small"
        (directory / "mutants").mkdir(parents=True)
        (directory / "task.yaml").write_text(YAML.format(l2=l2, verdict=verdict))
        shutil.copy(BUNDLED / "kernel" / "gemm" / "family.py", directory / "family.py")
        (directory / "prompt.md").write_text("Multiply.\n")
        (directory / "naive.cu").write_text(candidate(PRODUCT, LAUNCH))
        (directory / "mutants" / "short.cu").write_text(
            candidate(PRODUCT.replace("p < k", "p < k - 1"), LAUNCH)
        )
        monkeypatch.setenv("HERCULES_TASKS", str(tmp_path))
        return "kernel/small/fp32@general"

    return make


def test_demo_grades_everything_and_says_what_to_try_next(hercules, family):
    ended = hercules("demo", family(), "--device", "cpu")
    assert ended.code == 0, ended.out
    for word in ("naive.cu", "mutants/short.cu", "every verdict is as expected", "Try next", "grade"):
        assert word in ended.out


def test_demo_fails_if_one_verdict_is_not_as_expected(hercules, family):
    ended = hercules("demo", family(verdict="crash"), "--device", "cpu")
    assert ended.code == 1 and "1 of the verdicts is not as expected" in ended.out and "WRONG" in ended.out


def test_demo_shows_the_member_that_each_family_declares_first():
    from cudahercules.judge.bundled import whole_demonstration
    from cudahercules.task.load import all_tasks

    shown = {case.task.family: case.task.id for case in whole_demonstration()}
    assert shown.keys() == {t.family for t in all_tasks()}
    assert shown["kernel/gemm"] == "kernel/gemm/fp32@general"
    assert shown["module/layernorm_fwd"] == "module/layernorm_fwd/fp32_1024@general"
    assert shown["module/attention_fwd"] == "module/attention_fwd/hdim64_fp16_full@general"


def test_demo_shows_two_families_of_each_class_and_hostile_candidates():
    from cudahercules.judge.bundled import demonstration

    cases = demonstration()
    families = {case.task.family: case.task.task_class.value for case in cases}
    assert sorted(families.values()) == ["kernel", "kernel", "module", "module"]
    assert {"honest", "mutant", "hostile"} == {case.sort for case in cases}
    kinds = {case.expected for case in cases if case.sort == "hostile"}
    assert {"crash", "timeout", "contract_error", "build_error", "incorrect"} <= kinds
    assert len(cases) < 80, "too many for two minutes on two cores"


def test_demo_takes_names_or_all(hercules):
    ended = hercules("demo", "kernel/gemm/fp32", "--all")
    assert ended.code == 2 and "name tasks, or say --all" in ended.err
    assert "four families" in " ".join(hercules("demo", "--help").out.split())


def test_lint_passes_a_sound_task(hercules, family):
    ended = hercules("lint", family(), "--device", "cpu", "--json")
    report = ended.json
    assert ended.code == 0, report
    outcomes = {row["subject"]: row["outcome"] for row in report["rows"]}
    assert (
        outcomes["naive.cu"] == outcomes["mutants/short.cu"] == outcomes["c: the reference, rounded"] == "ok"
    )
    assert outcomes["c: inputs in lower precision"] == outcomes["c: all zeros"] == "ok"


def test_lint_names_what_a_loose_tolerance_lets_through(hercules, family):
    ended = hercules("lint", family(l2="0.5"), "--device", "cpu", "--json")
    failed = {row["subject"] for row in ended.json["rows"] if row["outcome"] == "failed"}
    assert ended.code == 1
    assert {"c: inputs in lower precision", "c: half the accumulator's bits"} <= failed
    assert "c: all zeros" not in failed


def test_lint_names_a_tolerance_without_margin(hercules, family):
    ended = hercules("lint", family(l2="4.0e-8"), "--device", "cpu", "--json")
    failed = {row["subject"] for row in ended.json["rows"] if row["outcome"] == "failed"}
    assert ended.code == 1 and "c: the reference, rounded" in failed


def test_lint_prints_a_table(hercules, family):
    out = hercules("lint", family(), "--device", "cpu").out
    assert "2 % of rows not written" in out and " 0 failed" in out


def test_lint_goes_on_where_it_stopped(hercules, family, tmp_path):
    file, name = tmp_path / "lint.jsonl", family()
    first = hercules("lint", name, "--device", "cpu", "--resume", file, "--json")
    again = hercules("lint", name, "--device", "cpu", "--resume", file, "--json")
    assert first.code == again.code == 0 and again.json == first.json
    assert len(file.read_text().splitlines()) == 1
    anew = hercules("lint", name, "--device", "cpu", "--resume", file, "--again", "--json")
    assert anew.json["seed"] != first.json["seed"] and len(file.read_text().splitlines()) == 2


def test_a_lint_that_is_killed_loses_nothing(family, tmp_path):
    """kill -9 after the first of two tasks: the second call has its report, and makes the other."""
    import signal
    import subprocess
    import sys
    import time

    family()
    directory = tmp_path / "kernel" / "small"
    yaml = (
        (directory / "task.yaml")
        .read_text()
        .replace("fp32: {dtype: fp32}", "fp32: {dtype: fp32}\n  more: {dtype: fp32}")
    )
    (directory / "task.yaml").write_text(yaml)
    file = tmp_path / "lint.jsonl"
    command = [
        sys.executable,
        "-m",
        "cudahercules",
        "lint",
        "kernel/small",
        "--device",
        "cpu",
        "--resume",
        file,
    ]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    end = time.monotonic() + 120
    while not (file.is_file() and file.read_text().endswith("\n")):
        assert time.monotonic() < end and first.poll() is None
        time.sleep(0.05)
    first.send_signal(signal.SIGKILL)
    first.wait()
    kept = file.read_text()
    assert kept.count("\n") == 1
    assert subprocess.run(command, stdout=subprocess.DEVNULL, timeout=200, check=False).returncode == 0
    assert file.read_text().startswith(kept) and file.read_text().count("\n") == 2


def test_lint_says_what_its_budget_left(hercules, monkeypatch):
    import time

    from cudahercules.cli import linting

    clock = iter([0.0, *[100.0] * 9])
    monkeypatch.setattr(linting, "time", type("Clock", (), {"monotonic": lambda: next(clock)}))
    ended = hercules("lint", "kernel/gemm", "--device", "cpu", "--budget", "50")
    assert time.monotonic() > 0 and ended.code == 10 and ended.out == ""
    assert "kernel/gemm/fp32@general, and" in ended.err and "more left of" in ended.err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--members", "some"), "give all or first"),
        (("--shard", "5/4"), "as in 2/8"),
        (("--no-answers",), "are for a GPU"),
        (("--no-candidates",), "are for a GPU"),
    ],
)
def test_lint_refuses_options_that_make_no_sense(hercules, options, says):
    ended = hercules("lint", "kernel/gemm", "--device", "cpu", *options)
    assert ended.code == 2 and says in ended.err and "Traceback" not in ended.err


@pytest.mark.slow
def test_make_demo_on_the_bundled_families(hercules):
    assert hercules("demo", "--device", "cpu").code == 0
