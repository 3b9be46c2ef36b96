"""The program as a whole: its commands, its output forms, interruption, concurrency, damage."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest
from cli_candidates import LAUNCH, PRODUCT, TASK, candidate

from cudahercules.cache import cache_root


@pytest.fixture
def good(tmp_path) -> Path:
    file = tmp_path / "good.cu"
    file.write_text(candidate(PRODUCT, LAUNCH))
    return file


def program(*arguments: object, **options) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "cudahercules", *map(str, arguments)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


# --- listing -------------------------------------------------------------------------------------


def test_help_and_version(hercules):
    ended = hercules("--help")
    assert ended.code == 0
    for command in (
        "grade",
        "plan",
        "verify",
        "tasks",
        "show",
        "lint",
        "demo",
        "doctor",
        "schema",
        "version",
    ):
        assert command in ended.out
    assert hercules("version").out.startswith("cudahercules ")
    assert hercules("--version").out == hercules("version").out


@pytest.mark.parametrize("json", [True, False])
def test_a_reader_that_goes_away_changes_no_exit_code(good, tmp_path, json):
    """``hercules grade … | true``: the verdict's code; what comes after is not graded."""
    wrong = tmp_path / "wrong.cu"
    wrong.write_text(candidate("", LAUNCH))
    for files, code in (([good], 0), ([good, wrong], 0), ([wrong, good], 1)):
        options = ["--device", "cpu", "--smoke", *(["--json"] if json else [])]
        child = program("grade", TASK, *files, *options)
        child.stdout.close()
        assert child.wait(timeout=60) == code
        assert child.stderr.read() == ""


@pytest.mark.parametrize("wait_s", [0.08, 0.11, 0.14, 0.17, 0.2, 0.25])
def test_an_interruption_of_imports_is_quiet(good, wait_s):
    code = "import os, signal, sys, threading\nfrom cudahercules.cli import main\n"
    code += f"threading.Timer({wait_s}, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
    code += f"sys.exit(main(['grade', {TASK!r}, {str(good)!r}, '--device', 'cpu', '--limit', '0.1']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("hercules: interrupted")


def test_an_interruption_before_a_command_begins_is_said(monkeypatch, hercules):
    import typer

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(typer.core.TyperGroup, "invoke", interrupted)
    ended = hercules("tasks")
    assert (ended.code, ended.err) == (130, "hercules: interrupted\n")


def test_tasks_and_their_filters(hercules):
    rows = hercules("tasks", "--json").json
    assert any(row["id"] == TASK for row in rows)
    filtered = hercules(
        "tasks", "--class", "kernel", "--family", "gemm", "--target", "general", "--json"
    ).json
    assert TASK in [row["id"] for row in filtered] and len(filtered) < len(rows)
    assert all("gemm" in row["family"] and row["target"] == "general" for row in filtered)
    assert TASK in hercules("tasks", "--domain", "ALGEBRA").out


def test_show_prints_what_a_model_reads(hercules):
    shown = hercules("show", TASK).out
    header = hercules("show", TASK, "--header").out
    assert 'extern "C" void solve' in header and header.strip() in shown
    both = hercules("show", TASK, "--json").json
    assert both["prompt"].strip() == shown.strip() and both["solve_h"].strip() == header.strip()


def test_help_imports_nothing_heavy():
    code = "import sys; from cudahercules.cli import main; main(['--help']); print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = done.stdout.rsplit("[", 1)[1]
    assert not any(f"'{name}'" in modules for name in ("numpy", "pydantic", "torch", "yaml", "rich"))


def test_grading_imports_neither_torch_nor_typing_extras(good):
    code = f"""import sys
from cudahercules import grade
verdict = grade({TASK!r}, {str(good)!r}, "cpu")
assert verdict.kind == "correct", verdict
print(sorted(sys.modules))"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "'torch'" not in done.stdout and "'scipy'" not in done.stdout and "'typer'" not in done.stdout


# --- grading -------------------------------------------------------------------------------------


def test_json_fits_the_schema_and_python_returns_the_same(hercules, good):
    schema = hercules("schema").json
    ended = hercules("grade", TASK, good, "--device", "cpu", "--json", "--seed", "again")
    jsonschema.validate(ended.json, schema)
    from cudahercules import grade, load_task

    verdict = grade(load_task(TASK), good, "cpu", seed="again")
    volatile = {"seconds", "checks"}
    assert verdict.model_dump(exclude=volatile) == ended.verdict.model_dump(exclude=volatile)
    for mine, theirs in zip(verdict.checks, ended.verdict.checks, strict=True):
        assert mine.model_dump(exclude={"seconds"}) == theirs.model_dump(exclude={"seconds"})


def test_several_candidates_give_a_line_each_and_the_worst_code(hercules, good, tmp_path):
    (tmp_path / "bad.cu").write_text(candidate("c[i] = oops;", LAUNCH))
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "part.cu").write_text(good.read_text())
    files = [good, tmp_path / "bad.cu", tmp_path / "two"]
    ended = hercules(
        "grade", TASK, *files, "--device", "cpu", "--smoke", "--json", "--evidence", tmp_path / "e"
    )
    lines = [json.loads(line) for line in ended.out.splitlines()]
    assert [(v["candidate"], v["kind"]) for v in lines] == [
        ("good.cu", "correct"),
        ("bad.cu", "build_error"),
        ("two", "correct"),
    ]
    assert ended.code == 1
    for directory in (tmp_path / "e").iterdir():
        assert hercules("verify", directory).code == 0


def test_resume_grades_only_what_is_not_in_the_file(hercules, good, tmp_path):
    (tmp_path / "bad.cu").write_text(candidate("c[i] = oops;", LAUNCH))
    arguments = ("grade", TASK, "--device", "cpu", "--json", "--resume", tmp_path / "done.jsonl")
    first = hercules(*arguments, good)
    assert (tmp_path / "done.jsonl").read_text() == first.out
    both = hercules(*arguments, good, tmp_path / "bad.cu")
    lines = both.out.splitlines()
    assert lines[0] + "\n" == first.out  # the same seed and seconds: it was not graded again
    assert json.loads(lines[1])["kind"] == "build_error" and both.code == 1
    assert (tmp_path / "done.jsonl").read_text() == both.out
    wrong = hercules(*arguments, good, "--smoke")
    assert wrong.code == 2 and "--smoke" in wrong.err


def test_the_verdict_for_a_person(hercules, good):
    ended = hercules("grade", TASK, good, "--device", "cpu", "--smoke")
    assert ended.code == 0 and ended.err == ""
    for word in ("good.cu  correct  not_timed", "Not timed", "smoke", "m=48 n=40 k=64", "multiply", "seed "):
        assert word in ended.out, ended.out


def test_evidence_holds_what_ran(hercules, good, tmp_path):
    directory = tmp_path / "evidence"
    ended = hercules("grade", TASK, good, "--device", "cpu", "--smoke", "--json", "--evidence", directory)
    names = {p.relative_to(directory).as_posix() for p in directory.rglob("*") if p.is_file()}
    assert {"candidate/good.cu", "plans/smoke.json", "solve.h", "verdict.json"} <= names
    assert any(n.startswith("device/") and n.endswith(".cubin") for n in names)
    assert any(n.startswith("device/") and n.endswith(".ptx") for n in names)
    assert json.loads((directory / "verdict.json").read_text()) == ended.json
    assert hercules("verify", directory).code == 0
    (directory / "plans" / "smoke.json").write_text("{}")
    damaged = hercules("verify", directory)
    assert damaged.code == 1 and "plans/smoke.json was changed" in damaged.out


def test_the_plan_can_be_read_and_hashed(hercules, good):
    listing = hercules("plan", TASK, good)
    assert listing.code == 0 and "multiply" in listing.out
    first, second = (hercules("plan", TASK, good, "--json").out for _ in range(2))
    assert first == second and json.loads(first)["workload"] == "smoke"


def test_no_plan_is_explained(hercules, tmp_path):
    (tmp_path / "bad.cu").write_text(candidate("c[i] = oops;", LAUNCH))
    ended = hercules("plan", TASK, tmp_path / "bad.cu")
    assert ended.code == 1 and "bad.cu:5" in ended.err and "oops" in ended.err


def test_doctor(hercules):
    ended = hercules("doctor", "--json")
    assert ended.code in (0, 3) and isinstance(ended.json, dict)
    assert "g++" in hercules("doctor").out


# --- trouble in the middle -----------------------------------------------------------------------


def _descendants(pid: int) -> set[int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rsplit(")", 1)[1].split()
        except OSError:  # it has just ended
            continue
        parents[int(entry.parent.name)] = int(fields[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def _alive(pids: set[int]) -> set[int]:
    alive = set()
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if state != "Z":
            alive.add(pid)
    return alive


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interruption_leaves_no_process_behind(tmp_path, number):
    file = tmp_path / "endless.cu"
    file.write_text(candidate("for (volatile int x = 0;; ++x) {}", LAUNCH))
    child = program("grade", TASK, file, "--device", "cpu", "--smoke")
    # The endless kernel is the only thing that burns this much time in one process.
    deadline, busy, seen = time.monotonic() + 60, False, set()
    while time.monotonic() < deadline and not busy:
        time.sleep(0.2)
        seen |= _descendants(child.pid)
        busy = any(_cpu_seconds(pid) > 1.5 for pid in _descendants(child.pid))
    assert busy and child.poll() is None
    child.send_signal(number)
    out, err = child.communicate(timeout=20)
    assert child.returncode == (130 if number == signal.SIGINT else 128 + number)
    assert out == "" and "Traceback" not in err
    if number == signal.SIGINT:
        assert "interrupted" in err
    time.sleep(0.2)
    assert _alive(seen) == set()


def test_an_interrupted_demo_ends_at_once_with_all_its_workers(tmp_path):
    environment = {**os.environ, "HERCULES_CACHE": str(tmp_path / "cache")}
    child = program("demo", TASK, "--device", "cpu", env=environment)
    deadline, seen = time.monotonic() + 60, set()
    while time.monotonic() < deadline and len(now := _descendants(child.pid)) < 3:
        seen |= now
        time.sleep(0.05)
    seen |= now
    assert len(now) >= 3  # compilers of two candidates
    child.send_signal(signal.SIGINT)
    asked = time.monotonic()
    out, err = child.communicate(timeout=30)
    assert (child.returncode, out) == (130, "") and "interrupted" in err and "Traceback" not in err
    assert time.monotonic() - asked < 10
    assert _alive(seen) == set()


def _cpu_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_two_gradings_at_once_share_one_cold_cache(good, tmp_path):
    environment = {**os.environ, "HERCULES_CACHE": str(tmp_path / "cache")}
    both = [
        program("grade", TASK, good, "--device", "cpu", "--smoke", "--json", env=environment)
        for _ in range(2)
    ]
    for child in both:
        out, err = child.communicate(timeout=120)
        assert child.returncode == 0, err
        assert json.loads(out)["kind"] == "correct"
    assert not list((tmp_path / "cache").rglob("*.part"))


def test_a_corrupt_cache_entry_is_built_again(hercules, good, tmp_path, monkeypatch):
    monkeypatch.setenv("HERCULES_CACHE", str(tmp_path / "cache"))
    arguments = ("grade", TASK, good, "--device", "cpu", "--smoke", "--json", "--seed", "x")
    first = hercules(*arguments).verdict
    damaged = 0
    for file in cache_root().rglob("*"):
        if file.is_file() and file.suffix in (".cubin", ".ptx", ".so", ".cpp", ".json"):
            file.chmod(0o644)
            file.write_bytes(b"damaged")
            damaged += 1
    assert damaged > 3
    second = hercules(*arguments).verdict
    assert second.kind == "correct"
    assert [c.plan_sha256 for c in second.checks] == [c.plan_sha256 for c in first.checks]


def test_a_closed_pipe_is_quiet():
    child = program("schema")
    child.stdout.close()
    assert "Traceback" not in child.stderr.read() and child.wait(timeout=30) in (0, 1)
    child.stderr.close()


def test_a_real_full_disk(good, tmp_path):
    """A disk of 256 KiB, mounted in a namespace of the test's own."""
    cache = tmp_path / "small"
    cache.mkdir()
    script = f'mount -t tmpfs -o size=256k none {cache} && exec "$@"'
    unshare = ["unshare", "--user", "--map-root-user", "--mount"]
    if subprocess.run([*unshare, "sh", "-c", script, "sh", "true"], capture_output=True).returncode:
        pytest.skip("this machine lets no test mount a file system of its own")
    argv = [*unshare, "sh", "-c", script, "sh", sys.executable, "-m", "cudahercules"]
    environment = {**os.environ, "HERCULES_CACHE": str(cache)}
    arguments = ["grade", TASK, str(good), "--device", "cpu", "--smoke"]
    done = subprocess.run([*argv, *arguments], capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "space" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["tasks", "show kernel/gemm/fp32"])
def test_a_closed_stdout_is_no_fault(command):
    line = f"{sys.executable} -m cudahercules {command} >&-"
    ended = subprocess.run(["bash", "-c", line], stderr=subprocess.PIPE, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
