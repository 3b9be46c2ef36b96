"""What can be wrong with a call or a file: each gets one clear message and the right exit code."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cli_candidates import LAUNCH, PRODUCT, TASK, candidate

# --- the call ------------------------------------------------------------------------------------


def test_a_misspelt_task_gets_the_nearest_name(hercules, tmp_path):
    ended = hercules("grade", "kernel/gem/fp32@general", tmp_path / "x.cu")
    assert ended.code == 2 and ended.out == ""
    assert ended.err.count("\n") == 1 and TASK in ended.err


def test_a_misspelt_family_without_a_target_suggests_the_general_member(hercules, tmp_path):
    ended = hercules("grade", "kernel/gem/fp32", tmp_path / "x.cu")
    assert "Did you mean kernel/gemm/fp32@general" in ended.err


@pytest.mark.parametrize("command", ["grade", "lint"])
def test_a_cache_that_cannot_be_made(hercules, tmp_path, monkeypatch, command):
    monkeypatch.setenv("HERCULES_CACHE", "/proc/nope")
    (tmp_path / "x.cu").write_text(candidate(PRODUCT, LAUNCH))
    ended = hercules(command, TASK, *([tmp_path / "x.cu"] if command == "grade" else []))
    assert ended.code == 3 and ended.out == ""
    assert "set HERCULES_CACHE" in ended.err and "fault of CUDAHercules" not in ended.err


@pytest.mark.parametrize(
    ("level", "code", "says"),
    [("fort-knox", 2, "choose one of full, files, calls, limits"), ("full", 3, "reaches level limits (")],
)
def test_a_sandbox_that_is_too_weak(hercules, tmp_path, monkeypatch, level, code, says):
    (tmp_path / "x.cu").write_text(candidate(PRODUCT, LAUNCH))
    monkeypatch.setattr("cudahercules.build.sandbox.features", lambda: "capabilities")
    ended = hercules("grade", TASK, tmp_path / "x.cu", "--strict", level)
    assert ended.code == code and says in ended.err and ended.out == ""


def test_a_missing_file(hercules, tmp_path):
    ended = hercules("grade", TASK, tmp_path / "nowhere.cu")
    assert ended.code == 2 and "nowhere.cu: No such file" in ended.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read everything")
def test_an_unreadable_file(hercules, tmp_path):
    file = tmp_path / "mine.cu"
    file.write_text("")
    file.chmod(0)
    ended = hercules("grade", TASK, file)
    assert ended.code == 2 and "Permission denied" in ended.err


def test_a_file_that_is_no_file(hercules, tmp_path):
    os.mkfifo(tmp_path / "pipe.cu")
    ended = hercules("grade", TASK, tmp_path / "pipe.cu")
    assert ended.code == 2 and "not a regular file" in ended.err


def test_a_directory_without_sources(hercules, tmp_path):
    (tmp_path / "README").write_text("nothing here")
    ended = hercules("grade", TASK, tmp_path)
    assert ended.code == 2 and "no .cu file" in ended.err and "README" in ended.err


def test_a_file_that_is_not_utf8(hercules, tmp_path):
    file = tmp_path / "mine.cu"
    file.write_bytes(b"// one\n// caf\xe9\n")
    ended = hercules("grade", TASK, file)
    assert ended.code == 2 and "not UTF-8" in ended.err and "line 2" in ended.err


def test_fifty_megabytes_of_source(hercules, tmp_path):
    file = tmp_path / "mine.cu"
    with file.open("wb") as f:
        f.truncate(50 << 20)
    ended = hercules("grade", TASK, file)
    assert ended.code == 2 and "50.0 MiB" in ended.err


def test_one_wrong_file_among_several_stops_before_any_is_graded(hercules, tmp_path):
    good = tmp_path / "good.cu"
    good.write_text(candidate(PRODUCT, LAUNCH))
    ended = hercules("grade", TASK, good, tmp_path / "nowhere.cu")
    assert ended.code == 2 and ended.out == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--device", "tpu"], "choose one of auto, gpu, cpu"),
        (["--seed", ""], "--seed"),
        (["--limit", "0"], "limit"),
        (["--nonsense"], "--nonsense"),
    ],
)
def test_wrong_options(hercules, tmp_path, arguments, message):
    file = tmp_path / "mine.cu"
    file.write_text(candidate(PRODUCT, LAUNCH))
    ended = hercules("grade", TASK, file, *arguments)
    assert ended.code == 2 and message in ended.err


def test_no_arguments_print_the_help(hercules):
    ended = hercules()
    assert ended.code in (0, 2) and "grade" in ended.out + ended.err


def test_an_evidence_directory_with_other_files_is_left_alone(hercules, tmp_path):
    file = tmp_path / "mine.cu"
    file.write_text(candidate(PRODUCT, LAUNCH))
    ended = hercules("grade", TASK, file, "--evidence", tmp_path)
    assert ended.code == 2 and "left alone" in ended.err
    assert [p.name for p in tmp_path.iterdir()] == ["mine.cu"]


def test_a_workload_misspelt(hercules, tmp_path):
    file = tmp_path / "mine.cu"
    file.write_text(candidate(PRODUCT, LAUNCH))
    ended = hercules("plan", TASK, file, "--workload", "smok")
    assert ended.code == 2 and "Did you mean smoke?" in ended.err


def test_filters_that_fit_no_task(hercules):
    assert "choose one of kernel" in hercules("tasks", "--class", "kernl").err
    ended = hercules("tasks", "--domain", "astrology")
    assert ended.code == 2 and "no task fits" in ended.err


# --- the machine ---------------------------------------------------------------------------------


@pytest.fixture
def good(tmp_path) -> Path:
    file = tmp_path / "good.cu"
    file.write_text(candidate(PRODUCT, LAUNCH))
    return file


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="there is a GPU here")
def test_device_gpu_without_one(hercules, good):
    ended = hercules("grade", TASK, good, "--device", "gpu")
    assert ended.code == 3 and "no NVIDIA GPU" in ended.err and "--device cpu" in ended.err


def test_no_compiler(hercules, good, tmp_path, monkeypatch):
    monkeypatch.setattr("cudahercules.build.toolchain._nvcc_places", lambda *_: iter(()))
    monkeypatch.setenv("PATH", os.environ["PATH"] + os.pathsep + str(tmp_path))  # a new key for its cache
    ended = hercules("grade", TASK, good, "--device", "cpu")
    assert ended.code == 3 and "nvcc" in ended.err and "pip install" in ended.err


def test_no_host_compiler(hercules, good, tmp_path, monkeypatch):
    nvcc = tmp_path / "bin"
    nvcc.mkdir()
    (nvcc / "nvcc").symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(nvcc))
    ended = hercules("grade", TASK, good, "--device", "cpu")
    assert ended.code == 3 and "g++" in ended.err and "install" in ended.err.lower()


def test_a_full_disk(hercules, good, tmp_path, monkeypatch):
    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setenv("HERCULES_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("cudahercules.cache.tempfile.mkdtemp", full)
    ended = hercules("grade", TASK, good, "--device", "cpu")
    assert ended.code == 3 and "no space left" in ended.err and "HERCULES_CACHE" in ended.err


def test_a_cache_that_cannot_be_a_directory(hercules, good, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HERCULES_CACHE", str(tmp_path / "file" / "cache"))
    ended = hercules("grade", TASK, good, "--device", "cpu")
    assert ended.code == 3 and ended.err.count("\n") <= 2 and "file" in ended.err


# --- task files ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "title: !!python/object/apply:os.system ['touch pwned']\n",
        "a: &a [x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a]\ntitle: [*b, *b, *b, *b]\n",
        "title: [unclosed\n",
        "- a list\n",
        "title: x\ntitle: y\n",
        "",
        "title: x\nmembers: {}\n",
        "\x00\x01",
    ],
)
def test_a_hostile_task_file_is_explained(hercules, tmp_path, monkeypatch, text):
    family = tmp_path / "kernel" / "bad"
    family.mkdir(parents=True)
    (family / "task.yaml").write_text(text)
    monkeypatch.setenv("HERCULES_TASKS", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    ended = hercules("tasks")
    assert ended.code == 2 and "task.yaml" in ended.err
    assert not (tmp_path / "pwned").exists()
