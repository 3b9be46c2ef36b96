"""Mistakes made by machine: what is changed in a source, and what ``lint`` says of what passes."""

import pytest

from cudahercules.judge import mechanical
from cudahercules.judge.mechanical import Change, Tried, changes, mechanical_rows
from cudahercules.task.load import load_task
from cudahercules.task.model import Equivalent

SOURCE = """#include "solve.h"
// while (a < b) __syncthreads();
constexpr int TILE = 16;
template <int N> __device__ float total(const float* x) {
    float sum = 0.0f, other = 1.0f;
    for (int i = 0; i < N; ++i) sum += x[i] * 2;
    return sum;
}
__device__ float later(float x);
__global__ void work(const float* x, float* y, int n) {
    __shared__ float tile[TILE];
    float parts[2] = {};
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    tile[threadIdx.x] = x[i];
    __syncthreads();
    for (int j = 0; j < TILE; ++j) parts[j % 2] = fmaf(tile[j], 2.0f, parts[j % 2]);
    y[i] = parts[0] + total<4>(x);
}
extern "C" void solve(const float* x, float* y, int n, cudaStream_t stream) {
    for (int k = 0; k < 1; ++k) work<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n);
}
"""


def line_of(change):
    lines = change.text.removeprefix("#include <cuda_fp16.h>\n").splitlines()
    return lines[int(change.at.split(":")[0]) - 1].strip()


def test_each_change_is_one_mistake_in_device_code():
    found = {(c.at.split(":")[0], c.kind): line_of(c) for c in changes("a.cu", SOURCE)}
    assert found == {
        ("6", "one_too_few"): "for (int i = 0; i < -1 + N; ++i) sum += x[i] * 2;",
        ("6", "half_sum"): "for (int i = 0; i < N; ++i) sum = __half2float(__float2half(sum + (x[i] * 2)));",
        ("14", "one_too_many"): "if (i > n) return;",
        ("14", "one_too_few"): "if (i >= -1 + n) return;",
        ("16", "barrier"): ";",
        ("17", "one_too_few"): "for (int j = 0; j < -1 + TILE; ++j) "
        "parts[j % 2] = fmaf(tile[j], 2.0f, parts[j % 2]);",
        ("17", "half_sum"): "for (int j = 0; j < TILE; ++j) "
        "parts[j % 2] = __half2float(__float2half(fmaf(tile[j], 2.0f, parts[j % 2])));",
    }


def test_everything_else_stays_as_it_is():
    for change in changes("a.cu", SOURCE):
        text = change.text.removeprefix("#include <cuda_fp16.h>\n")
        both = zip(text.splitlines(), SOURCE.splitlines(), strict=True)
        different = [number for number, (a, b) in enumerate(both, 1) if a != b]
        assert different == [int(change.at.split(":")[0])]
        assert text.startswith('#include "solve.h"')


@pytest.mark.parametrize("text", ["", "__device__", "int a; // < b", "__global__ void f(int n) { if (n < 2"])
def test_odd_sources_do_no_harm(text):
    assert all(isinstance(c, Change) for c in changes("a.cu", text))


# --- rows -------------------------------------------------------------------------------------------


def tried(at, fate, kind="barrier"):
    return Tried(Change("naive.cu", at, kind, ""), fate, "", 1.0)


@pytest.fixture
def rows(monkeypatch):
    def make(found, *recorded):
        task = load_task("kernel/gemm/fp32@general").model_copy(update={"equivalent": recorded})
        monkeypatch.setattr(mechanical, "try_all", lambda *_a, **_k: iter(found))
        known = [tried("9:2", "not run"), *found]  # the sample need not have them all
        monkeypatch.setattr(mechanical, "all_changes", lambda _task: [(None, t.change) for t in known])
        return mechanical_rows(task)

    return make


def record(at, change="barrier"):
    return Equivalent(file="naive.cu", at=at, change=change, reason="the warp runs in step anyway")


def test_a_change_that_passes_fails_the_task(rows):
    count, survivor = rows([tried("3:5", "killed"), tried("9:2", "survived"), tried("9:9", "same code")])
    assert (count.outcome, survivor.outcome) == ("failed", "failed")
    assert (
        "1 of 2 rejected (0 by debug alone)" in count.detail and "1 compile to the same code" in count.detail
    )
    assert survivor.subject == "naive.cu:9:2 barrier" and survivor.got == "accepted"


def test_one_that_is_recorded_does_not(rows):
    count, survivor = rows([tried("3:5", "killed"), tried("9:2", "survived")], record("9:2"))
    assert (count.outcome, survivor.outcome) == ("ok", "ok")
    assert (
        "1 of 1 rejected (0 by debug alone), 1 recorded" in count.detail
        and survivor.detail == "the warp runs in step anyway"
    )


@pytest.mark.parametrize(
    ("recorded", "says"),
    [
        (record("9:2"), "it is seen (incorrect)"),
        (record("9:2", "half_sum"), "the lines have moved"),
        (record("7:2"), "the lines have moved"),
    ],
)
def test_a_record_that_is_not_true_any_more_fails(rows, recorded, says):
    killed = Tried(tried("9:2", "").change, "killed", "incorrect", 1.0)
    last = rows([killed], recorded)[-1]
    assert last.outcome == "failed" and says in last.detail


@pytest.mark.parametrize("found", [[], [tried("9:2", "same code")]])
def test_a_record_may_be_of_another_member_or_outside_the_sample(rows, found):
    assert all(r.outcome != "failed" for r in rows(found, record("9:2")))


def test_nothing_to_try_is_not_a_success(rows):
    (count,) = rows([tried("3:5", "not run")])
    assert count.outcome == "not_run" and "1 not run" in count.detail


def test_a_race_that_spoils_no_answer_is_seen(tmp_path):
    """Threads read what their neighbours wrote, without a barrier: in the emulator's order that is right."""
    task = load_task("kernel/gemm/fp32@general")
    tiled = (task.directory / "tiled.cu").read_text()
    (found,) = [c for c in changes("tiled.cu", tiled) if c.kind == "barrier"][-1:]
    path = tmp_path / "tiled.cu"
    path.write_text(found.text)
    assert mechanical._finding(task, path) == "race"
    path.write_text(tiled)
    assert mechanical._finding(task, path) == ""


@pytest.mark.slow
def test_the_plain_product_lets_no_mistake_through():
    task = load_task("kernel/gemm/fp32@general").model_copy(update={"candidates": ("naive.cu",)})
    found = mechanical_rows(task)
    assert [r for r in found if r.outcome == "failed"] == []
    assert found[0].outcome == "ok" and "rejected" in found[0].detail
