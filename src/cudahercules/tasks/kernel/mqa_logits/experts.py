"""The panel for indexer scores. Everything is imported when it is called.

Each function prepares one workload and returns ``run``; see ``cudahercules.replay.interface``.
"""

from functools import cache


def triton_fused(inputs, outputs, sizes, scalars):
    """Our own Triton kernel: FP8 products of two queries' heads with a tile of keys, ReLU and weighted sum in
    registers; tiles outside both ranges are only filled. The tile is autotuned."""
    import torch

    kernel, ceil = _kernel()
    queries, columns = sizes["queries"], sizes["columns"]
    tensors = [inputs[n] for n in ("q", "k", "k_scale", "w", "first", "end")]
    logits = outputs["logits"]

    def grid(chosen):
        return (ceil(queries, chosen["PAIR"]), ceil(columns, chosen["TILE"] * chosen["TILES"]))

    def run():
        kernel[grid](
            *tensors,
            logits,
            queries,
            sizes["keys"],
            columns,
            HEADS=sizes["heads"],
            HEAD_DIM=sizes["head_dim"],
        )

    run.versions = {"torch": torch.__version__}
    return run


def deepgemm(inputs, outputs, sizes, scalars):
    """DeepGEMM's kernel for exactly this, and its fill of what lies outside the ranges. It allocates rows
    padded to a multiple of 256 columns, with at least 256 behind the last key, and fills all of these if the
    row ends with the fill's own block of 8192."""
    keys, columns = sizes["keys"], sizes["columns"]
    if columns != (keys + 256 + 255) // 256 * 256 or (columns > 8192 and columns % 8192):
        raise NotImplementedError("DeepGEMM pads the rows of logits otherwise than this workload")
    import deep_gemm
    import torch

    q, k, w = inputs["q"], (inputs["k"], inputs["k_scale"]), inputs["w"]
    first, end = inputs["first"], inputs["end"]

    def run():
        logits = deep_gemm.fp8_mqa_logits(q, k, w, first, end, clean_logits=True)
        if logits.stride(0) != columns:
            raise NotImplementedError("this version of DeepGEMM pads the rows of logits otherwise")
        return {"logits": logits.as_strided((sizes["queries"], columns), (columns, 1))}

    run.versions = {"deep_gemm": deep_gemm.__version__, "torch": torch.__version__}
    return run


def torch_compile(inputs, outputs, sizes, scalars):
    """cuBLAS products in FP8 with fp32 scores, a piece of the queries at a time; the rest is compiled."""
    import torch

    queries, heads, keys = sizes["queries"], sizes["heads"], sizes["keys"]
    if keys % 16:
        raise NotImplementedError("cuBLAS multiplies FP8 matrices with multiples of 16 columns only")
    step = max(1, (1 << 28) // (heads * keys))
    one = torch.ones((), device=inputs["q"].device)
    keys_t, fold, logits = inputs["k"].t(), _fold(), outputs["logits"]
    logits_keys = logits[:, :keys]

    def run():
        logits[:, keys:].fill_(-float("inf"))
        for i in range(0, queries, step):
            piece = slice(i, min(i + step, queries))
            rows = inputs["q"][piece].reshape(-1, sizes["head_dim"])
            scores = torch._scaled_mm(rows, keys_t, one, one, out_dtype=torch.float32, use_fast_accum=True)
            mine = (inputs[n][piece] for n in ("w", "first", "end"))
            logits_keys[piece] = fold(scores.view(-1, heads, keys), inputs["k_scale"], *mine)

    run.versions = {"torch": torch.__version__}
    return run


@cache
def _fold():
    """ReLU, weights, sum over heads, scale and mask, compiled once a process."""
    import torch

    def fold(scores, k_scale, w, first, end):
        total = (torch.relu(scores) * w[:, :, None]).sum(1) * k_scale
        place = torch.arange(total.shape[1], device=total.device)
        inside = (place >= first[:, None]) & (place < end[:, None])
        return torch.where(inside, total, -float("inf"))

    return torch.compile(fold, mode="max-autotune-no-cudagraphs", dynamic=False)


@cache
def _kernel():
    """The Triton kernel and its rounded-up division. Triton looks names up in the module: ``global``."""
    global tl
    import triton
    import triton.language as tl

    def config(pair, tile, tiles, warps, stages):
        sizes = {"PAIR": pair, "TILE": tile, "TILES": tiles}
        return triton.Config(sizes, num_warps=warps, num_stages=stages)

    configs = [
        config(pair, tile, 16, warps, stages)
        for pair, tile, warps in ((2, 64, 4), (2, 128, 4), (2, 128, 8), (2, 256, 8), (1, 128, 4), (4, 64, 8))
        for stages in (2, 4)
    ]

    @triton.autotune(configs=configs, key=["queries", "keys", "HEADS"])
    @triton.jit
    def scores(
        q,
        k,
        k_scale,
        w,
        first,
        end,
        logits,
        queries,
        keys,
        columns,
        HEADS: tl.constexpr,
        HEAD_DIM: tl.constexpr,
        PAIR: tl.constexpr,
        TILE: tl.constexpr,
        TILES: tl.constexpr,
    ):
        mine = tl.program_id(0) * PAIR + tl.arange(0, PAIR)
        rows = tl.program_id(0) * PAIR * HEADS + tl.arange(0, PAIR * HEADS)
        depth = tl.arange(0, HEAD_DIM)
        there = rows < queries * HEADS
        operand = tl.load(
            q + rows[:, None].to(tl.int64) * HEAD_DIM + depth[None, :], mask=there[:, None], other=0.0
        )
        weight = tl.load(w + rows, mask=there, other=0.0)
        low = tl.load(first + mine, mask=mine < queries, other=keys)
        high = tl.load(end + mine, mask=mine < queries, other=0)
        lowest, highest = tl.min(low, axis=0), tl.max(high, axis=0)
        out = logits + mine[:, None].to(tl.int64) * columns
        begin = tl.program_id(1) * TILE * TILES
        stop = min(begin + TILE * TILES, columns)
        # Tiles that some of these queries see, and those before and behind them.
        from_tile = max(begin, min(stop, lowest // TILE * TILE))
        to_tile = max(from_tile, min(stop, highest))
        minus_infinity = tl.full((PAIR, TILE), -float("inf"), tl.float32)
        for start in range(begin, from_tile, TILE):
            place = start + tl.arange(0, TILE)
            writes = (mine < queries)[:, None] & (place < columns)[None, :]
            tl.store(out + place[None, :], minus_infinity, mask=writes)
        for start in range(from_tile, to_tile, TILE):
            place = start + tl.arange(0, TILE)
            writes = (mine < queries)[:, None] & (place < columns)[None, :]
            real = place < keys
            key = tl.load(k + place[None, :] * HEAD_DIM + depth[:, None], mask=real[None, :], other=0.0)
            score = tl.maximum(tl.dot(operand, key), 0.0) * weight[:, None]
            total = tl.sum(tl.reshape(score, (PAIR, HEADS, TILE)), axis=1)
            total *= tl.load(k_scale + place, mask=real, other=0.0)[None, :]
            inside = (place[None, :] >= low[:, None]) & (place[None, :] < high[:, None])
            tl.store(out + place[None, :], tl.where(inside, total, -float("inf")), mask=writes)
        behind = from_tile + tl.cdiv(to_tile - from_tile, TILE) * TILE
        for start in range(behind, stop, TILE):
            place = start + tl.arange(0, TILE)
            writes = (mine < queries)[:, None] & (place < columns)[None, :]
            tl.store(out + place[None, :], minus_infinity, mask=writes)

    return scores, triton.cdiv
