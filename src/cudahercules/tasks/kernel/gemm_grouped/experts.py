"""The panel for grouped products. Everything is imported when it is called.

Each function prepares one workload and returns ``run``; see ``cudahercules.replay.interface``. Lengths are
data, so whatever is computed from them is part of the run.
"""


def torch_grouped_mm(inputs, outputs, sizes, scalars):
    """PyTorch's grouped product (CUTLASS on Hopper), with offsets from one cumulative sum."""
    import torch

    a, b, group_rows = inputs["a"], inputs["b"].transpose(1, 2), inputs["group_rows"]

    def run():
        offsets = torch.cumsum(group_rows, 0, dtype=torch.int32)
        return {"c": torch._grouped_mm(a, b, offs=offsets, out_dtype=torch.bfloat16)}

    run.versions = {"torch": torch.__version__}
    return run


def mslk_grouped(inputs, outputs, sizes, scalars):
    """MSLK's CUTLASS kernel over stacked rows; it wants lengths in 64 bits."""
    import mslk.gemm  # registers torch.ops.mslk
    import torch

    a, b, group_rows, c = inputs["a"], inputs["b"], inputs["group_rows"], outputs["c"]

    def run():
        torch.ops.mslk.bf16bf16bf16_grouped_stacked(a, b, group_rows.to(torch.int64), c)

    run.versions = {"mslk": mslk.__version__, "torch": torch.__version__}
    return run
