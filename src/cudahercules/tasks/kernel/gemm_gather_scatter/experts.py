"""The panel for gathered and scattered rows. Everything is imported when it is called.

Each function prepares one workload and returns ``run``, which changes D in place; see
``cudahercules.replay.interface``.
"""

from functools import cache
from pathlib import Path


def fused_hopper(inputs, outputs, sizes, scalars):
    """Our own kernel in fused_hopper.cu, replayed as a plan; this function is never run on tensors."""
    return Path(__file__).with_name("fused_hopper.cu")


def cublas_between_copies(inputs, outputs, sizes, scalars):
    """PyTorch's gather, cuBLAS with results in fp32, and PyTorch's scattered addition (atomic)."""
    import torch

    _keep_sums_in_fp32()
    a, b, d, source, target = (inputs[name] for name in ("a", "b", "d", "gather", "scatter"))
    rows = torch.empty((sizes["pairs"], sizes["k"]), dtype=a.dtype, device=a.device)

    def run():
        torch.index_select(a, 0, source, out=rows)
        d.index_add_(0, target, torch.mm(rows, b, out_dtype=torch.float32))

    run.versions = {"torch": torch.__version__}
    return run


def torch_compile(inputs, outputs, sizes, scalars):
    """The three steps as torch.compile lowers them: the scattered addition is a generated kernel."""
    import torch

    _keep_sums_in_fp32()
    step = _compiled()
    a, b, d, source, target = (inputs[name] for name in ("a", "b", "d", "gather", "scatter"))

    def run():
        step(d, a, b, source, target)

    run.versions = {"torch": torch.__version__}
    return run


@cache
def _compiled():
    """Compiled once a process."""
    import torch

    def step(d, a, b, source, target):
        d.index_add_(0, target, torch.mm(a[source], b, out_dtype=torch.float32))

    return torch.compile(step, mode="max-autotune-no-cudagraphs", dynamic=False)


def _keep_sums_in_fp32():
    import torch

    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
