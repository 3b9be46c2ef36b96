"""What can be wrong with a candidate, end to end: compiled, recorded, emulated and judged for real."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from cli_candidates import LAUNCH, PRODUCT, TASK

from cudahercules.cache import cache_root

FIRST = "if (i == 0) "


def test_a_right_answer(graded):
    ended = graded()
    verdict = ended.verdict
    assert (ended.code, verdict.kind, verdict.timing.kind) == (0, "correct", "not_timed")
    (row,) = verdict.checks
    assert row.workload == "smoke" and row.launches == 1
    assert 0 < row.outputs[0].l2 < 1e-6
    (kernel,) = verdict.kernels
    assert "multiply" in kernel.name and kernel.registers > 0


# --- compiling -----------------------------------------------------------------------------------


def test_no_solve(hercules, tmp_path):
    (tmp_path / "mine.cu").write_text('#include "solve.h"\n__global__ void k() {}\n')
    ended = hercules("grade", TASK, tmp_path / "mine.cu", "--json")
    assert (ended.code, ended.verdict.kind) == (1, "build_error") and "solve" in ended.verdict.message


def test_a_wrong_signature(hercules, tmp_path):
    (tmp_path / "mine.cu").write_text('#include "solve.h"\nextern "C" void solve(float* a, int n) {}\n')
    ended = hercules("grade", TASK, tmp_path / "mine.cu", "--json")
    assert (ended.code, ended.verdict.kind) == (1, "build_error")
    assert ended.verdict.diagnostics[0].file == "mine.cu"


def test_a_compile_error_names_the_candidates_own_line(graded):
    ended = graded(kernel="c[i] = no_such_name;")
    verdict = ended.verdict
    assert (ended.code, verdict.kind) == (1, "build_error")
    first = verdict.diagnostics[0]
    assert (first.severity, first.file, first.line) == ("error", "mine.cu", 5)
    assert "no_such_name" in first.text


def test_a_template_bomb(graded, monkeypatch):
    from cudahercules.build import compile as build
    from cudahercules.process import Limits

    monkeypatch.setattr(build, "LIMITS", Limits(wall_s=6, cpu_s=6, memory=1 << 30, file_size=64 << 20))
    bomb = """template <int A, int B> struct Bomb {
  static constexpr long value = Bomb<A - 1, 2 * B>::value + Bomb<A - 1, 2 * B + 1>::value; };
template <int B> struct Bomb<0, B> { static constexpr long value = B; };
static_assert(Bomb<28, 0>::value != 7);"""
    ended = graded(before=bomb)
    assert ended.code == 1 and ended.verdict.kind in ("timeout", "build_error")


# --- recording -----------------------------------------------------------------------------------


def test_an_endless_host_loop(graded):
    ended = graded(host="for (volatile int i = 0;; ++i) {}")
    assert (ended.code, ended.verdict.kind, ended.verdict.stage) == (1, "timeout", "record")


def test_a_host_crash(graded):
    ended = graded(host="*(volatile int*)8 = 1;")
    assert (ended.code, ended.verdict.kind, ended.verdict.fault.what) == (1, "crash", "host_code")


@pytest.mark.parametrize("statement", ["exit(0);", "_exit(0);", "abort();"])
def test_ending_the_process_gives_no_verdict_but_a_failure(graded, statement):
    ended = graded(
        host=LAUNCH + statement, before="#include <csignal>\n#include <cstdlib>\n#include <unistd.h>"
    )
    assert ended.code == 1 and ended.verdict.kind in ("contract_error", "crash")


def test_signals_reach_no_other_process(graded):
    """The judge lives, no child stays behind in a session of its own, and the plan is what counts."""
    host = f"""{LAUNCH}
    if (fork() == 0) {{ setsid(); sleep(600); _exit(0); }}
    kill(getppid(), SIGKILL);
    kill(-1, SIGKILL);"""
    ended = graded(host=host, before="#include <csignal>\n#include <unistd.h>")
    assert ended.verdict.kind == "correct"
    time.sleep(0.2)
    launchers = [p for p in Path("/proc").glob("[0-9]*/cmdline") if _mentions_cache(p)]
    assert launchers == []


def _mentions_cache(cmdline: Path) -> bool:
    try:
        return f"{cache_root()}/standin".encode() in cmdline.read_bytes()
    except OSError:
        return False


def test_megabytes_of_output_change_nothing(graded):
    host = f'for (int i = 0; i < 1 << 16; ++i) {{ puts("{"x" * 99}"); fputs("{{}}\\n", stderr); }} {LAUNCH}'
    ended = graded(host=host, before="#include <cstdio>")
    assert ended.verdict.kind in ("correct", "contract_error")
    assert len(ended.out) < 20_000


def test_a_forged_verdict_on_stdout_is_not_read(graded):
    host = 'puts("{\\"kind\\": \\"correct\\"}"); fflush(stdout);'
    ended = graded(host=host, before="#include <cstdio>")
    assert (ended.code, ended.verdict.kind, ended.verdict.wrong.reason) == (1, "incorrect", "unwritten")


@pytest.mark.parametrize(
    ("launch", "word"),
    [
        ("multiply<<<1, 0, 0, stream>>>(a, b, c, m, n, k);", "multiply"),
        ("multiply<<<0, 128, 0, stream>>>(a, b, c, m, n, k);", "multiply"),
        ("multiply<<<1, 1u << 31, 0, stream>>>(a, b, c, m, n, k);", "multiply"),
        ("multiply<<<1, 128, 1 << 20, stream>>>(a, b, c, m, n, k);", "shared"),
    ],
)
def test_launches_that_hardware_refuses(graded, launch, word):
    ended = graded(host=launch)
    assert (ended.code, ended.verdict.kind) == (1, "contract_error")
    assert word in ended.verdict.message


@pytest.mark.parametrize(
    ("call", "word"),
    [
        ("float x; cudaMemcpy(&x, c, 4, cudaMemcpyDeviceToHost);", "cudaMemcpy"),
        ("float* p; cudaMallocManaged(&p, 64);", "cudaMallocManaged"),
        ("float* p; cudaHostAlloc(&p, 64, cudaHostAllocMapped);", "cudaHostAlloc"),
        ("cudaLaunchHostFunc(stream, [](void*) {}, nullptr);", "cudaLaunchHostFunc"),
        (
            "cudaEvent_t e; cudaEventCreate(&e); float t; cudaEventElapsedTime(&t, e, e);",
            "cudaEventElapsedTime",
        ),
        ("cudaTextureObject_t t; cudaCreateTextureObject(&t, nullptr, nullptr, nullptr);", "Texture"),
        ("cudaIpcMemHandle_t h; cudaIpcGetMemHandle(&h, c);", "cudaIpcGetMemHandle"),
    ],
)
def test_runtime_calls_that_no_plan_can_hold(graded, call, word):
    ended = graded(host=call + LAUNCH)
    assert (ended.code, ended.verdict.kind) == (1, "contract_error")
    assert word in ended.verdict.message


# --- running -------------------------------------------------------------------------------------


def test_an_endless_kernel(graded):
    ended = graded("for (volatile int x = 0;; ++x) {}", LAUNCH, "--limit", "2")
    assert (ended.code, ended.verdict.kind, ended.verdict.stage) == (1, "timeout", "run")
    assert ended.verdict.seconds.total < 60


def test_a_read_out_of_bounds(graded):
    verdict = graded(PRODUCT + "if (i == 3) c[0] += a[m * k + 5];").verdict
    assert (verdict.kind, verdict.fault.what) == ("crash", "out_of_bounds")
    assert "multiply" in verdict.fault.kernel and "a" in verdict.message


def test_a_write_out_of_bounds(graded):
    verdict = graded(PRODUCT + "if (i == 3) c[m * n + 7] = 1;").verdict
    assert (verdict.kind, verdict.fault.what) == ("crash", "out_of_bounds")


def test_a_misaligned_access(graded):
    verdict = graded(PRODUCT + "if (i == 0) *(float2*)(c + 1) = float2{};").verdict
    assert (verdict.kind, verdict.fault.what) == ("crash", "misaligned")


def test_a_written_input(graded):
    verdict = graded(PRODUCT + "if (i == 0) ((float*)a)[0] = 0;").verdict
    assert verdict.kind == "crash" or (verdict.kind, verdict.wrong.reason) == ("incorrect", "input_changed")


def test_nan(graded):
    verdict = graded(PRODUCT + "if (i == 9) c[i] = 0.0f / (c[i] - c[i]);").verdict
    assert (verdict.kind, verdict.wrong.reason, verdict.wrong.index) == ("incorrect", "nan", (0, 9))


def test_unwritten_elements(graded):
    verdict = graded("if (i % 7 == 3) return; " + PRODUCT).verdict
    assert (verdict.kind, verdict.wrong.reason, verdict.wrong.index) == ("incorrect", "unwritten", (0, 3))
    assert verdict.wrong.wrong == sum(i % 7 == 3 for i in range(verdict.wrong.total))


def test_an_instruction_that_the_emulator_does_not_know(graded):
    ended = graded(PRODUCT + 'asm volatile("pmevent 1;");')
    assert ended.code == 3 and ended.verdict.kind == "unsupported_on_cpu"
    (unknown,) = ended.verdict.instructions
    assert "pmevent" in unknown.instruction and unknown.file.endswith("mine.cu") and unknown.line > 0


def test_control_characters_of_a_candidate_do_not_reach_the_terminal(hercules, tmp_path):
    (tmp_path / "mine.cu").write_text('#include "solve.h"\n#error "\x1b[2J\x1b]0;gotcha\x07"\n')
    ended = hercules("grade", TASK, tmp_path / "mine.cu")
    assert ended.code == 1 and "gotcha" in ended.out and "\x1b" not in ended.out and "\x07" not in ended.out
