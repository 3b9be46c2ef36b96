"""The panel for rotary embedding. Everything is imported when it is called.

Each function prepares one workload and returns ``run``; see ``cudahercules.replay.interface``.
"""

from functools import cache
from pathlib import Path


def tuned(inputs, outputs, sizes, scalars):
    """Our own kernel in tuned.cu. An expert with a CUDA source of its name is built, recorded and
    replayed as a plan, exactly like a candidate; this function is never run on tensors."""
    return Path(__file__).with_name("tuned.cu")


def flashinfer_rope(inputs, outputs, sizes, scalars):
    """FlashInfer's gather-and-rotate kernel, out of place, fp32 table, both pair styles."""
    import flashinfer
    import torch

    head_dim, neox = sizes["head_dim"], not sizes["interleaved"]
    q = inputs["q"].view(sizes["tokens"], -1)
    k = inputs["k"].view(sizes["tokens"], -1)
    position, table = inputs["position"], inputs["cos_sin"]

    def run():
        q_out, k_out = flashinfer.apply_rope_with_cos_sin_cache(position, q, k, head_dim, table, is_neox=neox)
        return {
            "q_out": q_out.view(outputs["q_out"].shape),
            "k_out": k_out.view(outputs["k_out"].shape),
        }

    run.versions = {"flashinfer": flashinfer.__version__, "torch": torch.__version__}
    return run


def torch_compile(inputs, outputs, sizes, scalars):
    """The formula in fp32, fused by torch.compile, autotuned."""
    import torch

    compiled = _compiled(sizes["head_dim"] // 2, bool(sizes["interleaved"]))

    def run():
        q_out, k_out = compiled(inputs["q"], inputs["k"], inputs["position"], inputs["cos_sin"])
        return {"q_out": q_out, "k_out": k_out}

    run.versions = {"torch": torch.__version__}
    return run


@cache
def _compiled(half, interleaved):
    """The formula for one member, compiled once a process."""
    import torch

    def rotate(x, cos, sin):
        x = x.float()
        if interleaved:
            first, second = x[..., 0::2], x[..., 1::2]
            pairs = torch.stack([first * cos - second * sin, second * cos + first * sin], dim=-1)
            return pairs.flatten(-2).to(torch.bfloat16)
        first, second = x[..., :half], x[..., half:]
        rotated = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
        return rotated.to(torch.bfloat16)

    def both(q, k, position, table):
        rows = table[position.long()]
        cos, sin = rows[:, None, :half], rows[:, None, half:]
        return rotate(q, cos, sin), rotate(k, cos, sin)

    return torch.compile(both, mode="max-autotune-no-cudagraphs", dynamic=False)


def liger_rope(inputs, outputs, sizes, scalars):
    """Liger's Triton kernel. It works in place on halved pairs and takes rows of cosines and sines, so
    the values are copied and the table's rows gathered first; interleaved pairs it cannot do."""
    if sizes["interleaved"]:
        raise NotImplementedError("Liger's rope kernel knows halved pairs only")
    import liger_kernel.ops.rope as rope
    import torch

    half = sizes["head_dim"] // 2
    q_out, k_out = outputs["q_out"], outputs["k_out"]

    def run():
        rows = inputs["cos_sin"][inputs["position"].long()]
        cos = torch.cat([rows[:, :half]] * 2, dim=-1)[None]
        sin = torch.cat([rows[:, half:]] * 2, dim=-1)[None]
        q_out.copy_(inputs["q"])
        k_out.copy_(inputs["k"])
        # (batch, heads, tokens, head_dim) views of contiguous (batch, tokens, heads, head_dim) memory
        q, k, _, _ = rope.rope_forward(q_out[None].transpose(1, 2), k_out[None].transpose(1, 2), cos, sin)
        return {"q_out": q.transpose(1, 2)[0], "k_out": k.transpose(1, 2)[0]}

    run.versions = {"torch": torch.__version__}
    return run
