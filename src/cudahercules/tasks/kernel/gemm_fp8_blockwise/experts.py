"""The panel for FP8 products with scales of blocks. Everything is imported when it is called.

Each function prepares one workload and returns ``run``; see ``cudahercules.replay.interface``. Operands and
scales lie as cuBLASLt, PyTorch and DeepGEMM take them, where blocks along k are a multiple of 4.
"""


def cublaslt_search(inputs, outputs, sizes, scalars):
    """cuBLASLt with the fastest of the algorithms that its heuristics offer."""
    if sizes["b_rows"] == 128 and sizes["k_blocks"] % 4:
        raise NotImplementedError("cuBLASLt wants the scales of B at a pitch of a multiple of 4")
    from cudahercules.measure.cublaslt import Scaled, best_scaled_product

    scaled = (Scaled.ROW_PIECE, Scaled.BLOCK if sizes["b_rows"] == 128 else Scaled.ROW_PIECE)
    scales = (inputs["a_scale"], inputs["b_scale"])
    return best_scaled_product(inputs["a"], inputs["b"], outputs["c"], scales, scaled)


def torch_scaled_mm(inputs, outputs, sizes, scalars):
    """PyTorch's scaled product: cuBLASLt's first algorithm."""
    import torch

    a, b = inputs["a"], inputs["b"].t()
    a_scale, b_scale = inputs["a_scale"], inputs["b_scale"].t()

    def run():
        return {"c": torch._scaled_mm(a, b, a_scale, b_scale, out_dtype=torch.bfloat16)}

    run.versions = {"torch": torch.__version__}
    return run


def deepgemm(inputs, outputs, sizes, scalars):
    """DeepGEMM's warp-specialised Hopper kernel, compiled for the shape by its own JIT."""
    if sizes["b_rows"] != 128:
        raise NotImplementedError("DeepGEMM's Hopper kernel for such scales writes fp32")
    import deep_gemm
    import torch

    a, b, c = (inputs["a"], inputs["a_scale"]), (inputs["b"], inputs["b_scale"]), outputs["c"]

    def run():
        deep_gemm.fp8_gemm_nt(a, b, c, disable_ue8m0_cast=True)

    run.versions = {"deep_gemm": deep_gemm.__version__, "torch": torch.__version__}
    return run


def mslk_groupwise(inputs, outputs, sizes, scalars):
    """MSLK's CUTLASS kernel. It takes B's scales the other way round: turning them is part of the run."""
    if sizes["b_rows"] != 128:
        raise NotImplementedError("this kernel of MSLK takes a scale for 128 rows of B")
    import mslk.gemm  # registers torch.ops.mslk
    import torch

    a, b, b_scale = inputs["a"], inputs["b"], inputs["b_scale"]
    a_scale = inputs["a_scale"].t()  # k_blocks by m, dense

    def run():
        result = torch.ops.mslk.f8f8bf16_groupwise(a, b, a_scale, b_scale.t().contiguous())
        return {"c": result}

    run.versions = {"mslk": mslk.__version__, "torch": torch.__version__}
    return run
