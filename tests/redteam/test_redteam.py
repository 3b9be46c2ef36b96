"""Every exploit and every control gets the verdict that its sheet says, for the reason that it says."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from cudahercules.errors import MachineError, UsageError
from cudahercules.redteam import run as running
from cudahercules.redteam.corpus import Expected, load_corpus
from cudahercules.redteam.run import Row, difference, run

CASES = {c.name: c for c in load_corpus()}
QUICK = (
    *(name for name, case in CASES.items() if case.expected["cpu"].verdict == "refused"),
    *("files/includes_proc_environ", "files/false_line_markers", "files/device_heap_behind_inline_ptx"),
    *("plans/honest_forgery", "plans/forged_answers", "plans/work_in_prepare", "plans/copies_over_inputs"),
    *("host/ptrace_the_judge", "host/forged_verdict_on_descriptors", "host/leaves_a_child_behind"),
    *("host/hoards_memory_in_files", "files/blames_the_compiler", "controls/kernel_in_two_files"),
    *("work/tf32_operands", "work/fast_path_for_gaussian_data", "work/work_in_prepare"),
    *("device/answer_in_globals", "device/beside_its_variables", "answers/injects_lines_into_messages"),
    *("controls/packs_in_prepare", "controls/stream_k"),
)
"""At least one of each class, and those that found a hole once."""


def wrong(rows):
    return {row.case: f"{row.problem}: {row.message}" for row in rows if not row.as_expected}


def test_the_quick_ones():
    rows = list(run([CASES[name] for name in QUICK], "cpu"))
    assert len(rows) == len(QUICK) and not wrong(rows)


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_all_of_them():
    rows = list(run(list(CASES.values()), "cpu"))
    assert {row.case for row in rows} == set(CASES) and not wrong(rows)


@pytest.mark.gpu
@pytest.mark.timeout(1200)
def test_all_of_them_on_a_gpu():
    rows = list(run(list(CASES.values()), "gpu"))
    assert {row.case for row in rows} == set(CASES) and not wrong(rows)


@pytest.mark.parametrize(
    ("expected", "got", "message", "workload", "speed", "problem"),
    [
        ({"verdict": "crash"}, "crash", "", "", "", ""),
        ({"verdict": "crash or timeout"}, "timeout", "", "", "", ""),
        ({"verdict": "incorrect"}, "correct", "", "", "", "correct instead of incorrect"),
        ({"verdict": "incorrect", "says": "never"}, "incorrect", "3 wrong", "", "", "another reason"),
        ({"verdict": "incorrect", "says": "wrong"}, "incorrect", "3 wrong", "", "", ""),
        ({"verdict": "incorrect", "workload": "deep"}, "incorrect", "", "smoke", "", "in workload smoke"),
        ({"verdict": "correct", "speed": "not_faster"}, "correct", "", "", "faster", "gained time"),
        ({"verdict": "correct", "speed": "not_faster"}, "correct", "", "", "slower", ""),
        ({"verdict": "correct", "speed": "on_par"}, "correct", "", "", "slower", "slower instead of on_par"),
        ({"verdict": "correct", "speed": "on_par"}, "correct", "", "", "", ""),
    ],
)
def test_what_counts_as_a_difference(expected, got, message, workload, speed, problem):
    found = difference(Expected(**expected), got, message, workload, speed)
    assert (problem in found) if problem else not found


@pytest.fixture
def pretended(monkeypatch):
    """Grading replaced: cases named here end in a machine error, the others as they must."""
    tried: list[str] = []
    broken: set[str] = set()

    def instead(case, device="cpu"):
        tried.append(case.name)
        failed = case.name in broken
        return Row(
            case=case.name,
            sha256=case.sha256,
            harness=running.__version__,
            device=device,
            expected=case.expected[device],
            got="machine_error" if failed else case.expected[device].verdict,
            message="no compiler" if failed else "",
            problem="machine_error" if failed else "",
        )

    monkeypatch.setattr(running, "try_case", instead)
    return tried, broken


def test_a_run_goes_on_where_it_was_ended(pretended, tmp_path):
    tried, broken = pretended
    file, cases = tmp_path / "rows.jsonl", list(CASES.values())[:6]
    broken.add(cases[2].name)
    assert len(list(run(cases, "cpu", workers=1, resume=file))) == 6
    text = file.read_text()
    file.write_text(text + text.splitlines()[0][:40])  # killed in the middle of a line
    broken.clear()
    tried.clear()
    rows = list(run(cases, "cpu", workers=1, resume=file))
    assert tried == [cases[2].name] and len(rows) == 6 and not wrong(rows)
    tried.clear()
    list(run(cases, "cpu", workers=1, resume=file))
    assert not tried
    with pytest.raises(UsageError, match="line 1 is no row"):
        file.write_text("{}\n")
        list(run(cases, "cpu", resume=file))


def test_several_machine_errors_in_a_row_end_it(pretended):
    _, broken = pretended
    cases = list(CASES.values())[:8]
    broken.update(c.name for c in cases)
    with pytest.raises(MachineError, match="no compiler"):
        list(run(cases, "cpu", workers=1))
    broken.clear()
    broken.add(cases[0].name)
    assert len(wrong(run(cases, "cpu", workers=1))) == 1


def hercules(*arguments):
    command = [sys.executable, "-m", "cudahercules", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_the_command():
    done = hercules("redteam", "--device", "cpu", "--only", "files/link_to_a_secret", "--json")
    row = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert (row["case"], row["got"], row["problem"]) == ("files/link_to_a_secret", "refused", "")
    shown = hercules("redteam", "--device", "cpu", "--only", "link_to_a_secret")
    assert shown.returncode == 0 and "every one is as expected" in shown.stdout
    unknown = hercules("redteam", "--device", "cpu", "--only", "nonsense")
    assert unknown.returncode == 2 and "no case has this name" in unknown.stderr


def test_a_difference_is_said_and_fails(monkeypatch, pretended, capsys):
    from cudahercules.cli import main
    from cudahercules.process import allow_children

    _, broken = pretended
    broken.add("files/named_pipe")
    assert main(["redteam", "--device", "cpu", "--only", "files/n*"]) == 1
    allow_children()
    assert "files/named_pipe: machine_error" in capsys.readouterr().out


def test_control_characters_do_not_reach_the_terminal():
    done = hercules("redteam", "--device", "cpu", "--only", "answers/speaks_to_the_terminal")
    assert done.returncode == 0 and "build_error   build_error" in done.stdout
    assert not any(c < " " and c != "\n" for c in done.stdout)
