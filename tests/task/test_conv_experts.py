"""What the panels of convolutions and attention ask PyTorch for, on the CPU: geometry, operands, layouts.

Kernels, searches and speed need a GPU. Here torch.compile is the identity, and operators that exist on a GPU
only have stand-ins. Half precision on the CPU rounds as it likes: answers are held to 5e-3, not to bounds.
"""

from types import SimpleNamespace

import array_api_compat.numpy as xnp
import numpy as np
import pytest

from cudahercules.replay.expert import load_experts
from cudahercules.task.inputs import generate
from cudahercules.task.load import BUNDLED, family_module, load_family
from cudahercules.task.model import WorkloadRole

torch = pytest.importorskip("torch")

FAMILIES = (
    "conv2d_fprop",
    "conv2d_fprop_bias_relu",
    "conv2d_fprop_prologue",
    "conv2d_wgrad",
    "conv2d_dgrad",
    "attention_mha",
)
GPU_LIBRARIES = ("cudnn_graph", "triton_then_cudnn_graph", "triton_fused", "triton_three_tf32", "fa3")
PANEL = [
    (task, expert.name)
    for family in FAMILIES
    for task in load_family(BUNDLED / "kernel" / family)
    if task.target == "general"
    for expert in task.experts
    if expert.name not in GPU_LIBRARIES
]
SOME = ("smoke", "odd", "dilated_strided", "dilated_three", "wide_filter", "cross", "many_sequences")


def fused_convolution(x, filter, z, alpha, bias, stride, padding, dilation, groups):
    y = torch.conv2d(x.float(), filter.float(), bias.float(), stride, padding, dilation, groups)
    y = (y + alpha * z.float()).relu().to(x.dtype)
    return y.contiguous(memory_format=torch.channels_last)


def fused_attention(q, k, v, causal, scale):
    whole = torch.nn.functional.scaled_dot_product_attention
    o = whole(q.float(), k.float(), v.float(), is_causal=causal, scale=scale).to(q.dtype)
    return o.transpose(1, 2).contiguous().transpose(1, 2), None


def cudnn_attention(q, k, v, bias, with_statistics, dropout, causal, with_debug_mask, *, scale):
    return fused_attention(q, k, v, causal, scale)


def flash_attention(q, k, v, dropout, causal, with_debug_mask, *, scale):
    return fused_attention(q, k, v, causal, scale)


def efficient_attention(q, k, v, bias, with_statistics, dropout, causal, *, scale):
    return fused_attention(q, k, v, causal, scale)


@pytest.fixture(autouse=True)
def without_a_gpu(monkeypatch):
    aten = SimpleNamespace(
        convolution_backward=torch.ops.aten.convolution_backward,
        _scaled_dot_product_cudnn_attention=cudnn_attention,
        _scaled_dot_product_flash_attention=flash_attention,
        _scaled_dot_product_efficient_attention=efficient_attention,
    )
    monkeypatch.setattr(torch, "ops", SimpleNamespace(aten=aten))
    monkeypatch.setattr(torch, "compile", lambda f, **_: f)
    monkeypatch.setattr(torch, "cudnn_convolution_add_relu", fused_convolution)


@pytest.mark.parametrize(("task", "expert"), PANEL, ids=[f"{t.id}-{e}" for t, e in PANEL])
def test_experts_compute_the_task_and_write_its_layout(task, expert):
    (tensor,) = task.outputs
    answered = 0
    for workload in task.workloads_of(WorkloadRole.SMOKE, WorkloadRole.CHECK):
        if workload.name not in SOME and expert != "product_and_shuffle":
            continue
        values = {t.name: generate(task, t, workload, 3) for t in task.inputs}
        wide = {name: x.astype(np.float64) for name, x in values.items()}
        sizes, scalars = task.sizes(workload), workload.scalars
        expected = family_module(task).reference(wide, sizes, scalars, xnp)[tensor.name]
        inputs = {name: torch.from_numpy(x.copy()) for name, x in values.items()}
        dtype = next(iter(inputs.values())).dtype
        outputs = {tensor.name: torch.full(expected.shape, torch.nan, dtype=dtype)}
        try:
            run = getattr(load_experts(task), expert)(inputs, outputs, sizes, scalars)
        except NotImplementedError:
            continue
        getattr(run, "prepare", lambda: None)()
        got = {**outputs, **(run() or {})}[tensor.name]
        assert tuple(got.shape) == expected.shape, workload.name
        assert got.dtype == dtype
        assert got.is_contiguous(), workload.name
        error = np.linalg.norm(got.double().numpy() - expected) / np.linalg.norm(expected)
        assert error < 5e-3, workload.name
        answered += 1
    assert answered >= 1
