"""The panel for INT8 products that are rounded back to INT8. Everything is imported when it is called.

Each function prepares one workload and returns ``run``; see ``cudahercules.replay.interface``.
"""

from functools import cache


def cublaslt_search(inputs, outputs, sizes, scalars):
    """cuBLASLt with the fastest of the algorithms that its heuristics offer; it scales in fp32 and rounds."""
    from cudahercules.measure.cublaslt import best_integer_product

    return best_integer_product(inputs["a"], inputs["b"], outputs["c"], scalars["scale"])


def triton_fused(inputs, outputs, sizes, scalars):
    """Our own Triton kernel: integer products of tensor cores, and the rounding in the epilogue. The tile is
    autotuned."""
    import torch

    kernel, ceil = _kernel()
    a, b, c, scale = inputs["a"], inputs["b"], outputs["c"], scalars["scale"]
    m, n, k = sizes["m"], sizes["n"], sizes["k"]

    def grid(chosen):
        return (ceil(m, chosen["ROWS"]) * ceil(n, chosen["COLUMNS"]),)

    def run():
        kernel[grid](a, b, c, m, n, k, scale)

    run.versions = {"torch": torch.__version__}
    return run


def torch_int_mm(inputs, outputs, sizes, scalars):
    """cuBLASLt's product in int32 as PyTorch calls it, then one generated kernel that scales and rounds."""
    if sizes["m"] <= 16:
        raise NotImplementedError("torch._int_mm takes more than 16 rows only")
    import torch

    a, b, c = inputs["a"], inputs["b"].t(), outputs["c"]
    rounded = _rounded(scalars["scale"])
    sums = torch.empty(c.shape, dtype=torch.int32, device=c.device)

    def run():
        torch._int_mm(a, b, out=sums)
        return {"c": rounded(sums)}

    run.versions = {"torch": torch.__version__}
    return run


@cache
def _rounded(scale):
    """Compiled once a process and scale."""
    import torch

    def rounded(sums):
        return (sums.float() * scale).round().clamp(-128, 127).to(torch.int8)

    return torch.compile(rounded, dynamic=False)


@cache
def _kernel():
    """The Triton kernel and its rounded-up division. Triton looks names up in the module: ``global``."""
    global tl, libdevice
    import triton
    import triton.language as tl
    from triton.language.extra import libdevice

    configs = [
        triton.Config(
            {"ROWS": rows, "COLUMNS": columns, "DEPTH": depth, "BAND": 8}, num_warps=warps, num_stages=stages
        )
        for rows, columns, depth, warps in (
            (16, 128, 128, 4),
            (64, 128, 128, 4),
            (128, 128, 128, 4),
            (128, 256, 64, 8),
            (128, 256, 128, 8),
            (256, 128, 128, 8),
        )
        for stages in (3, 4)
    ]

    @triton.autotune(configs=configs, key=["m", "n", "k"])
    @triton.jit
    def product(
        a,
        b,
        c,
        m,
        n,
        k,
        scale,
        ROWS: tl.constexpr,
        COLUMNS: tl.constexpr,
        DEPTH: tl.constexpr,
        BAND: tl.constexpr,
    ):
        # Programs go through bands of BAND row tiles, all column tiles of one before the next, for L2's sake.
        row_tiles, column_tiles = tl.cdiv(m, ROWS), tl.cdiv(n, COLUMNS)
        first_tile = tl.program_id(0) // (BAND * column_tiles) * BAND
        height = min(row_tiles - first_tile, BAND)
        within = tl.program_id(0) % (BAND * column_tiles)
        rows = (first_tile + within % height) * ROWS + tl.arange(0, ROWS)
        columns = within // height * COLUMNS + tl.arange(0, COLUMNS)
        depth = tl.arange(0, DEPTH)
        of_a = a + (rows % m).to(tl.int64)[:, None] * k + depth[None, :]  # what lies outside is not stored
        of_b = b + (columns % n).to(tl.int64)[:, None] * k + depth[None, :]
        total = tl.zeros((ROWS, COLUMNS), tl.int32)
        for p in range(0, k, DEPTH):
            there = (depth < k - p)[None, :]
            total = tl.dot(tl.load(of_a, there, 0), tl.load(of_b, there, 0).T, total, out_dtype=tl.int32)
            of_a += DEPTH
            of_b += DEPTH
        nearest = libdevice.rint(total.to(tl.float32) * scale)
        result = tl.minimum(tl.maximum(nearest, -128.0), 127.0).to(tl.int8)
        inside = (rows < m)[:, None] & (columns < n)[None, :]
        tl.store(c + rows.to(tl.int64)[:, None] * n + columns[None, :], result, mask=inside)

    return product, triton.cdiv
