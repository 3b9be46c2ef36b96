"""The table that shows how strong opponents are: rates, shares of the ceiling, published figures, reasons."""

import pytest

from cudahercules.measure import published as figures
from cudahercules.measure.ceilings import all_ceilings, rates
from cudahercules.measure.panel import PanelFile, Standing, TaskPanel
from cudahercules.suite import opponents as module
from cudahercules.suite.opponents import main, opponents, page, unexplained
from cudahercules.task.load import all_tasks, load_task
from cudahercules.task.model import DType, WorkloadRole

H200 = next(c for c in all_ceilings() if c.slug == "nvidia-h200")


@pytest.fixture
def gemm():
    """One bench workload of 2 * 4096**3 operations in bf16."""
    task = load_task("kernel/gemm/bf16@hopper")
    first = task.workloads_of(WorkloadRole.BENCH)[0]
    first = first.model_copy(update={"dimensions": dict.fromkeys(first.dimensions, 4096)})
    return task.model_copy(update={"workloads": (first,), "opponent_note": ""})


def panel(task, *microseconds):
    (workload,) = task.workloads
    rows = [
        Standing(expert=f"e{k}", workload=workload.name, outcome="ranked", microseconds=us)
        for k, us in enumerate(microseconds)
    ]
    rows.append(Standing(expert="wrong", workload=workload.name, outcome="wrong", why="no"))
    return {task.id: TaskPanel(task=task.id, release=task.release, date="", driver="", standings=tuple(rows))}


def test_the_winner_is_held_against_both_ceilings(gemm):
    (found,) = opponents([gemm], panel(gemm, 400.0, 200.0), H200)
    operations, moved = 2 * 4096**3, 3 * 2 * 4096**2
    assert found.winner.expert == "e1" and found.bound == "bf16" and found.current
    assert found.flops == pytest.approx(operations / 200e-6)
    assert found.bytes == pytest.approx(moved / 200e-6)
    assert found.of_measured == pytest.approx(operations / 781e12 / 200e-6)
    assert found.of_datasheet == pytest.approx(operations / 989.5e12 / 200e-6)
    assert found.strong and rates(H200, DType.BF16) == (4.25e12, 781e12)
    assert rates(H200, DType.FP64, measured=False) == (4.8e12, 67e12)


def test_who_is_slow_is_weak_and_the_family_must_say_why(gemm):
    found = opponents([gemm], panel(gemm, 400.0), H200)
    assert not found[0].strong and list(unexplained(found)) == ["kernel/gemm"]
    text = page(found, "NVIDIA H200")
    assert "| weak |" in text and "without a reason" in text and "1 workloads, 44% to 44%" in text
    explained = gemm.model_copy(update={"opponent_note": "because\n  of this"})
    found = opponents([explained], panel(explained, 400.0), H200)
    assert unexplained(found) == {} and "* `kernel/gemm`: because of this" in page(found, "NVIDIA H200")


@pytest.mark.parametrize(("gpu", "strong"), [("NVIDIA H200", True), ("NVIDIA H100 80GB SXM5", False)])
def test_a_figure_published_for_the_same_card_will_do_as_well(gemm, monkeypatch, gpu, strong):
    best = figures.Published(
        tasks="kernel/gemm/*", rate=350e12, unit="flops", gpu=gpu, what="something", source="some paper"
    )
    monkeypatch.setattr(module, "published", lambda task: best)
    (found,) = opponents([gemm], panel(gemm, 400.0), H200)
    assert found.strong is strong and found.of_published == pytest.approx(2 * 4096**3 / 400e-6 / 350e12)
    assert ("not the same card" in page([found], "NVIDIA H200")) is not strong


def test_special_figures_come_before_general_ones():
    known = figures.all_published()
    full, causal = (load_task(f"attention_fwd/hdim128_fp16_{m}@hopper") for m in ("full", "causal"))
    assert figures.published(full).rate == 648e12 and figures.published(causal).rate == 740e12
    assert figures.published(load_task("kernel/gemm/fp32@general")) is None
    ids = [t.id for t in all_tasks()]
    for entry in known:  # a renamed family would silently lose its figure
        assert any(figures.fnmatchcase(name, entry.tasks) for name in ids), entry.tasks


def test_the_shipped_panels_make_a_page(tmp_path, capsys):
    assert main([]) == 0
    text = capsys.readouterr().out
    assert "`kernel/sort_keys`: A radix sort moves all keys" in text
    (tmp_path / "nvidia-h200.json").write_text(PanelFile(gpu="nvidia-h200").model_dump_json())
    assert main(["--panels", str(tmp_path), "--require"]) == 0
    assert main(["--gpu", "nvidia-none"]) == 2
    assert "there are no ceilings" in capsys.readouterr().err
