"""The panel for FP8 products with scales. Everything is imported when it is called.

Each function prepares one workload and returns ``run``; see ``cudahercules.replay.interface``. B lies n by k,
as every FP8 library takes it.
"""


def cublaslt_search(inputs, outputs, sizes, scalars):
    """cuBLASLt with the fastest of the algorithms that its heuristics offer, sums left in the tensor core."""
    from cudahercules.measure.cublaslt import Scaled, best_scaled_product

    kind = Scaled.ROW if sizes["row_scales"] else Scaled.MATRIX
    scales = (inputs["a_scale"], inputs["b_scale"])
    return best_scaled_product(inputs["a"], inputs["b"], outputs["c"], scales, (kind, kind))


def torch_scaled_mm(inputs, outputs, sizes, scalars):
    """PyTorch's scaled product: cuBLASLt for one scale a matrix, CUTLASS or cuBLASLt for scales a row."""
    import torch

    a, b, c = inputs["a"], inputs["b"].t(), outputs["c"]
    a_scale, b_scale = inputs["a_scale"], inputs["b_scale"]
    if sizes["row_scales"]:
        a_scale, b_scale = a_scale[:, None], b_scale[None, :]

    def run():
        result = torch._scaled_mm(a, b, a_scale, b_scale, out_dtype=c.dtype, use_fast_accum=True)
        return {"c": result}

    run.versions = {"torch": torch.__version__}
    return run


def mslk_rowwise(inputs, outputs, sizes, scalars):
    """MSLK's CUTLASS kernel with a scale a row in its epilogue."""
    if not sizes["row_scales"]:
        raise NotImplementedError("this kernel of MSLK takes one scale a row")
    import mslk.gemm  # registers torch.ops.mslk
    import torch

    a, b = inputs["a"], inputs["b"]
    a_scale, b_scale, c = inputs["a_scale"], inputs["b_scale"], outputs["c"]

    def run():
        torch.ops.mslk.f8f8bf16_rowwise_out(a, b, a_scale, b_scale, c)

    run.versions = {"mslk": mslk.__version__, "torch": torch.__version__}
    return run
