"""What wgmma's fence, commit and wait order: what a program sees that leaves one of them out."""

from __future__ import annotations

import numpy as np
import pytest
from emulated import Program
from tensor_programs import HEAD
from test_tensor_wgmma import Case
from wgmma_programs import SHARED, Layout, Wgmma

from cudahercules.emulator.outcome import Completed

FORM = Wgmma(8, ("f32", "f16", "f16"))
AT_A, AT_B = Layout(16, 128, 256), Layout(16, 128, 256, start=16384)
POISON = 0x7FFF7FFF
MODES = ["eager", "late", "random:1", "random:9"]

COMMIT, WAIT = "wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"
FENCE = "wgmma.fence.sync.aligned;"
ISSUE = FORM.line()
OVERWRITE = """bar.sync 0;
mov.u32 %r7, memory; shl.b32 %r8, %r1, 4; add.u32 %r7, %r7, %r8; mov.b32 %r8, 0;
st.shared.v4.b32 [%r7], {%r8, %r8, %r8, %r8};
bar.sync 0;"""


class Run:
    """One block runs FORM's kernel with its lines replaced; ``d`` is what the threads store."""

    def __init__(self, tmp_path, *changes: tuple[str, str], block: int = 128, mode: str = "late"):  # type: ignore[no-untyped-def]
        text = FORM.ptx()
        for old, new in changes:
            assert old in text, old
            text = text.replace(old, new)
        self.case = Case(FORM, 1)
        self.program = Program(HEAD + SHARED + text, tmp_path)
        self.outcome = self.case.launch(self.program, AT_A, AT_B, block=block, mode=mode)

    @property
    def d(self) -> np.ndarray:
        assert isinstance(self.outcome, Completed), self.outcome
        return self.case.result(self.program)

    def check(self) -> None:
        self.case.check(self.d)

    def fault(self) -> str:
        assert self.outcome.kind == "fault", self.outcome
        return self.outcome.message


@pytest.mark.parametrize("mode", MODES)
def test_a_whole_program(tmp_path, mode):
    Run(tmp_path, mode=mode).check()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("missing", [WAIT, COMMIT])
def test_without_wait_or_commit_sums_are_poison(tmp_path, missing, mode):
    assert (Run(tmp_path, (missing, ""), mode=mode).d == POISON).all()


@pytest.mark.parametrize("mode", MODES)
def test_without_a_fence(tmp_path, mode):
    message = Run(tmp_path, (FENCE, ""), mode=mode).fault()
    assert "wgmma.mma_async without a wgmma.fence" in message


def test_shared_memory_is_read_when_the_product_happens(tmp_path):
    """Shared memory that is overwritten before the wait: seen late, not seen eagerly."""
    change = (COMMIT, f"{COMMIT}\n{OVERWRITE}")
    Run(tmp_path, change, mode="eager").check()
    late = Run(tmp_path, change, mode="late")
    assert np.array_equal(late.d, late.case.c)
    both = {bool((Run(tmp_path, change, mode=f"random:{seed}").d == late.case.c).all()) for seed in range(8)}
    assert both == {True, False}


@pytest.mark.parametrize("mode", MODES)
def test_registers_moved_before_the_wait(tmp_path, mode):
    """Compilers copy accumulators that are still on their way, and go on with the copy."""
    moved = ISSUE.replace("%d", "%e")
    moves = "\n".join(f"mov.b32 %e{i}, %d{i};" for i in range(4))
    back = "\n".join(f"mov.b32 %d{i}, %e{i};" for i in range(4))
    run = Run(
        tmp_path,
        (".reg .b32 %d<4>;", ".reg .b32 %d<4>; .reg .b32 %e<4>;"),
        (ISSUE, f"{ISSUE}\n{moves}\n{moved}"),
        (WAIT, f"{WAIT}\n{back}"),
        mode=mode,
    )
    case = run.case
    got = run.d.view(np.float32).astype(np.float64)
    once = Run(tmp_path, mode=mode).d.view(np.float32).astype(np.float64)
    c = case.c.view(np.float32).astype(np.float64)
    np.testing.assert_allclose(got, 2 * once - c, atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_groups_end_in_order(tmp_path, mode):
    """After wait_group 1 the first product's sums are there, the second's are not."""
    second = ISSUE.replace("%d", "%e")
    extra = (".reg .b32 %d<4>;", ".reg .b32 %d<4>; .reg .b32 %e<4>;")
    body = f"{ISSUE}\n{COMMIT}\n{second}"
    wait = WAIT.replace(" 0;", " 1;")
    Run(tmp_path, extra, (ISSUE, body), (WAIT, wait), mode=mode).check()
    copies = "\n".join(f"mov.b32 %d{i}, %e{i};" for i in range(4))
    run = Run(tmp_path, extra, (ISSUE, body), (WAIT, f"{wait}\n{copies}"), mode=mode)
    assert (run.d == POISON).all()


@pytest.mark.parametrize("mode", MODES)
def test_a_chain_in_two_groups(tmp_path, mode):
    """The same registers in two groups: after wait_group 1 they still belong to the second."""
    chain = (ISSUE, f"{ISSUE}\n{COMMIT}\n{ISSUE}")
    run = Run(tmp_path, chain, (WAIT, WAIT.replace(" 0;", " 1;")), mode=mode)
    assert (run.d == POISON).all()
    whole = Run(tmp_path, chain, mode=mode)
    product = Run(tmp_path, mode=mode).d.view(np.float32).astype(np.float64)
    c = whole.case.c.view(np.float32).astype(np.float64)
    np.testing.assert_allclose(whole.d.view(np.float32), 2 * product - c, atol=1e-5)


def test_part_of_a_warpgroup(tmp_path):
    assert "four whole warps" in Run(tmp_path, block=96).fault()


def test_a_warp_that_issues_nothing_is_a_deadlock(tmp_path):
    skip = f"setp.ge.u32 %p3, %r1, 96;\n@%p3 bra $skip;\n{ISSUE}\n{COMMIT}\n{WAIT}\n$skip:\nbar.sync 0;"
    run = Run(tmp_path, (f"{ISSUE}\n{COMMIT}\n\n{WAIT}", skip))
    assert run.outcome.what == "deadlock"  # type: ignore[union-attr]
    assert "96 threads wait for products of wgmma" in run.fault()
    assert "32 threads wait at barrier 0" in run.fault()


def test_different_descriptors(tmp_path):
    change = (FENCE, f"{FENCE}\ncvt.u64.u32 %rd8, %r1; shr.b64 %rd8, %rd8, 6; add.u64 %rd6, %rd6, %rd8;")
    run = Run(tmp_path, (".reg .b64 %rd<9>", ".reg .b64 %rd<10>"), change)
    assert "different descriptors" in run.fault()


def test_different_instructions(tmp_path):
    other = ISSUE.replace("1, 1, 0, 0", "-1, 1, 0, 0")
    body = f"setp.ge.u32 %p3, %r1, 64;\n@%p3 bra $other;\n{ISSUE}\nbra $done;\n$other:\n{other}\n$done:"
    assert "different wgmma instructions" in Run(tmp_path, (ISSUE, body)).fault()


@pytest.mark.parametrize("mode", MODES)
def test_a_thread_may_leave_before_its_products(tmp_path, mode):
    """Warp 3 ends without a wait; the others still get their sums."""
    leave = f"setp.ge.u32 %p3, %r1, 96;\n@%p3 ret;\n{WAIT}"
    run = Run(tmp_path, (WAIT, leave), mode=mode)
    expected = Run(tmp_path, mode=mode).d
    assert np.array_equal(run.d[:48], expected[:48])
    assert not run.d[48:].any()
