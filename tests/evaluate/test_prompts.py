"""Prompts: what each level tells, what no level may tell, and the families' strategies."""

from __future__ import annotations

import re

import pytest

from cudahercules.errors import UsageError
from cudahercules.evaluate.prompts import Level, exemplars_for, hardware, level_of, task_prompt
from cudahercules.task.load import all_tasks, load_task

GEMM = load_task("kernel/gemm/bf16@hopper")
FIRST = {t.family: t for t in reversed(all_tasks())}


def test_levels_tell_less_and_less_but_always_interface_and_contract():
    texts = {level: task_prompt(GEMM, "90a", level=level) for level in Level}
    assert len(texts[Level.FULL]) > len(texts[Level.ALGORITHM]) > len(texts[Level.NAME])
    for text in texts.values():
        assert "void solve(" in text and "## Contract" in text and "CUDA 13.0" in text
        assert "```cuda" in text and "file=main.cu" in text
    assert "square_8192" in texts[Level.FULL] and "132 SMs" in texts[Level.FULL]
    assert "square_8192" not in texts[Level.ALGORITHM] and "132 SMs" not in texts[Level.ALGORITHM]
    assert GEMM.prompt_text.strip() in texts[Level.ALGORITHM]
    assert GEMM.prompt_text.strip() not in texts[Level.NAME] and GEMM.title in texts[Level.NAME]


def test_the_gpu_is_that_of_the_architecture_with_figures_in_the_tasks_precision():
    text = hardware(GEMM, "90a")
    assert "NVIDIA H200" in text and "bf16 arithmetic 990 TFLOP/s by the datasheet" in text
    assert "A100" in hardware(load_task("kernel/gemm/fp32@general"), "80")


def test_exemplars_are_of_other_families_and_come_with_a_solution():
    found = exemplars_for(GEMM, 2)
    assert len({t.family for t in found} | {GEMM.family}) == 3
    text = task_prompt(GEMM, "90a", exemplars=2)
    source = (found[0].directory / found[0].candidates[0]).read_text().strip()
    assert source in text and text.index(source) < text.index(GEMM.prompt_text.strip())
    with pytest.raises(UsageError, match="exemplars"):
        exemplars_for(GEMM, 99)


@pytest.mark.parametrize("family", sorted(FIRST))
def test_every_family_has_a_strategy_in_words(family):
    task = FIRST[family]
    text = task_prompt(task, "90a", strategy=True)
    strategy = text.split("## How experts go about it")[1].split("## Answer")[0]
    assert 80 <= len(strategy.split()) <= 400
    assert "```" not in strategy and not re.search(r"__global__|<<<|[)\]];\s*$|[{}]|#include", strategy, re.M)


@pytest.mark.parametrize("family", sorted(FIRST))
@pytest.mark.parametrize("level", list(Level))
def test_no_prompt_shows_check_workloads_seeds_experts_or_solutions(family, level):
    task = FIRST[family]
    text = task_prompt(task, "90a", level=level)
    for workload in task.workloads:
        if workload.role == "check":
            assert not re.search(rf"\| {workload.name} \|", text)
    for expert in task.experts:
        assert expert.title not in text
    source = (task.directory / task.candidates[0]).read_text()
    assert not any(line in text for line in source.splitlines() if "__global__" in line)


def test_an_unknown_level_is_explained():
    with pytest.raises(UsageError, match="full, algorithm, name"):
        level_of("everything")
