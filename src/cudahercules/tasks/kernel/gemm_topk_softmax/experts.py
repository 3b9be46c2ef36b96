"""The panel for product, choice and softmax. Everything is imported when it is called.

Each function prepares one workload and returns ``run``; see ``cudahercules.replay.interface``.
"""

from functools import cache


def triton_fused(inputs, outputs, sizes, scalars):
    """Our own Triton kernel: a tile of rows against all columns, the choice among the accumulators, one round
    for each chosen column. The tile is autotuned."""
    if sizes["n"] > 256:
        raise NotImplementedError("this kernel keeps all columns of a row in registers, up to 256")
    import torch

    kernel, ceil = _kernel()
    a, b, d = inputs["a"], inputs["b"], outputs["d"]
    m, n, k = (sizes[name] for name in ("m", "n", "k"))
    width = max(16, 1 << (n - 1).bit_length())

    def grid(chosen):
        return (ceil(m, chosen["ROWS"]),)

    def run():
        kernel[grid](a, b, d, m, n, k, scalars["alpha"], TOP=sizes["top"], COLUMNS=width)

    run.versions = {"torch": torch.__version__}
    return run


def torch_compile(inputs, outputs, sizes, scalars):
    """cuBLAS to fp32, then ranks by counting, softmax and zeros, compiled: a column is chosen if fewer than
    TOP others come before it, which is right for equal products as well."""
    import torch

    choose = _choose(sizes["top"], scalars["alpha"])
    a, b = inputs["a"], inputs["b"].t()

    def run():
        return {"d": choose(torch.mm(a, b, out_dtype=torch.float32))}

    run.versions = {"torch": torch.__version__}
    return run


@cache
def _choose(top, alpha):
    """Compiled once a process and task."""
    import torch

    def choose(products):
        column = torch.arange(products.shape[1], device=products.device)
        mine, other = products[:, :, None], products[:, None, :]
        before = (other > mine) | ((other == mine) & (column[None, None, :] < column[None, :, None]))
        chosen = before.sum(2) < top
        weights = torch.exp(alpha * (products - products.amax(1, keepdim=True)))
        weights = torch.where(chosen, weights, 0.0)
        return (weights / weights.sum(1, keepdim=True)).half()

    return torch.compile(choose, mode="max-autotune-no-cudagraphs", dynamic=False)


@cache
def _kernel():
    """The Triton kernel and its rounded-up division. Triton looks names up in the module: ``global``."""
    global tl
    import triton
    import triton.language as tl

    configs = [
        triton.Config({"ROWS": rows, "DEPTH": depth}, num_warps=warps, num_stages=stages)
        for rows, warps in ((16, 1), (16, 4), (32, 4), (64, 4), (128, 4), (128, 8))
        for depth in (64, 128)
        for stages in (3, 5)
    ]

    def fits(configs, _positional, **named):
        """Without those whose stages or accumulators are too large."""
        width = named["COLUMNS"]
        return [
            c
            for c in configs
            if c.num_stages * c.kwargs["DEPTH"] * (c.kwargs["ROWS"] + width) * 2 <= 200_000
            and c.kwargs["ROWS"] * width <= 128 * 32 * c.num_warps
        ]

    @triton.autotune(configs=configs, key=["m", "n", "k"], prune_configs_by={"early_config_prune": fits})
    @triton.jit
    def choose(
        a,
        b,
        d,
        m,
        n,
        k,
        alpha,
        TOP: tl.constexpr,
        COLUMNS: tl.constexpr,
        ROWS: tl.constexpr,
        DEPTH: tl.constexpr,
    ):
        rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        columns = tl.arange(0, COLUMNS)
        depth = tl.arange(0, DEPTH)
        first = a + (rows % m)[:, None].to(tl.int64) * k + depth[None, :]
        second = b + (columns % n)[None, :].to(tl.int64) * k + depth[:, None]
        products = tl.zeros((ROWS, COLUMNS), tl.float32)
        for p in range(0, k, DEPTH):
            inside = depth < k - p
            x = tl.load(first + p, mask=inside[None, :], other=0.0)
            y = tl.load(second + p, mask=inside[:, None], other=0.0)
            products = tl.dot(x, y, products)
        left = tl.where((columns < n)[None, :], products, -float("inf"))
        largest = tl.max(left, axis=1)
        weights = tl.zeros((ROWS, COLUMNS), tl.float32)
        for _ in tl.static_range(TOP):
            value, place = tl.max(left, axis=1, return_indices=True, return_indices_tie_break_left=True)
            mine = (columns[None, :] == place[:, None]) & (value > -float("inf"))[:, None]
            weights = tl.where(mine, tl.exp(alpha * (value - largest))[:, None], weights)
            left = tl.where(mine, -float("inf"), left)
        weights /= tl.sum(weights, axis=1)[:, None]
        out = d + rows[:, None].to(tl.int64) * n + columns[None, :]
        tl.store(out, weights.to(tl.float16), mask=(rows < m)[:, None] & (columns < n)[None, :])

    return choose, triton.cdiv
