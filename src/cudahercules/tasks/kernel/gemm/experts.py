"""The panel for the matrix product. Everything is imported when it is called.

Each function prepares one workload and returns ``run``, which writes ``outputs``; see
``cudahercules.replay.interface`` for the rules. ``fp32`` and ``tf32`` operands are both float32 tensors;
the member's constant ``allow_tf32`` says whether TF32 is allowed.
"""

from functools import cache


def cublaslt_search(inputs, outputs, sizes, scalars):
    """cuBLASLt with the fastest of the algorithms that its heuristics offer; sums in fp32, or in fp64
    for fp64. It runs without torch: the operands are places on the device."""
    from cudahercules.measure.cublaslt import best_product

    compute = "32f_fast_tf32" if sizes["allow_tf32"] else "32f"
    compute = "64f" if inputs["a"].dtype == "fp64" else compute
    return best_product(inputs["a"], inputs["b"], outputs["c"], compute)


def torch_mm(inputs, outputs, sizes, scalars):
    """cuBLAS as PyTorch calls it; sums in fp32, and TF32 only where the member allows it."""
    import torch

    _set_precision(sizes)
    a, b, c = inputs["a"], inputs["b"], outputs["c"]

    def run():
        torch.mm(a, b, out=c)

    run.versions = {"torch": torch.__version__}
    return run


def torch_compile_max_autotune(inputs, outputs, sizes, scalars):
    """torch.compile in max-autotune: the best of cuBLAS and generated Triton kernels."""
    import torch

    _set_precision(sizes)
    compiled = _compiled()
    a, b = inputs["a"], inputs["b"]

    def run():
        return {"c": compiled(a, b)}

    run.versions = {"torch": torch.__version__}
    return run


def deepgemm(inputs, outputs, sizes, scalars):
    """DeepGEMM's warp-specialised Hopper kernel, compiled for the shape by its own JIT."""
    a, b, c = inputs["a"], inputs["b"], outputs["c"]
    if str(a.dtype) != "torch.bfloat16":
        raise NotImplementedError("DeepGEMM's dense product without scales is for bf16")
    import deep_gemm
    import torch

    def run():
        deep_gemm.bf16_gemm_nn(a, b, c)

    run.versions = {"deep_gemm": deep_gemm.__version__, "torch": torch.__version__}
    return run


def _set_precision(sizes):
    """True fp32 products or TF32, and no reductions in half precision."""
    import torch

    matmul = torch.backends.cuda.matmul
    matmul.allow_tf32 = bool(sizes["allow_tf32"])
    torch.set_float32_matmul_precision("high" if sizes["allow_tf32"] else "highest")
    matmul.allow_fp16_reduced_precision_reduction = False
    matmul.allow_bf16_reduced_precision_reduction = False


@cache
def _compiled():
    """Compiled once a process; every instance and workload after that finds its code."""
    import torch

    return torch.compile(lambda a, b: torch.mm(a, b), mode="max-autotune-no-cudagraphs", dynamic=False)
