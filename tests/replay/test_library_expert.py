"""An expert without torch, from start to samples: cuBLASLt's search against a stand-in of the library."""

import ctypes
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from by_hand import FAKE

from cudahercules.measure import cublaslt
from cudahercules.replay.client import environment_of, expert_side
from cudahercules.replay.interface import ContestantLost, ExpertDeclined, start_expert, warm_process
from cudahercules.task.load import BUNDLED, load_family
from cudahercules.task.model import DType, Expert, Normal

HERE = Path(__file__).parent


def member(name):
    return next(t for t in load_family(BUNDLED / "kernel/gemm") if (t.member, t.target) == (name, "general"))


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A pretend GPU whose Python has the stand-in where NVIDIA's wheels put the library; its log."""
    folder = tmp_path / "site/nvidia/cu13/lib"
    folder.mkdir(parents=True)
    library = folder / "libcublasLt.so.13"
    compiler = shutil.which("gcc") or "g++"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, HERE / "fake_cublaslt.c"], check=True)
    log = tmp_path / "log"
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(FAKE), str(tmp_path / "site"))))
    monkeypatch.setenv("FAKE_CUBLASLT_LOG", str(log))
    monkeypatch.setenv("HERCULES_CACHE", str(tmp_path / "cache"))
    return log


@pytest.mark.parametrize(
    ("name", "compute", "kind"), [("fp32", 68, 0), ("tf32", 77, 0), ("fp16", 68, 2), ("bf16", 68, 14)]
)
def test_every_member_is_searched_and_captured_without_torch(machine, name, compute, kind):
    task = member(name)
    workload = next(w for w in task.workloads if w.role.value == "smoke")
    m, n, k = (workload.dimensions[d] for d in "mnk")
    process = warm_process("library")
    with start_expert(task, "cublaslt_search", workload, process=process) as expert:
        assert (expert.ready.side, expert.ready.method) == ("expert", "graph")
        assert expert.ready.versions == {"cublasLt": "130100"}
        calls = machine.read_text().splitlines()
        assert calls[:6] == [
            "create",
            f"description {compute} 0",
            f"layout {kind} {n} {k} {n}",
            f"layout {kind} {k} {m} {k}",
            f"layout {kind} {n} {m} {n}",
            f"preference 1 {64 << 20}",
        ]
        products = [line for line in calls if line.startswith("matmul")]
        assert "matmul 2 1 0 1 stream" in products  # tried once, refused, never again
        assert sum("matmul 2 " in line for line in products) == 1
        assert products[-4:] == ["matmul 3 1 0 1 stream"] * 4  # three to warm up, one captured
        sample = expert.sample(1, keep=True)
        assert sample.kept is not None and sample.microseconds > 0
        assert expert.outputs(sample).host("c").shape == (m, n)
    assert not any("torch" in line for line in machine.read_text().splitlines())


@pytest.mark.parametrize(
    ("name", "mode", "kind"), [("bf16", 0, 14), ("e4m3", 0, 28), ("bf16_row_scaled", 3, 14)]
)
def test_scaled_products_say_what_their_scales_are_for(machine, name, mode, kind):
    """B is the library's first operand, transposed; an FP8 result has an addend of another type, left out."""
    task = next(t for t in load_family(BUNDLED / "kernel/gemm_fp8") if t.member == name)
    tensors = tuple(t.model_copy(update={"values": Normal()}) for t in task.tensors)  # all that it can draw
    task = task.model_copy(update={"tensors": tensors})
    workload = next(w for w in task.workloads if w.role.value == "smoke")
    m, n, k = (workload.dimensions[d] for d in "mnk")
    with start_expert(task, "cublaslt_search", workload):
        calls = machine.read_text().splitlines()
    addend = [f"layout 14 {n} {m} {n}"] if kind == 28 else []
    layouts = [f"layout 28 {k} {n} {k}", f"layout 28 {k} {m} {k}", f"layout {kind} {n} {m} {n}", *addend]
    scales = [f"operation 31 {mode}", "operation 17 place", f"operation 32 {mode}", "operation 18 place"]
    expected = ["create", "description 68 0", "operation 3 1", *layouts, *scales, "operation 25 1"]
    assert calls[: len(expected)] == expected
    assert calls[-1] == f"matmul 3 1 0 {2 if addend else 1} stream"


@pytest.mark.parametrize(
    ("product", "said"),
    [
        (
            cublaslt.Product(3, 5, 7, DType.INT8, "32i", transposed=True, alpha=0.25),
            ["description 72 0", "operation 3 1", "layout 3 7 5 7", "layout 3 7 3 7", "layout 3 5 3 5"],
        ),
        (
            cublaslt.Product(3, 5, 7, DType.BF16, batch=4),
            [
                "description 68 0",
                *("layout 14 5 7 5", "matrix 5 4", "matrix 6 35"),
                *("layout 14 7 3 7", "matrix 5 4", "matrix 6 21"),
                *("layout 14 5 3 5", "matrix 5 4", "matrix 6 15"),
            ],
        ),
    ],
    ids=["integers", "batch"],
)
def test_products_of_integers_and_batches_are_described(machine, monkeypatch, tmp_path, product, said):
    library = ctypes.CDLL(str(tmp_path / "site/nvidia/cu13/lib/libcublasLt.so.13"))
    monkeypatch.setattr(cublaslt, "_library", lambda: library)
    problem = cublaslt._Problem.make(product)
    assert problem.run(cublaslt.Places(1, 2, 3, 4), problem.offers()[0].algo, 0) == 0
    problem.close()
    calls = machine.read_text().splitlines()
    assert calls == [
        "create",
        *said,
        f"preference 1 {64 << 20}",
        f"matmul 1 {product.alpha:g} 0 1 none",
        "destroy",
    ]


def test_sums_of_an_operand_are_asked_of_the_epilogue(machine):
    task = next(t for t in load_family(BUNDLED / "kernel/gemm_reduce_k") if t.member == "bf16")
    workload = next(w for w in task.workloads if w.role.value == "smoke")
    m, n, k = (workload.dimensions[d] for d in "mnk")
    with start_expert(task, "cublaslt_bias_gradient", workload) as expert:
        assert expert.ready.method == "graph"
        assert machine.read_text().splitlines()[:8] == [
            "create",
            "description 68 0",
            "operation 4 1",
            f"layout 14 {n} {k} {n}",
            f"layout 14 {m} {k} {m}",
            f"layout 14 {n} {m} {n}",
            "operation 7 512",
            "operation 8 place",
        ]


def test_the_choice_is_remembered_and_handles_are_given_back(machine):
    task = member("fp32")
    smoke = next(w for w in task.workloads if w.role.value == "smoke")
    first = start_expert(task, "cublaslt_search", smoke)
    searched = len(machine.read_text().splitlines())
    second = start_expert(task, "cublaslt_search", smoke, process=first)
    again = machine.read_text().splitlines()[searched:]
    assert [line.split()[0] for line in again].count("matmul") == 4
    assert again[0] == "destroy" and "create" in again
    second.close()
    with start_expert(task, "cublaslt_search", smoke) as other:  # another process: from the disk
        assert other.ready.method == "graph"
    assert sum("matmul 1 " in line for line in machine.read_text().splitlines()) < searched


def test_a_missing_library_is_said_in_one_sentence(machine, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(FAKE))
    task = member("fp32")
    with pytest.raises(ContestantLost, match=r"libcublasLt\.so is not found: pip install nvidia-cublas"):
        start_expert(task, "cublaslt_search", next(iter(task.workloads)))


def test_it_is_ready_soon(machine):
    start = time.monotonic()
    process = warm_process("library")
    process.await_alive(start + 30)
    assert "torch" not in sys.modules
    process.close()


def test_kinds_of_processes():
    task = member("bf16")
    assert expert_side(task, "cublaslt_search") == "library"
    assert expert_side(task, "torch_mm") == "expert"
    assert cublaslt.Product(1, 2, 3, task.tensors[0].dtype) != cublaslt.Product(
        1, 2, 3, task.tensors[0].dtype, "64f"
    )


PICKY = """
def picky(inputs, outputs, sizes, scalars):
    if sizes["m"] > 100:
        raise NotImplementedError("no more than 100 rows")
    def run(stream):
        pass
    return run
"""


def test_an_expert_that_declines_a_workload_goes_on_with_another(machine, tmp_path):
    (tmp_path / "experts.py").write_text(PICKY)
    expert = Expert(name="picky", title="a library", runs="driver")
    task = member("fp32").model_copy(update={"directory": tmp_path, "experts": (expert,)})
    small, large = (w for w in task.workloads if w.name in ("smoke", "odd"))
    small = small.model_copy(update={"dimensions": {**small.dimensions, "m": 48}})
    large = large.model_copy(update={"dimensions": {**large.dimensions, "m": 101}})
    task = task.model_copy(update={"workloads": (small, large)})
    process = warm_process("library", begin=False)
    with pytest.raises(ExpertDeclined, match="picky: no more than 100 rows"):
        start_expert(task, "picky", large, process=process)
    pid = process.child.pid
    with start_expert(task, "picky", small, process=process) as contestant:
        assert contestant.ready.pid == pid and contestant.sample(1).microseconds > 0
        with pytest.raises(ExpertDeclined):
            start_expert(task, "picky", large, process=contestant)
    with pytest.raises(ExpertDeclined):  # in a process of its own, which ends
        start_expert(task, "picky", large)


def test_a_process_leaves_the_gpu_alone_until_it_is_to_begin(machine):
    process = warm_process("library", begin=False)
    try:
        process.channel.socket.settimeout(1.0)
        with pytest.raises(TimeoutError):
            process.channel.socket.recv(1)
        process.begin()
        alive = process.await_alive(time.monotonic() + 30)
        assert alive.pid == process.child.pid
    finally:
        process.close()


def test_a_process_that_never_began_ends_when_asked(machine):
    process = warm_process("candidate", begin=False)
    process.close()
    assert process.child.returncode == 0


def test_what_experts_compile_is_kept_in_our_cache(machine, monkeypatch, tmp_path):
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/elsewhere")
    environment = environment_of("expert")
    assert environment["TRITON_CACHE_DIR"] == str(tmp_path / "cache" / "triton")
    assert environment["TORCHINDUCTOR_CACHE_DIR"] == "/elsewhere"
    assert "TRITON_CACHE_DIR" not in environment_of("candidate")
