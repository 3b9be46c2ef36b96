"""Panel files and ceilings: choice of the opponent, files on disk, floors."""

import pytest

from cudahercules.errors import MachineError
from cudahercules.judge.timing import panel_note
from cudahercules.measure import panel as panels
from cudahercules.measure.ceilings import all_ceilings, arithmetic, ceiling_us, floor_us, load_ceilings
from cudahercules.measure.panel import Standing, TaskPanel
from cudahercules.task.load import BUNDLED, load_family, work
from cudahercules.task.model import DType, Work, WorkloadRole


def member(family, name):
    return next(t for t in load_family(BUNDLED / family) if t.member == name)


@pytest.fixture
def task():
    return member("module/layernorm_fwd", "fp32_4096")


@pytest.fixture
def workload(task):
    return next(w for w in task.workloads if w.role.value == "bench")


def ranking(task, **times):
    """A panel in which each expert took that many microseconds everywhere (None: it was wrong)."""
    rows = tuple(
        Standing(
            expert=name,
            workload=w.name,
            outcome="wrong" if us is None else "ranked",
            microseconds=us,
            why="" if us else "z: wrong",
        )
        for name, us in times.items()
        for w in task.workloads
        if w.role.value == "bench"
    )
    return TaskPanel(task=task.id, release=task.release, date="2026-12-01", driver="13.0", standings=rows)


def test_the_fastest_correct_usable_expert_is_the_opponent(task, workload):
    panel = ranking(task, torch_compile=120.0, liger_layer_norm=130.0, torch_native=None)
    names = ("liger_layer_norm", "torch_compile", "torch_native")
    assert panels.opponent(task, workload, panel, names) == "torch_compile"
    assert panels.opponent(task, workload, panel, ("liger_layer_norm",)) == "liger_layer_norm"


def test_an_expert_that_was_wrong_is_never_the_opponent(task, workload):
    panel = ranking(task, torch_native=None)
    assert panels.opponent(task, workload, panel, ("torch_native",)) is None


def test_without_a_ranking_the_tasks_order_decides(task, workload):
    assert panels.opponent(task, workload, None, ("torch_native", "liger_layer_norm")) == "liger_layer_norm"
    assert panels.opponent(task, workload, None, ()) is None


def test_experts_are_usable_when_their_packages_are_there(task):
    assert panels.usable_experts(task, ()) == ("tuned",)
    assert panels.usable_experts(task, ("Torch", "liger_kernel")) == (
        "tuned",
        "liger_layer_norm",
        "torch_native",
    )
    assert panels.is_plan(task, "tuned") and not panels.is_plan(task, "torch_native")


def test_panels_are_saved_beside_each_other_and_read_back(task, tmp_path, monkeypatch):
    monkeypatch.setenv("HERCULES_CACHE", str(tmp_path))
    other = member("module/layernorm_fwd", "bf16_4096")
    panels.save_panel(ranking(task, torch_compile=1.0), "some-gpu")
    panels.save_panel(ranking(other, torch_compile=2.0), "some-gpu")
    again = panels.load_panel(task, "some-gpu")
    assert again == ranking(task, torch_compile=1.0)
    assert panels.load_panel(other, "some-gpu").standings[0].microseconds == 2.0
    assert panels.load_panel(task, "another-gpu") is None


def test_a_damaged_panel_file_is_named(task, tmp_path, monkeypatch):
    monkeypatch.setenv("HERCULES_CACHE", str(tmp_path))
    path = panels.save_panel(ranking(task, torch_compile=1.0), "some-gpu")
    path.write_text("{")
    with pytest.raises(MachineError, match="damaged"):
        panels.load_panel(task, "some-gpu")


def test_ceilings_name_their_sources():
    for ceilings in all_ceilings():
        figures = [ceilings.bandwidth_datasheet, *ceilings.flops_datasheet.values()]
        assert all("datasheet" in f.source for f in figures)
        if ceilings.bandwidth_measured:
            assert ceilings.bandwidth_measured.value < ceilings.bandwidth_datasheet.value
        for dtype, measured in ceilings.flops_measured.items():
            assert measured.value < ceilings.flops_datasheet[dtype].value
    assert load_ceilings("NVIDIA H200").slug == "nvidia-h200"
    assert load_ceilings("GeForce 256") is None


def test_floor_counts_reads_and_the_writes_beyond_l2():
    h200 = load_ceilings("NVIDIA H200")
    read_only = Work(bytes_read=4_800_000_000, bytes_written=h200.l2_bytes, flops=1.0)
    assert floor_us(read_only, h200, DType.FP32) == pytest.approx(1000.0)
    written = Work(bytes_read=0, bytes_written=h200.l2_bytes + 480_000_000, flops=1.0)
    assert floor_us(written, h200, DType.FP32) == pytest.approx(100.0)


def test_flops_are_a_floor_only_where_the_family_says_so():
    h200 = load_ceilings("NVIDIA H200")
    flops = h200.flops_datasheet[DType.BF16].value / 1000
    assert floor_us(Work(bytes_read=0, bytes_written=0, flops=flops), h200, DType.BF16) == 0
    strict = Work(bytes_read=0, bytes_written=0, flops=flops, flop_floor=True)
    assert floor_us(strict, h200, DType.BF16) == pytest.approx(1000.0)
    assert ceiling_us(strict, h200, DType.BF16) > 1000.0


def test_arithmetic_of_the_families(task):
    assert arithmetic(member("kernel/gemm", "fp32")) is DType.FP32
    assert arithmetic(member("module/layernorm_fwd", "bf16_4096")) is DType.BF16
    assert arithmetic(task) is DType.FP32


def test_no_family_is_asked_for_more_than_the_card_has(task, workload):
    h200 = load_ceilings("NVIDIA H200")
    assert 50 < floor_us(work(task, workload), h200, DType.FP32) < 1000


def test_the_next_of_the_panel_is_known(task, workload):
    panel = ranking(task, torch_compile=120.0, liger_layer_norm=130.0, torch_native=None)
    everybody = ("tuned", "torch_native", "liger_layer_norm", "torch_compile")
    ranked_then_unknown = ("torch_compile", "liger_layer_norm", "tuned")
    assert panels.contenders(task, workload, panel, everybody) == ranked_then_unknown
    assert panels.contenders(task, workload, None, everybody[:2]) == ("tuned", "torch_native")


SHIPPED = sorted(panels.SHIPPED.glob("*.json"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
def test_shipped_panels_speak_of_tasks_and_experts_that_exist(path):
    file = panels.PanelFile.model_validate_json(path.read_bytes())
    assert file.gpu == path.stem and file.panels
    for name, panel in file.panels.items():
        task = next(t for t in load_family(BUNDLED / name.rsplit("/", 1)[0]) if t.id == name)
        experts, bench = (
            {e.name for e in task.experts},
            {w.name for w in task.workloads_of(WorkloadRole.BENCH)},
        )
        assert {s.expert for s in panel.standings} <= experts
        assert {s.workload for s in panel.standings} <= bench
        assert any(s.outcome == "ranked" for s in panel.standings)


def test_the_measured_panel_of_the_h200_chooses_opponents(task, tmp_path, monkeypatch):
    """A compiled LayerNorm won in fp32; in bf16 our own, before Liger's (results/nvidia-h200/judge)."""
    monkeypatch.setenv("HERCULES_CACHE", str(tmp_path))
    for name, winner in (("fp32_4096", "torch_compile"), ("bf16_4096", "tuned")):
        measured = panels.load_panel(member("module/layernorm_fwd", name), "nvidia-h200")
        usable = ("tuned", "liger_layer_norm", "torch_compile", "torch_native")
        assert measured is not None and measured.date >= "2026-12-01"
        for w in task.workloads_of(WorkloadRole.BENCH):
            assert panels.opponent(task, w, measured, usable) == winner
            if winner == "tuned":
                assert panels.opponent(task, w, measured, usable[1:]) == "liger_layer_norm"


def test_a_panel_of_another_release_says_so(task):
    panel = ranking(task, torch_compile=1.0).model_copy(update={"release": "dev-000000000000"})
    note = panel_note(task, panel)
    assert "2026-12-01" in note and "another release" in note and "dev-000000000000" in note
    assert panel_note(task, ranking(task, torch_compile=1.0)) == ""
