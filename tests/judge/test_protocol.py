"""Facts that every verdict states, seeds, and the evidence directory."""

from __future__ import annotations

import json
import time

import pytest

from cudahercules.build.candidate import from_text, load_candidate
from cudahercules.emulator.outcome import Fault, UnsupportedInstruction
from cudahercules.errors import MachineError, UsageError
from cudahercules.judge import evidence as evidence_module
from cudahercules.judge import grade as grade_module
from cudahercules.judge.evidence import Evidence, check_directory, verify, write
from cudahercules.judge.grade import grade_many, new_case
from cudahercules.judge.protocol import Case, checked_seed, new_seed, sample_seed
from cudahercules.judge.verdict import VERDICT, NotTimed, WrongOutput, exit_code
from cudahercules.record.recorder import sandbox_level
from cudahercules.task.load import load_task

CANDIDATE = from_text("mine.cu", {"mine.cu": "// nothing\n"})


@pytest.fixture(scope="module")
def task():
    return load_task("kernel/gemm/fp32@general")


@pytest.fixture
def case(task):
    start = time.monotonic()
    return Case(
        task=task,
        candidate=CANDIDATE.name,
        candidate_sha256=CANDIDATE.sha256,
        seed="5eed",
        clock=lambda: time.monotonic() - start,
        architecture="80",
    )


def every_kind(case: Case):
    wrong = WrongOutput(output="c", reason="nan", message="c: 1 of 4 elements is NaN", wrong=1, total=4)
    instruction = UnsupportedInstruction(instruction="wgmma.fence", kernel="k")
    return [
        case.correct((), (), NotTimed(reason="cpu")),
        case.incorrect("smoke", wrong, ()),
        case.build_error("no", ()),
        case.contract_error("no", "smoke"),
        case.crash("smoke", Fault(what="trap", message="trap", kernel="k")),
        case.timeout("run", "slow", 1.0, "smoke"),
        case.cheating("it did", ("a file",)),
        case.unsupported((instruction, instruction)),
        case.invalid_measurement("hot"),
        case.infrastructure_error("ours"),
    ]


def test_every_kind_survives_json_and_has_its_exit_code(case):
    codes = {}
    for verdict in every_kind(case):
        assert VERDICT.validate_json(verdict.model_dump_json()) == verdict
        assert verdict.seed == "5eed" and verdict.task == case.task.id
        codes[verdict.kind] = exit_code(verdict)
    assert codes == {
        "correct": 0,
        "incorrect": 1,
        "build_error": 1,
        "contract_error": 1,
        "crash": 1,
        "timeout": 1,
        "cheating": 1,
        "unsupported_on_cpu": 3,
        "invalid_measurement": 3,
        "infrastructure_error": 3,
    }


def test_a_verdict_without_speed_cannot_be_given_one(case):
    data = json.loads(case.build_error("no", ()).model_dump_json())
    data["timing"] = {"kind": "not_timed", "reason": "x"}
    with pytest.raises(ValueError, match="timing"):
        VERDICT.validate_python(data)


def test_seeds_are_secret_distinct_and_repeatable():
    assert new_seed() != new_seed()
    seeds = {sample_seed(s, w, n) for s in ("a", "b") for w in ("smoke", "odd") for n in range(3)}
    assert len(seeds) == 12 and all(0 <= s < 2**64 for s in seeds)
    assert sample_seed("a", "smoke") == sample_seed("a", "smoke", 0)
    assert checked_seed("0123") == "0123"
    for bad in ("", "x" * 65, "a\nb", "é"):
        with pytest.raises(UsageError, match="--seed"):
            checked_seed(bad)


def test_evidence_is_complete_and_verifies(case, task, tmp_path):
    verdict = case.build_error("no", ())
    write(Evidence(task, CANDIDATE), verdict, tmp_path / "deep" / "e")
    directory = tmp_path / "deep" / "e"
    names = {p.relative_to(directory).as_posix() for p in directory.rglob("*") if p.is_file()}
    expected = {"verdict.json", "solve.h", "prompt.md", "fingerprint.json", "outputs.json", "manifest.json"}
    assert names == expected | {"candidate/mine.cu"}
    assert VERDICT.validate_json((directory / "verdict.json").read_text()) == verdict
    assert verify(directory) == ()
    assert [p.name for p in directory.parent.iterdir()] == ["e"]  # no half-written directory is left


def test_evidence_replaces_older_evidence_and_nothing_else(case, task, tmp_path):
    directory = tmp_path / "e"
    directory.mkdir()
    write(Evidence(task, CANDIDATE), case.build_error("first", ()), directory)
    write(Evidence(task, CANDIDATE), case.build_error("second", ()), directory)
    assert "second" in (directory / "verdict.json").read_text()
    other = tmp_path / "thesis"
    other.mkdir()
    (other / "chapter1.tex").write_text("years of work")
    with pytest.raises(UsageError, match="left alone"):
        write(Evidence(task, CANDIDATE), case.build_error("no", ()), other)
    assert (other / "chapter1.tex").read_text() == "years of work"
    with pytest.raises(UsageError, match="this is a file"):
        check_directory(other / "chapter1.tex")


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda d: (d / "solve.h").write_text("x"), "solve.h was changed"),
        (lambda d: (d / "prompt.md").unlink(), "prompt.md is missing"),
        (lambda d: (d / "extra").write_text("x"), "extra is not in the manifest"),
        (
            lambda d: ((d / "solve.h").unlink(), (d / "solve.h").symlink_to("prompt.md")),
            "solve.h was changed",
        ),
    ],
)
def test_damage_is_named(case, task, tmp_path, damage, problem):
    write(Evidence(task, CANDIDATE), case.build_error("no", ()), tmp_path / "e")
    damage(tmp_path / "e")
    assert verify(tmp_path / "e") == (problem,)


def test_sources_that_are_not_the_verdicts_are_found_behind_right_sums(case, task, tmp_path):
    other = from_text("mine.cu", {"mine.cu": "// something else\n"})
    write(Evidence(task, other), case.build_error("no", ()), tmp_path / "e")
    assert verify(tmp_path / "e") == ("candidate/ does not hold the sources that the verdict names",)


def test_no_evidence_is_a_usage_error(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UsageError):
            verify(path)


def test_a_full_disk_is_the_machines_fault_and_leaves_nothing(case, task, tmp_path, monkeypatch):
    def full(path, text):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(evidence_module, "_text", full)
    with pytest.raises(MachineError, match="no space left"):
        write(Evidence(task, CANDIDATE), case.build_error("no", ()), tmp_path / "e")
    assert list(tmp_path.iterdir()) == []


def test_one_machine_error_of_several_candidates_is_its_verdict(task, monkeypatch, tmp_path):
    names = ["a", "b", "c"]
    files = [tmp_path / f"{name}.cu" for name in names]
    for file in files:
        file.write_text(f"// {file.name}")
    failing = {"b.cu"}

    def fake(task, path, *_, **__):
        if path.name in failing:
            raise MachineError("no memory")
        return new_case(task, load_candidate(path), None, None).build_error("wrong", ())

    monkeypatch.setattr(grade_module, "grade", fake)
    verdicts = list(grade_many(task, files, "cpu"))
    assert [v.kind for v in verdicts] == ["build_error", "infrastructure_error", "build_error"]
    assert verdicts[1].message == "no memory" and verdicts[1].candidate == "b.cu"
    assert verdicts[1].fingerprint.sandbox == sandbox_level()
    failing.add("c.cu")
    with pytest.raises(MachineError):
        list(grade_many(task, files, "cpu"))
    with pytest.raises(MachineError):
        list(grade_many(task, files[1:2], "cpu"))


def test_mangled_names_are_not_shown(case):
    refused = case.contract_error("launch of _Z2mmPKfS0_Pfiii: grid x is 0")
    assert refused.message == "launch of mm: grid x is 0"
    unknown = UnsupportedInstruction(instruction="brkpt", kernel="_Z2mmPKfS0_Pfiii")
    assert "`brkpt` in mm:" in case.unsupported((unknown,)).message
