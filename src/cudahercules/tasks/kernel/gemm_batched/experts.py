"""The panel for batched products. Everything is imported when it is called.

Each function prepares one workload and returns ``run``, which writes ``outputs``; see
``cudahercules.replay.interface``.
"""

from functools import cache


def cublaslt_search(inputs, outputs, sizes, scalars):
    """cuBLASLt with the fastest of the algorithms that its heuristics offer; sums in fp32. It runs
    without torch: the operands are places on the device."""
    from cudahercules.measure.cublaslt import best_product

    return best_product(inputs["a"], inputs["b"], outputs["c"], "32f")


def torch_bmm(inputs, outputs, sizes, scalars):
    """cuBLAS as PyTorch calls it; sums in fp32."""
    import torch

    _full_precision()
    a, b, c = inputs["a"], inputs["b"], outputs["c"]

    def run():
        torch.bmm(a, b, out=c)

    run.versions = {"torch": torch.__version__}
    return run


def torch_compile_max_autotune(inputs, outputs, sizes, scalars):
    """torch.compile in max-autotune: the best of cuBLAS and generated Triton kernels."""
    import torch

    _full_precision()
    compiled = _compiled()
    a, b = inputs["a"], inputs["b"]

    def run():
        return {"c": compiled(a, b)}

    run.versions = {"torch": torch.__version__}
    return run


def _full_precision():
    """True fp32 products, and no reductions in half precision."""
    import torch

    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


@cache
def _compiled():
    """Compiled once a process; every instance and workload after that finds its code."""
    import torch

    return torch.compile(lambda a, b: torch.bmm(a, b), mode="max-autotune-no-cudagraphs", dynamic=False)
