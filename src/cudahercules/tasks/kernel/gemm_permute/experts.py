"""The panel for the product with a permuted result. Everything is imported when it is called.

Each function prepares one workload and returns ``run``; see ``cudahercules.replay.interface``.
"""

from functools import cache

ORDERS = ((2, 0, 3, 1, 4), (2, 0, 3, 4, 1), (1, 0, 2, 3, 4))
"""Axes of the result among (batch, tokens, parts, heads, head_dim), by the member's `order`."""


def triton_permuting(inputs, outputs, sizes, scalars):
    """Our own Triton kernel: the product with every element stored at its place, autotuned."""
    import torch

    kernel, ceil = _kernel()
    k, d = sizes["k"], outputs["d"]
    m = sizes["batch"] * sizes["tokens"]
    n = sizes["parts"] * sizes["heads"] * sizes["head_dim"]
    a, b = inputs["a"].view(m, k), inputs["b"].view(k, n)
    shape = {name.upper(): sizes[name] for name in ("batch", "tokens", "parts", "heads", "head_dim", "order")}

    def grid(chosen):
        return (ceil(m, chosen["ROWS"]) * ceil(n, chosen["COLUMNS"]),)

    def run():
        kernel[grid](a, b, d, m, n, k, **shape)

    run.versions = {"torch": torch.__version__}
    return run


def cublaslt_then_permute(inputs, outputs, sizes, scalars):
    """The fastest product that cuBLASLt offers, then one copy in the new order."""
    import torch

    from cudahercules.measure.cublaslt import best_matmul, version

    rows = (sizes["batch"], sizes["tokens"])
    columns = (sizes["parts"], sizes["heads"], sizes["head_dim"])
    a, b = inputs["a"].view(-1, sizes["k"]), inputs["b"].view(sizes["k"], -1)
    product = torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)
    multiply = best_matmul(a, b, product)
    permuted, d = product.view(*rows, *columns).permute(ORDERS[sizes["order"]]), outputs["d"]

    def run():
        multiply()
        d.copy_(permuted)

    run.kept = multiply
    run.versions = {"cublasLt": version(), "torch": torch.__version__}
    return run


def torch_compile(inputs, outputs, sizes, scalars):
    """The whole as torch.compile lowers it in max-autotune: the permutation may join the epilogue."""
    import torch

    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    compiled = _compiled(
        *(sizes[name] for name in ("batch", "tokens", "parts", "heads", "head_dim", "order"))
    )
    a, b = inputs["a"].view(-1, sizes["k"]), inputs["b"].view(sizes["k"], -1)

    def run():
        return {"d": compiled(a, b)}

    run.versions = {"torch": torch.__version__}
    return run


@cache
def _compiled(batch, tokens, parts, heads, head_dim, order):
    """Compiled once a process and workload."""
    import torch

    def both(a, b):
        product = torch.mm(a, b).view(batch, tokens, parts, heads, head_dim)
        return product.permute(ORDERS[order]).contiguous()

    return torch.compile(both, mode="max-autotune-no-cudagraphs", dynamic=False)


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

    @triton.autotune(configs=configs, key=["m", "n", "k", "ORDER"])
    @triton.jit
    def multiply(
        a,
        b,
        d,
        m,
        n,
        k,
        BATCH: tl.constexpr,
        TOKENS: tl.constexpr,
        PARTS: tl.constexpr,
        HEADS: tl.constexpr,
        HEAD_DIM: tl.constexpr,
        ORDER: tl.constexpr,
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
        columns = within // height * COLUMNS + tl.arange(0, COLUMNS)
        depth = tl.arange(0, DEPTH)
        left = a + (rows % m)[:, None].to(tl.int64) * k + depth[None, :]
        right = b + depth[:, None].to(tl.int64) * n + (columns % n)[None, :]
        total = tl.zeros((ROWS, COLUMNS), tl.float32)
        for p in range(0, k, DEPTH):
            inside = depth < k - p
            x = tl.load(left, mask=inside[None, :], other=0.0)
            y = tl.load(right, mask=inside[:, None], other=0.0)
            total = tl.dot(x, y, total)
            left += DEPTH
            right += DEPTH * n
        batch, token = (rows // TOKENS).to(tl.int64), (rows % TOKENS).to(tl.int64)
        element, head = columns % HEAD_DIM, columns // HEAD_DIM
        of_part = (head // HEADS).to(tl.int64) * BATCH * HEADS * TOKENS * HEAD_DIM
        head = head % HEADS
        if ORDER == 0:
            of_row = batch * HEADS * TOKENS * HEAD_DIM + token * HEAD_DIM
            of_column = of_part + head * TOKENS * HEAD_DIM + element
        elif ORDER == 1:
            of_row = batch * HEADS * TOKENS * HEAD_DIM + token
            of_column = of_part + (head * HEAD_DIM + element) * TOKENS
        else:
            of_row = (token * BATCH + batch) * PARTS * HEADS * HEAD_DIM
            of_column = columns
        there = (rows < m)[:, None] & (columns < n)[None, :]
        tl.store(d + of_row[:, None] + of_column[None, :], total.to(tl.float16), mask=there)

    return multiply, triton.cdiv
