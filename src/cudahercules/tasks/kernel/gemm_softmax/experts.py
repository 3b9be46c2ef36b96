"""The panel for product and softmax. Everything is imported when it is called.

Each function prepares one workload and returns ``run``; see ``cudahercules.replay.interface``. Products pass
through fp16, as the task allows: half the traffic of fp32.
"""

from functools import cache


def cublaslt_fused_softmax(inputs, outputs, sizes, scalars):
    """The fastest product that cuBLASLt offers, written in fp16; then one generated kernel that scales,
    takes the softmax and rounds."""
    import torch

    from cudahercules.measure.cublaslt import best_matmul, version

    a, b = inputs["a"], inputs["b"]
    products = torch.empty((sizes["m"], sizes["n"]), dtype=torch.float16, device=a.device)
    multiply = best_matmul(a, b, products, "32f")
    softmax = _compiled_softmax(outputs["d"].dtype, scalars["alpha"])

    def run():
        multiply()
        return {"d": softmax(products)}

    run.versions = {"cublasLt": version(), "torch": torch.__version__}
    return run


def torch_compile(inputs, outputs, sizes, scalars):
    """The whole as torch.compile lowers it in max-autotune: the scale may join the product's epilogue."""
    import torch

    _keep_sums_in_fp32()
    compiled = _compiled(outputs["d"].dtype, scalars["alpha"])

    def run():
        return {"d": compiled(inputs["a"], inputs["b"])}

    run.versions = {"torch": torch.__version__}
    return run


def torch_eager(inputs, outputs, sizes, scalars):
    """cuBLAS, a scaling kernel and PyTorch's softmax kernel."""
    import torch

    _keep_sums_in_fp32()
    alpha, dtype = scalars["alpha"], outputs["d"].dtype

    def run():
        products = torch.mm(inputs["a"], inputs["b"])
        return {"d": torch.softmax(products.float() * alpha, dim=-1).to(dtype)}

    run.versions = {"torch": torch.__version__}
    return run


def _keep_sums_in_fp32():
    import torch

    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False


@cache
def _compiled_softmax(dtype, alpha):
    """Compiled once a process, type and scale."""
    import torch

    def softmax(products):
        return torch.softmax(products.float() * alpha, dim=-1).to(dtype)

    return torch.compile(softmax, mode="max-autotune-no-cudagraphs", dynamic=False)


@cache
def _compiled(dtype, alpha):
    import torch

    def both(a, b):
        return torch.softmax(torch.mm(a, b).float() * alpha, dim=-1).to(dtype)

    return torch.compile(both, mode="max-autotune-no-cudagraphs", dynamic=False)
