"""The panel for norm and product with few rows. Everything is imported when it is called.

Each function prepares one workload and returns ``run``; see ``cudahercules.replay.interface``. h passes
through bf16, as the task allows.
"""

from functools import cache


def cublaslt_after_norm(inputs, outputs, sizes, scalars):
    """The norm as one generated kernel, then the fastest product that cuBLASLt offers."""
    import torch

    from cudahercules.measure.cublaslt import best_matmul, version

    x, gain, c = inputs["x"], inputs["gain"], outputs["c"]
    normalise = _compiled_norm(scalars["eps"])
    h = torch.empty_like(x)
    multiply = best_matmul(h, inputs["w"], c, "32f", transposed=True)

    def run():
        normalise(x, gain, h)
        multiply()

    run.versions = {"cublasLt": version(), "torch": torch.__version__}
    return run


def torch_compile(inputs, outputs, sizes, scalars):
    """The whole as torch.compile lowers it in max-autotune."""
    import torch

    _keep_sums_in_fp32()
    compiled = _compiled(scalars["eps"])
    x, gain, w = inputs["x"], inputs["gain"], inputs["w"]

    def run():
        return {"c": compiled(x, gain, w)}

    run.versions = {"torch": torch.__version__}
    return run


def torch_eager(inputs, outputs, sizes, scalars):
    """PyTorch's own kernel for the norm, and cuBLAS."""
    import torch
    import torch.nn.functional as functional

    _keep_sums_in_fp32()
    x, gain, w, eps, k = inputs["x"], inputs["gain"], inputs["w"], scalars["eps"], sizes["k"]

    def run():
        return {"c": functional.linear(functional.rms_norm(x, (k,), gain, eps), w)}

    run.versions = {"torch": torch.__version__}
    return run


def _keep_sums_in_fp32():
    import torch

    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


def _norm(x, gain, eps):
    import torch

    wide = x.float()
    return (wide * torch.rsqrt((wide * wide).mean(1, keepdim=True) + eps) * gain.float()).to(x.dtype)


@cache
def _compiled_norm(eps):
    """Compiled once a process and eps; writes its last argument."""
    import torch

    def normalise(x, gain, h):
        h.copy_(_norm(x, gain, eps))

    return torch.compile(normalise, dynamic=False)


@cache
def _compiled(eps):
    import torch

    def both(x, gain, w):
        return torch.mm(_norm(x, gain, eps), w.t())

    return torch.compile(both, mode="max-autotune-no-cudagraphs", dynamic=False)
