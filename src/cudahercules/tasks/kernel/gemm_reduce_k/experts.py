"""The panel for the product with sums along k. Everything is imported when it is called.

Each function prepares one workload and returns ``run``; see ``cudahercules.replay.interface``.
"""

from functools import cache


def cublaslt_bias_gradient(inputs, outputs, sizes, scalars):
    """cuBLASLt with its bias-gradient epilogue, the fastest of the algorithms that its heuristics offer."""
    from cudahercules.measure.cublaslt import best_product_with_sums

    return best_product_with_sums(inputs["a"], inputs["b"], outputs["c"], outputs["sum"])


def triton_fused(inputs, outputs, sizes, scalars):
    """Our own Triton kernel: programs of the first column of tiles add up the tiles of A that they load."""
    import torch

    kernel, ceil = _kernel()
    m, n, k = (sizes[name] for name in ("m", "n", "k"))
    tensors = (inputs["a"], inputs["b"], outputs["c"], outputs["sum"])

    def grid(chosen):
        return (ceil(m, chosen["ROWS"]) * ceil(n, chosen["COLUMNS"]),)

    def run():
        kernel[grid](*tensors, m, n, k)

    run.versions = {"torch": torch.__version__}
    return run


def torch_mm_and_sum(inputs, outputs, sizes, scalars):
    """cuBLAS for the product and PyTorch's reduction for the sums, on two streams."""
    import torch

    matmul = torch.backends.cuda.matmul
    matmul.allow_fp16_reduced_precision_reduction = False
    matmul.allow_bf16_reduced_precision_reduction = False
    a, b, c, total = inputs["a"], inputs["b"], outputs["c"], outputs["sum"]
    side = torch.cuda.Stream()

    def run():
        here = torch.cuda.current_stream()
        side.wait_stream(here)
        with torch.cuda.stream(side):
            torch.sum(a, dim=0, out=total)
        torch.mm(a.t(), b, out=c)
        here.wait_stream(side)

    run.versions = {"torch": torch.__version__}
    return run


@cache
def _kernel():
    """The Triton kernel and its rounded-up division. Triton looks names up in the module: ``global``."""
    global tl
    import triton
    import triton.language as tl

    configs = [
        triton.Config({"ROWS": rows, "COLUMNS": columns, "DEPTH": 64}, num_warps=warps, num_stages=stages)
        for rows, columns, warps in ((128, 256, 8), (256, 128, 8), (128, 128, 4), (128, 128, 8), (64, 128, 4))
        for stages in (3, 4)
    ]

    @triton.autotune(configs=configs, key=["m", "n", "k"])
    @triton.jit
    def multiply(
        a,
        b,
        c,
        sums,
        m,
        n,
        k,
        ROWS: tl.constexpr,
        COLUMNS: tl.constexpr,
        DEPTH: tl.constexpr,
    ):
        # Programs go through bands of eight row tiles, for L2's sake.
        row_tiles, column_tiles = tl.cdiv(m, ROWS), tl.cdiv(n, COLUMNS)
        first_tile = tl.program_id(0) // (8 * column_tiles) * 8
        height = min(row_tiles - first_tile, 8)
        within = tl.program_id(0) % (8 * column_tiles)
        rows = (first_tile + within % height) * ROWS + tl.arange(0, ROWS)
        column_tile = within // height
        columns = column_tile * COLUMNS + tl.arange(0, COLUMNS)
        depth = tl.arange(0, DEPTH)
        left = a + depth[:, None].to(tl.int64) * m + (rows % m)[None, :]
        right = b + depth[:, None].to(tl.int64) * n + (columns % n)[None, :]
        total = tl.zeros((ROWS, COLUMNS), tl.float32)
        if column_tile == 0:
            of_rows = tl.zeros((ROWS,), tl.float32)
            for p in range(0, k, DEPTH):
                inside = depth < k - p
                x = tl.load(left, mask=inside[:, None], other=0.0)
                y = tl.load(right, mask=inside[:, None], other=0.0)
                total = tl.dot(tl.trans(x), y, total)
                of_rows += tl.sum(x.to(tl.float32), axis=0)
                left += DEPTH * m
                right += DEPTH * n
            tl.store(sums + rows, of_rows.to(sums.dtype.element_ty), mask=rows < m)
        else:
            for p in range(0, k, DEPTH):
                inside = depth < k - p
                x = tl.load(left, mask=inside[:, None], other=0.0)
                y = tl.load(right, mask=inside[:, None], other=0.0)
                total = tl.dot(tl.trans(x), y, total)
                left += DEPTH * m
                right += DEPTH * n
        there = (rows < m)[:, None] & (columns < n)[None, :]
        out = c + rows[:, None].to(tl.int64) * n + columns[None, :]
        tl.store(out, total.to(c.dtype.element_ty), mask=there)

    return multiply, triton.cdiv
