"""The panel for product, normalisation, product. Everything is imported when it is called.

Each function prepares one workload and returns ``run``; see ``cudahercules.replay.interface``. The first
product and the normalised numbers pass through fp16, as the task allows.
"""

from functools import cache


def cublaslt_layernorm_cublaslt(inputs, outputs, sizes, scalars):
    """The fastest products that cuBLASLt offers, and one generated kernel that normalises in between."""
    import torch

    from cudahercules.measure.cublaslt import best_matmul, version

    x, gamma, beta, y = inputs["x"], inputs["gamma"], inputs["beta"], outputs["y"]
    z = torch.empty((sizes["m"], sizes["hidden"]), dtype=x.dtype, device=x.device)
    normalised = torch.empty_like(z)
    first = best_matmul(x, inputs["w0"], z, "32f")
    second = best_matmul(normalised, inputs["w1"], y, "32f")
    normalise = _compiled_layer_norm(scalars["eps"])

    def run():
        first()
        normalise(z, gamma, beta, normalised)
        second()

    run.versions = {"cublasLt": version(), "torch": torch.__version__}
    return run


def torch_eager(inputs, outputs, sizes, scalars):
    """cuBLAS, PyTorch's normalisation kernel, cuBLAS."""
    import torch

    _keep_sums_in_fp32()
    x, w0, gamma, beta, w1 = (inputs[name] for name in ("x", "w0", "gamma", "beta", "w1"))

    def run():
        z = torch.mm(x, w0)
        torch.mm(torch.layer_norm(z, z.shape[1:], gamma, beta, scalars["eps"]), w1, out=outputs["y"])

    run.versions = {"torch": torch.__version__}
    return run


def _keep_sums_in_fp32():
    import torch

    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False


@cache
def _compiled_layer_norm(eps):
    """Compiled once a process and eps."""
    import torch

    def normalise(z, gamma, beta, out):
        out.copy_(torch.layer_norm(z, z.shape[1:], gamma, beta, eps))

    return torch.compile(normalise, mode="max-autotune-no-cudagraphs", dynamic=False)
