"""The panel for grouped products with weights of few bits. Everything is imported when it is called.

Each function prepares one workload and returns ``run``; see ``cudahercules.replay.interface``. Weights are
rearranged in ``run.prepare``, as a candidate may in ``prepare``.
"""

from functools import cache


def triton_decoding(inputs, outputs, sizes, scalars):
    """Our own Triton kernel: tiles within an expert's rows, found from the lengths on the GPU; the transposed
    product with weights decoded into the register operand. Four-bit weights are repacked so that a byte holds
    weights 64 apart. The tile is autotuned."""
    import torch

    kernel, ceil = _kernel()
    rows, experts, n, groups = (sizes[name] for name in ("rows", "experts", "n", "groups"))
    a, w, scale, length, c = (*(inputs[x] for x in ("a", "w", "scale", "length")), outputs["c"])
    packed = torch.empty_like(w) if sizes["format"] == 4 else w

    def grid(chosen):
        return (ceil(n, chosen["COLUMNS"]) * (rows // chosen["ROWS"] + experts),)

    def run():
        kernel[grid](
            a, packed, scale, length, c, experts, n, groups, FORMAT=sizes["format"], GROUP=sizes["group"]
        )

    def repack():
        for expert in range(experts):
            q = torch.stack([w[expert] & 15, w[expert] >> 4], dim=-1).view(n, groups, 2, -1)
            torch.bitwise_or(q[:, :, 0], q[:, :, 1] << 4, out=packed[expert])

    if sizes["format"] == 4:
        run.prepare = repack
    run.versions = {"torch": torch.__version__}
    return run


def torch_grouped_mm(inputs, outputs, sizes, scalars):
    """Weights decoded to bf16 in preparation, then PyTorch's grouped product (CUTLASS)."""
    import torch

    rows, experts, n, groups, group = (sizes[x] for x in ("rows", "experts", "n", "groups", "group"))
    w, scale, length = inputs["w"], inputs["scale"], inputs["length"]
    a = inputs["a"].view(rows, -1)
    dense = torch.empty((experts, n, groups * group), dtype=torch.bfloat16, device=w.device)

    def decode():
        for expert in range(experts):
            q = w[expert]
            if sizes["format"] == 4:
                q = torch.stack([q & 15, q >> 4], dim=-1).view(n, groups, group).to(torch.int8)
                q = torch.where(q >= 8, q - 16, q)
            scaled = q.float() * scale[expert].t()[:, :, None].float()
            dense[expert] = scaled.view(n, -1).to(torch.bfloat16)

    def run():
        ends = torch.cumsum(length, dim=0, dtype=torch.int32)
        return {"c": torch._grouped_mm(a, dense.transpose(1, 2), offs=ends)}

    run.prepare = decode
    run.versions = {"torch": torch.__version__}
    return run


def mslk_shuffled_grouped(inputs, outputs, sizes, scalars):
    """MSLK's grouped CUTLASS kernel for four-bit weights, shuffled by its own operator in preparation."""
    if sizes["format"] != 4:
        raise NotImplementedError("MSLK multiplies bf16 with four-bit weights only")
    if sizes["n"] % 8:
        raise NotImplementedError("MSLK's kernel takes multiples of 8 columns only")
    import mslk.gemm  # registers torch.ops.mslk
    import torch

    rows, experts, n = sizes["rows"], sizes["experts"], sizes["n"]
    a, scale, length = inputs["a"].view(rows, -1), inputs["scale"], inputs["length"]
    w = inputs["w"].view(experts, n, -1).view(torch.int8)
    zero = torch.zeros_like(scale)
    shuffled, shuffled_scale = torch.empty_like(w), torch.empty_like(scale)

    def shuffle():
        torch.cuda.synchronize()  # the operator may work on another stream
        for expert in range(experts):
            made = torch.ops.mslk.preshuffle_i4(w[expert], scale[expert])
            torch.cuda.synchronize()
            shuffled[expert] = made[0].view_as(shuffled[expert])
            shuffled_scale[expert] = made[1].view_as(shuffled_scale[expert])

    def run():
        lengths = length.long()
        c = torch.ops.mslk.bf16i4bf16_shuffled_grouped(a, shuffled, shuffled_scale, zero, lengths)
        return {"c": c}

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
        triton.Config({"COLUMNS": columns, "ROWS": rows}, num_warps=warps, num_stages=stages)
        for columns, rows, warps in (
            (64, 16, 4),
            (128, 16, 4),
            (64, 32, 4),
            (64, 64, 4),
            (128, 64, 4),
            (128, 128, 8),
            (128, 256, 8),
        )
        for stages in (3, 4, 6)
        if rows * stages <= 768
    ]

    @triton.autotune(configs=configs, key=["experts", "n", "groups", "FORMAT"])
    @triton.jit
    def product(
        a,
        w,
        scale,
        length,
        c,
        experts,
        n,
        groups,
        FORMAT: tl.constexpr,
        GROUP: tl.constexpr,
        COLUMNS: tl.constexpr,
        ROWS: tl.constexpr,
    ):
        # All column tiles of a row tile come one after the other; row tiles of one expert are neighbours.
        column_tiles = tl.cdiv(n, COLUMNS)
        tile = tl.program_id(0) // column_tiles
        expert, begin, end = -1, 0, 0
        passed, at = 0, 0
        for e in range(experts):
            size = tl.load(length + e)
            tiles = tl.cdiv(size, ROWS)
            mine = (tile >= passed) & (tile < passed + tiles)
            expert = tl.where(mine, e, expert)
            begin = tl.where(mine, at + (tile - passed) * ROWS, begin)
            end = tl.where(mine, at + size, end)
            passed += tiles
            at += size
        if expert < 0:
            return
        columns = tl.program_id(0) % column_tiles * COLUMNS + tl.arange(0, COLUMNS)
        rows = begin + tl.arange(0, ROWS)
        column = columns % n  # what lies outside is computed and not stored
        row = tl.where(rows < end, rows, begin)
        half: tl.constexpr = GROUP // 2
        depth: tl.constexpr = half if FORMAT == 4 else GROUP
        matrix = w + expert.to(tl.int64) * n * groups * depth
        weights = matrix + column[:, None].to(tl.int64) * groups * depth + tl.arange(0, depth)[None, :]
        activations = a + row[None, :].to(tl.int64) * groups * GROUP + tl.arange(0, depth)[:, None]
        factors = scale + expert.to(tl.int64) * groups * n + column
        total = tl.zeros((COLUMNS, ROWS), tl.float32)
        for g in range(groups):
            factor = tl.load(factors + g * n).to(tl.float32)
            q = tl.load(weights)
            x = tl.load(activations)
            if FORMAT == 4:
                word = q.to(tl.int32)
                part = tl.dot(((word << 28) >> 28).to(tl.bfloat16), x)
                part = tl.dot(((word << 24) >> 28).to(tl.bfloat16), tl.load(activations + half), part)
            else:
                part = tl.dot(q.to(tl.bfloat16), x)
            weights += depth
            activations += GROUP
            total += part * factor[:, None]
        there = (columns < n)[:, None] & (rows < end)[None, :]
        tl.store(c + rows[None, :].to(tl.int64) * n + columns[:, None], total.to(tl.bfloat16), mask=there)

    return product, triton.cdiv
