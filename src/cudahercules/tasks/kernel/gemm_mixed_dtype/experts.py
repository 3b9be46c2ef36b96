"""The panel for products with weights of few bits. Everything is imported when it is called.

Each function prepares one workload and returns ``run``; see ``cudahercules.replay.interface``. Weights are
rearranged in ``run.prepare``, as a candidate may in ``prepare``.
"""

from functools import cache


def triton_decoding(inputs, outputs, sizes, scalars):
    """Our own Triton kernel: the transposed product, with weights decoded into the register operand of
    Hopper's warpgroup products and a sum a group that is scaled in fp32. Four-bit weights are repacked so
    that a byte holds weights 64 apart. The tile is autotuned."""
    import torch

    kernel, ceil = _kernel()
    m, n, groups = sizes["m"], sizes["n"], sizes["groups"]
    a, w, scale, c = inputs["a"], inputs["w"], inputs["scale"], outputs["c"]
    packed = torch.empty_like(w) if sizes["format"] == 4 else w

    def grid(chosen):
        return (ceil(n, chosen["COLUMNS"]) * ceil(m, chosen["ROWS"]),)

    def run():
        kernel[grid](a, packed, scale, c, m, n, groups, FORMAT=sizes["format"], GROUP=sizes["group"])

    def repack():
        q = torch.stack([w & 15, w >> 4], dim=-1).view(n, groups, 2, -1)
        torch.bitwise_or(q[:, :, 0], q[:, :, 1] << 4, out=packed)

    if sizes["format"] == 4:
        run.prepare = repack
    run.versions = {"torch": torch.__version__}
    return run


def cublaslt_decoded(inputs, outputs, sizes, scalars):
    """Weights decoded to bf16 in preparation, then the fastest dense product that cuBLASLt offers."""
    import torch

    from cudahercules.measure.cublaslt import best_matmul, version

    m, n, groups, group = (sizes[name] for name in ("m", "n", "groups", "group"))
    w, scale = inputs["w"], inputs["scale"]
    dense = torch.empty((n, groups * group), dtype=torch.bfloat16, device=w.device)
    step = max(1, (1 << 27) // (groups * group))

    def decode():
        for first in range(0, n, step):
            piece = slice(first, min(first + step, n))
            q = w[piece]
            if sizes["format"] == 4:
                q = torch.stack([q & 15, q >> 4], dim=-1).view(-1, groups, group).to(torch.int8)
                q = torch.where(q >= 8, q - 16, q)
            scaled = q.float() * scale[:, piece].t()[:, :, None].float()
            dense[piece] = scaled.view(-1, groups * group).to(torch.bfloat16)

    decode()  # the search runs on real weights
    run = best_matmul(inputs["a"].view(m, -1), dense, outputs["c"], transposed=True)
    run.prepare = decode
    run.versions = {"cublasLt": version(), "torch": torch.__version__}
    return run


def mslk_shuffled(inputs, outputs, sizes, scalars):
    """MSLK's CUTLASS kernel for four-bit weights, shuffled by its own operator in preparation."""
    if sizes["format"] != 4:
        raise NotImplementedError("MSLK multiplies bf16 with four-bit weights only")
    if sizes["n"] % 8:
        raise NotImplementedError("MSLK's kernel takes multiples of 8 columns only")
    import mslk.gemm  # registers torch.ops.mslk
    import torch

    m, n = sizes["m"], sizes["n"]
    a, scale = inputs["a"].view(m, -1), inputs["scale"]
    w = inputs["w"].view(n, -1).view(torch.int8)
    zero = torch.zeros_like(scale)
    shuffled, shuffled_scale = torch.empty_like(w), torch.empty_like(scale)

    def shuffle():
        torch.cuda.synchronize()  # the operator may work on another stream
        made = torch.ops.mslk.preshuffle_i4(w, scale)
        torch.cuda.synchronize()
        shuffled.copy_(made[0].view_as(shuffled))
        shuffled_scale.copy_(made[1].view_as(shuffled_scale))

    def run():
        return {"c": torch.ops.mslk.bf16i4bf16_shuffled(a, shuffled, shuffled_scale, zero)}

    run.prepare = shuffle
    run.versions = {"mslk": mslk.__version__, "torch": torch.__version__}
    return run


@cache
def _kernel():
    """The Triton kernel and its rounded-up division. Triton looks names up in the module: ``global``."""
    global tl
    import triton
    import triton.language as tl

    configs = [
        triton.Config({"COLUMNS": columns, "ROWS": rows, "BAND": 8}, num_warps=warps, num_stages=stages)
        for columns, rows, warps in (
            (64, 16, 4),
            (128, 16, 4),
            (64, 64, 4),
            (64, 128, 4),
            (128, 64, 4),
            (128, 128, 8),
            (128, 256, 8),
        )
        for stages in (3, 4, 6)
        if rows * stages <= 1024
    ]

    @triton.autotune(configs=configs, key=["m", "n", "groups", "FORMAT"])
    @triton.jit
    def product(
        a,
        w,
        scale,
        c,
        m,
        n,
        groups,
        FORMAT: tl.constexpr,
        GROUP: tl.constexpr,
        COLUMNS: tl.constexpr,
        ROWS: tl.constexpr,
        BAND: tl.constexpr,
    ):
        # Programs go through bands of BAND column tiles, all row tiles of one before the next, for L2's sake.
        row_tiles, column_tiles = tl.cdiv(m, ROWS), tl.cdiv(n, COLUMNS)
        first_tile = tl.program_id(0) // (BAND * row_tiles) * BAND
        width = min(column_tiles - first_tile, BAND)
        within = tl.program_id(0) % (BAND * row_tiles)
        columns = (first_tile + within % width) * COLUMNS + tl.arange(0, COLUMNS)
        rows = within // width * ROWS + tl.arange(0, ROWS)
        column, row = columns % n, rows % m  # what lies outside is computed and not stored
        half: tl.constexpr = GROUP // 2
        if FORMAT == 4:
            weights = w + column[:, None].to(tl.int64) * groups * half + tl.arange(0, half)[None, :]
            low_rows = a + row[None, :].to(tl.int64) * groups * GROUP + tl.arange(0, half)[:, None]
        else:
            weights = w + column[:, None].to(tl.int64) * groups * GROUP + tl.arange(0, GROUP)[None, :]
            low_rows = a + row[None, :].to(tl.int64) * groups * GROUP + tl.arange(0, GROUP)[:, None]
        total = tl.zeros((COLUMNS, ROWS), tl.float32)
        for g in range(groups):
            factor = tl.load(scale + g * n + column).to(tl.float32)
            q = tl.load(weights)
            activations = tl.load(low_rows)
            if FORMAT == 4:
                word = q.to(tl.int32)
                low = ((word << 28) >> 28).to(tl.bfloat16)
                high = ((word << 24) >> 28).to(tl.bfloat16)
                part = tl.dot(low, activations)
                part = tl.dot(high, tl.load(low_rows + half), part)
                weights += half
            else:
                part = tl.dot(q.to(tl.bfloat16), activations)
                weights += GROUP
            low_rows += GROUP
            total += part * factor[:, None]
        there = (columns < n)[:, None] & (rows < m)[None, :]
        tl.store(c + rows[None, :].to(tl.int64) * n + columns[:, None], total.to(tl.bfloat16), mask=there)

    return product, triton.cdiv
