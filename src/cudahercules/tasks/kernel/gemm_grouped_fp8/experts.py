"""The panel for grouped FP8 products with scales of blocks. Everything is imported when it is called.

Each function prepares one workload and returns ``run``; see ``cudahercules.replay.interface``. Lengths are
data, so whatever is computed from them is part of the run. B and its scales are weights, for ``run.prepare``.
"""

from functools import cache


def torch_grouped_mm(inputs, outputs, sizes, scalars):
    """PyTorch's grouped product in bf16 (CUTLASS on Hopper): the weights are scaled and rounded to bf16
    in preparation, the activations by one generated kernel in the run."""
    import torch

    block, n, k = sizes["block"], sizes["n"], sizes["k"]
    a, a_scale, group_tiles = inputs["a"], inputs["a_scale"], inputs["group_tiles"]
    b, b_scale = inputs["b"], inputs["b_scale"]
    weights = torch.empty(b.shape, dtype=torch.bfloat16, device=a.device)
    transposed, scaled = weights.transpose(1, 2), _scaled(block)

    def decode():
        for group in range(sizes["groups"]):  # one at a time: in fp32 all would be large
            spread = b_scale[group].repeat_interleave(block, 0)[:n].repeat_interleave(block, 1)[:, :k]
            weights[group] = (b[group].float() * spread).to(torch.bfloat16)

    def run():
        offsets = torch.cumsum(group_tiles, 0, dtype=torch.int32) * block
        rows = scaled(a, a_scale)
        return {"c": torch._grouped_mm(rows, transposed, offs=offsets, out_dtype=torch.bfloat16)}

    run.prepare = decode
    run.versions = {"torch": torch.__version__}
    return run


def deepgemm(inputs, outputs, sizes, scalars):
    """DeepGEMM's warp-specialised Hopper kernel, compiled for the shape by its own JIT. It wants every row's
    group, which is spread from the lengths in the run."""
    import deep_gemm
    import torch

    a, b, c = (inputs["a"], inputs["a_scale"]), (inputs["b"], inputs["b_scale"]), outputs["c"]
    groups = torch.arange(sizes["groups"], dtype=torch.int32, device=c.device)
    group_tiles, rows, block = inputs["group_tiles"], sizes["m"], sizes["block"]

    def run():
        row_groups = torch.repeat_interleave(groups, group_tiles * block, output_size=rows)
        deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, b, c, row_groups, disable_ue8m0_cast=True)

    run.versions = {"deep_gemm": deep_gemm.__version__, "torch": torch.__version__}
    return run


@cache
def _scaled(block):
    """Scaled activations in bf16, compiled once a process."""
    import torch

    def scaled(a, scale):
        return (a.float() * scale.repeat_interleave(block, 1)[:, : a.shape[1]]).to(torch.bfloat16)

    return torch.compile(scaled, dynamic=False)
