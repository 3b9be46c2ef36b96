"""The panel for the fp32 matrix product. Everything is imported when it is called.

Each function prepares one workload and returns ``run``, which writes ``outputs``; see
``cudahercules.replay.interface`` for the rules.
"""

from functools import cache


def cublaslt_search(inputs, outputs, sizes, scalars):
    """cuBLASLt in true fp32 with the fastest of the algorithms that its heuristics offer."""
    import torch

    from cudahercules.measure.cublaslt import best_matmul, version

    run = best_matmul(inputs["a"], inputs["b"], outputs["c"], "32f")
    run.versions = {"cublasLt": version(), "torch": torch.__version__}
    return run


def torch_mm(inputs, outputs, sizes, scalars):
    """cuBLAS as PyTorch calls it, in true fp32 (TF32 switched off)."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    a, b, c = inputs["a"], inputs["b"], outputs["c"]

    def run():
        torch.mm(a, b, out=c)

    run.versions = {"torch": torch.__version__}
    return run


def torch_compile_max_autotune(inputs, outputs, sizes, scalars):
    """torch.compile in max-autotune: the best of cuBLAS and generated Triton kernels, in true fp32."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    compiled = _compiled()
    a, b = inputs["a"], inputs["b"]

    def run():
        return {"c": compiled(a, b)}

    run.versions = {"torch": torch.__version__}
    return run


@cache
def _compiled():
    """Compiled once a process; every instance and workload after that finds its code."""
    import torch

    return torch.compile(lambda a, b: torch.mm(a, b), mode="max-autotune-no-cudagraphs", dynamic=False)
