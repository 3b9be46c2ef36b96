"""The evidence scripts from end to end on the pretend H200: everything but the numbers."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
EVIDENCE = ROOT / "benchmarks/gpu/evidence.py"


@pytest.fixture(scope="module")
def card(tmp_path_factory):
    """The environment of a machine with the pretend card, torch and cuBLASLt."""
    site = tmp_path_factory.mktemp("site")
    library = site / "nvidia/cu13/lib"
    library.mkdir(parents=True)
    compiler = shutil.which("gcc") or "g++"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", library / "libcublasLt.so.13", HERE / "fake_cublaslt.c"],
        check=True,
    )
    (site / "nvidia_cublas-13.1.0.dist-info").mkdir()
    (site / "nvidia_cublas-13.1.0.dist-info/METADATA").write_text("Name: nvidia-cublas\nVersion: 13.1.0\n")
    path = os.pathsep.join((str(HERE / "fake_card"), str(site), str(ROOT / "src")))
    return {**os.environ, "PYTHONPATH": path}


def evidence(card, out, *options, timeout=400):
    return subprocess.run(
        [sys.executable, EVIDENCE, "--out", out, *options],
        env=card,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def results(out, name):
    return json.loads((out / f"{name}.json").read_text())["results"]


@pytest.mark.slow
def test_a_rehearsal_gives_every_table(card, tmp_path):
    budgets = "prepare=150,throughput=60,families=90,aa=40,planted=40,hot=30"
    done = evidence(card, tmp_path, "--rehearsal", "--budget", budgets)
    log = (tmp_path / "log.txt").read_text()
    assert done.returncode == 0, done.stdout + log
    assert "Traceback" not in done.stdout + log
    files = sorted(p.name for p in tmp_path.iterdir())
    names = ["aa", "families", "hot", "nvidia-h200", "planted", "throughput"]
    assert files == sorted([*(f"{n}.json" for n in names), "log.txt", "tables.txt"])
    assert sum(p.stat().st_size for p in tmp_path.iterdir()) < 2_000_000
    for name in ("aa", "families", "hot", "planted", "throughput"):
        rows = results(tmp_path, name)
        assert rows and not any("failed" in r for r in rows.values()), rows
    assert {r["outcome"] for r in results(tmp_path, "aa").values()} <= {"on_par", "unresolved"}
    assert "cublaslt_search" in (tmp_path / "tables.txt").read_text()
    assert "kernel/scale us_55 adapter 0" in results(tmp_path, "aa")


@pytest.mark.slow
def test_a_later_call_goes_on_where_an_earlier_one_was_killed(card, tmp_path):
    first = subprocess.Popen(
        [sys.executable, EVIDENCE, "--out", tmp_path, "--budget", BUDGET.format(60)],
        env=card,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    file = tmp_path / "aa.json"
    end = time.monotonic() + 90
    while not (file.is_file() and len(results(tmp_path, "aa")) >= 2):
        assert time.monotonic() < end and first.poll() is None
        time.sleep(0.2)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    time.sleep(1)
    earlier = results(tmp_path, "aa")
    again = tmp_path / "again"
    evidence(card, again, "--earlier", tmp_path, "--budget", BUDGET.format(12))
    later = results(again, "aa")
    assert len(later) > len(earlier) and all(later[k] == v for k, v in earlier.items())


BUDGET = "prepare=0,throughput=0,families=0,aa={},planted=0,hot=0"


@pytest.mark.slow
def test_a_section_that_fails_or_overstays_does_not_stop_the_others(card, tmp_path):
    broken = {**card, "PRETEND_COMPUTE_MODE": "3"}
    budgets = "prepare=5,throughput=10,families=5,aa=5,planted=5,hot=5"
    start = time.monotonic()
    done = evidence(broken, tmp_path, "--rehearsal", "--budget", budgets)
    assert time.monotonic() - start < 120
    assert done.returncode == 1
    assert done.stdout.count("-- ") >= 6 and "Traceback" not in done.stdout
    assert "exclusive or prohibited compute mode" in (tmp_path / "log.txt").read_text()


def test_a_wrong_budget_is_refused(card, tmp_path):
    done = evidence(card, tmp_path, "--budget", "supper=3")
    assert done.returncode == 2 and "give NAME=SECONDS" in done.stderr


COMMITTED = ROOT / "results/nvidia-h200/judge"


@pytest.mark.slow
def test_the_committed_trials_go_on(card, tmp_path):
    """What benchmarks/gpu/README.md tells to run, with little time: known trials stay as they are, new ones
    come, and what is to be measured again is."""
    budgets = "prepare=0,throughput=60,families=0,aa=25,planted=0,hot=0"
    options = ("--earlier", COMMITTED, "--again", "throughput,families", "--budget", budgets)
    done = evidence(card, tmp_path, *options)
    log = (tmp_path / "log.txt").read_text()
    assert "Traceback" not in log, log
    known, now = results(COMMITTED, "aa"), results(tmp_path, "aa")
    assert len(now) > len(known) and all(now[k] == v for k, v in known.items())
    again = results(tmp_path, "throughput")
    assert any(r.get("stages") for r in again.values()), again
    assert "Seconds by stage" in (tmp_path / "tables.txt").read_text(), done.stdout


@pytest.mark.parametrize(
    ("options", "says"), [(("--again", "supper"), "name one of"), (("--earlier", "/no"), "no such")]
)
def test_wrong_ways_to_go_on_are_refused(card, tmp_path, options, says):
    done = evidence(card, tmp_path, *options)
    assert done.returncode == 2 and says in done.stderr
