"""Experts decline what they cannot do with a sentence, before they import anything; the next one steps in."""

import ast
from types import SimpleNamespace

import pytest

from cudahercules.replay.expert import load_experts
from cudahercules.task.load import all_tasks, load_task
from cudahercules.task.model import WorkloadRole

TASKS = all_tasks()
FAMILIES = sorted({t.family: t for t in TASKS}.values(), key=lambda t: t.family)


def raised(task):
    """(name of the exception, its message's constant parts) of every exception that experts.py makes."""
    for node in ast.walk(ast.parse((task.directory / "experts.py").read_text())):
        if isinstance(node, ast.Raise) and node.exc is not None:  # a bare raise passes on a library's
            words = [
                n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)
            ]
            yield node.exc.func.id, " ".join(words)


@pytest.mark.parametrize("task", FAMILIES, ids=[t.family for t in FAMILIES])
def test_what_experts_raise_is_a_sentence_that_declines(task):
    for name, message in raised(task):
        assert name == "NotImplementedError"
        assert len(message.split()) >= 5


def test_attention_behind_a_longer_past_is_declined_by_cudnn():
    """PyTorch aligns its mask at the other corner; without a mask it does not matter."""
    task = load_task("module/attention_fwd/hdim128_bf16_causal@hopper")
    workload = next(w for w in task.workloads if w.name == "llama3_8b_chunk")
    with pytest.raises(NotImplementedError, match="upper left corner"):
        load_experts(task).cudnn({}, {}, task.sizes(workload), workload.scalars)


@pytest.mark.parametrize("family", ["attention_fwd", "attention_fwd_split", "attention_bwd"])
def test_cudnn_declines_causal_queries_behind_a_past_in_every_attention_family(family):
    task = load_task(f"module/{family}/hdim64_bf16_causal@hopper")
    sizes = {"head_dim": 64, "causal": 1, "q_len": 4, "kv_len": 9}
    with pytest.raises(NotImplementedError, match="upper left corner"):
        load_experts(task).cudnn({}, {}, sizes, {"scale": 0.125})


@pytest.mark.parametrize("family", ["attention_fwd", "attention_fwd_split"])
def test_half_precision_is_declined_by_the_build_of_flash_attention_3_that_lacks_it(family):
    task = load_task(f"module/{family}/hdim128_fp16_full@hopper")
    workload = task.workloads_of(WorkloadRole.BENCH)[0]
    q = SimpleNamespace(dtype="torch.float16")
    with pytest.raises(NotImplementedError, match="without fp16"):
        load_experts(task).fa3({"q": q}, {}, task.sizes(workload), workload.scalars)


def test_interleaved_pairs_are_declined_by_liger():
    task = load_task("kernel/rotary/hd128_interleaved")
    workload = task.workloads_of(WorkloadRole.BENCH)[0]
    with pytest.raises(NotImplementedError, match="halved pairs"):
        load_experts(task).liger_rope({}, {}, task.sizes(workload), workload.scalars)


def test_deepgemm_is_for_bf16():
    task = load_task("kernel/gemm/fp16@hopper")
    workload = task.workloads_of(WorkloadRole.BENCH)[0]
    operand = SimpleNamespace(dtype="torch.float16")
    with pytest.raises(NotImplementedError, match="for bf16"):
        load_experts(task).deepgemm(
            {"a": operand, "b": operand}, {"c": operand}, task.sizes(workload), workload.scalars
        )


@pytest.mark.parametrize(
    ("name", "expert", "workload", "why"),
    [
        ("kernel/softmax/bf16", "quack_softmax", "gpt2_vocabulary", "16-byte"),
        ("kernel/softmax/fp32", "quack_softmax", "vit_attention", "16-byte"),
        ("module/cross_entropy/bf16", "quack_cross_entropy", "gpt2", "4-byte"),
    ],
)
def test_quack_declines_rows_of_odd_length(name, expert, workload, why):
    task = load_task(name)
    workload = next(w for w in task.workloads if w.name == workload)
    operand = SimpleNamespace(element_size=lambda: 4 if task.id.startswith("kernel/softmax/fp32") else 2)
    inputs = dict.fromkeys(("x", "logits", "labels"), operand)
    with pytest.raises(NotImplementedError, match=why):
        getattr(load_experts(task), expert)(inputs, {"y": operand}, task.sizes(workload), workload.scalars)


def test_flash_attention_3_is_the_first_choice():
    for task in TASKS:
        if task.family == "module/attention_fwd":
            assert task.experts[0].name == "fa3"
