"""`hercules grade --device gpu` on a pretend H200 that misbehaves: one clear sentence each, and nothing
left behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SCALE = ROOT / "benchmarks/gpu/tasks/kernel/scale"
TASK = "kernel/scale/fp32@general"
MARK = "HERCULES_TEST_MARK"


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """The environment of the pretend card, with one small task: y = 2 x, one bench workload."""
    folder = tmp_path_factory.mktemp("tasks")
    shutil.copytree(SCALE, folder / "kernel/scale")
    file = folder / "kernel/scale/task.yaml"
    task = yaml.safe_load(file.read_text())
    task["workloads"] = [w for w in task["workloads"] if w["name"] in ("smoke", "four", "us_55")]
    task["experts"].insert(0, {"name": "naive", "title": "naive.cu as a plan"})
    with (file.parent / "experts.py").open("a") as experts:
        experts.write("\n\ndef naive(inputs, outputs, sizes, scalars):\n    raise NotImplementedError\n")
    file.write_text(yaml.safe_dump(task, sort_keys=False))
    path = os.pathsep.join((str(HERE / "fake_card"), str(ROOT / "src")))
    return {**os.environ, "PYTHONPATH": path, "HERCULES_TASKS": str(folder), MARK: str(folder)}


def command(*more):
    source = SCALE / "naive.cu"
    return [sys.executable, "-m", "cudahercules", "grade", TASK, source, "--device", "gpu", "--json", *more]


def grade(machine, **trouble):
    """Exit status, verdict (or None) and stderr of one grading."""
    environment = {**machine, **{f"PRETEND_{k.upper()}": str(v) for k, v in trouble.items()}}
    done = subprocess.run(command(), env=environment, capture_output=True, text=True, timeout=90, check=False)
    verdict = json.loads(done.stdout) if done.stdout.startswith("{") else None
    return done.returncode, verdict, done.stderr or done.stdout


def left_behind(mark):
    """Processes that carry ``mark`` in their environment, ourselves apart."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"{MARK}={mark}".encode() in (entry / "environ").read_bytes():
                found.append((entry.name, (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()))
        except OSError:
            continue
    return found


def wait_for_nobody(mark):
    end = time.monotonic() + 10
    while left_behind(mark):
        assert time.monotonic() < end, left_behind(mark)
        time.sleep(0.05)


def test_a_good_machine_times_the_candidate_and_leaves_nothing(machine):
    status, verdict, stderr = grade(machine)
    assert status == 0 and verdict is not None, stderr
    assert verdict["kind"] == "correct"
    (row,) = verdict["timing"]["workloads"]
    assert row["expert"] == "naive" and row["checked_samples"] >= 8
    (kernel,) = verdict["timing"]["expert_kernels"]["naive"]
    assert kernel["name"] == verdict["kernels"][0]["name"] and kernel["registers"] > 0
    assert row["sm_clock_mhz"] and row["power_w"] and not row["flags"]
    assert verdict["fingerprint"]["device"] == "NVIDIA H200"
    wait_for_nobody(machine[MARK])


@pytest.mark.parametrize(
    ("trouble", "says"),
    [
        ({"driver": 12080}, "the driver supports CUDA 12.8; plans need 13.0: install driver 580"),
        ({"compute_mode": 3}, "exclusive or prohibited compute mode"),
        ({"no_driver": 1}, "the NVIDIA driver does not answer"),
    ],
)
def test_a_machine_that_cannot_judge_is_refused_before_anything_runs(machine, trouble, says):
    status, verdict, stderr = grade(machine, **trouble)
    assert status == 3 and verdict is None
    assert says in " ".join(stderr.split()) and "Traceback" not in stderr


def test_mps_is_refused(machine, tmp_path):
    (tmp_path / "control").touch()
    status, verdict, stderr = grade({**machine, "CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)})
    assert status == 3 and verdict is None and "MPS control daemon" in stderr


@pytest.mark.parametrize(
    ("trouble", "kind", "says"),
    [
        ({"used": (140 << 30) - (1 << 20)}, "infrastructure_error", "GiB are free"),
        ({"xid_at": 6}, "invalid_measurement", "Xid 79"),
        ({"lost_at": 6}, "infrastructure_error", "the GPU stopped answering NVML"),
        ({"slowdown": 1}, "invalid_measurement", "the card slowed itself down: hw_thermal_slowdown"),
        ({"memory": 3 << 30}, "infrastructure_error", "GiB are free"),
        ({"no_binary": 1}, "infrastructure_error", "the compiler is newer than the driver"),
        ({"no_binary": "candidate"}, "contract_error", "this GPU's driver refuses"),
        ({"refuse": "cuMemCreate=801"}, "infrastructure_error", "NOT_SUPPORTED"),
    ],
)
def test_trouble_on_the_way_is_a_verdict(machine, trouble, kind, says):
    _, verdict, stderr = grade(machine, **trouble)
    assert verdict is not None, stderr
    assert verdict["kind"] == kind, verdict
    assert says in json.dumps(verdict)
    wait_for_nobody(machine[MARK])


def test_a_stranger_on_the_card_voids_the_measurement(machine):
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        _, verdict, _ = grade(machine, stranger=stranger.pid)
    finally:
        stranger.kill()
        stranger.wait()
    assert verdict["kind"] == "invalid_measurement"
    assert f"another process uses the GPU (pid {stranger.pid})" in verdict["message"]


@pytest.mark.parametrize("missing", ["no_nvml", "no_counters"])
def test_counters_that_are_missing_are_said(machine, missing):
    _, verdict, _ = grade(machine, **{missing: 1, "no_events": 1})
    assert verdict["kind"] == "correct"
    assert "throttle counters are not available on this machine" in verdict["timing"]["workloads"][0]["flags"]
    clocks = verdict["timing"]["workloads"][0]["sm_clock_mhz"]
    assert bool(clocks) is (missing == "no_counters")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_after_an_end_at_any_moment(machine, how, tmp_path):
    for number, moment in enumerate((0.3, 0.8, 1.4)):
        mark = f"{tmp_path}-{how}-{number}"
        resume = tmp_path / "verdicts.jsonl"
        process = subprocess.Popen(
            command("--resume", resume),
            env={**machine, MARK: mark},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        time.sleep(moment)
        process.send_signal(how)
        _, stderr = process.communicate(timeout=20)
        assert process.returncode != 0 or number == 2  # a quick machine has finished by then
        # While NumPy is being imported it turns an interruption into an ImportError of its own.
        assert b"Traceback" not in stderr or b"ImportError" in stderr, stderr.decode()
        wait_for_nobody(mark)


def test_finished_verdicts_outlive_a_kill(machine, tmp_path):
    """Two candidates; killed after the first verdict: the second call grades the other one only."""
    resume, second = tmp_path / "verdicts.jsonl", tmp_path / "second.cu"
    second.write_text((SCALE / "naive.cu").read_text() + "// another one\n")
    process = subprocess.Popen(
        command(second, "--resume", resume), env=machine, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    end = time.monotonic() + 60
    while not (resume.is_file() and resume.read_bytes().count(b"\n") == 1):
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.wait()
    wait_for_nobody(machine[MARK])
    first = resume.read_text().splitlines()[0]
    done = subprocess.run(
        command(second, "--resume", resume),
        env=machine,
        capture_output=True,
        text=True,
        timeout=90,
        check=True,
    )
    assert len(done.stdout.splitlines()) == 2 and first in done.stdout.splitlines()
    assert len({json.loads(line)["candidate_sha256"] for line in resume.read_text().splitlines()}) == 2
