"""The panel for attention. Everything is imported when it is called.

Each function prepares one workload and returns ``run``; see ``cudahercules.replay.interface``. Tensors are
(batch, heads, length, head_dim); libraries that want (batch, length, heads, head_dim) get views.
"""


def fa3(inputs, outputs, sizes, scalars):
    """FlashAttention-3: warp-specialised Hopper kernels, written straight into o."""
    import torch

    major, minor = torch.cuda.get_device_capability()
    if major != 9:
        raise NotImplementedError(
            f"FlashAttention-3's kernels are for sm_90, and this GPU is sm_{major}{minor}"
        )
    import fa3_fwd_interface  # noqa: F401  (registers the operator)

    q, k, v = (inputs[name].transpose(1, 2) for name in "qkv")
    o, causal = outputs["o"].transpose(1, 2), bool(sizes["causal"])
    # fwd takes every option of paged, packed and quantised attention by position.
    before_lengths = (q, k, v, None, None, None, o)
    options = [None] * 16
    after_options = (scalars["scale"], causal, -1, -1, 0, 0.0, True, None, 1, None, 0)

    def run():
        _, lse, *_ = torch.ops.fa3_fwd.fwd(*before_lengths, *options, *after_options)
        return {"o": outputs["o"], "lse": lse}

    run.versions = {"fa3-fwd": _version("fa3-fwd"), "torch": torch.__version__}
    return run


def cudnn(inputs, outputs, sizes, scalars):
    """cuDNN's fused attention as PyTorch calls it, with the statistics as for training."""
    _equal_lengths_or_full(sizes, "PyTorch's cuDNN attention")
    import torch

    q, k, v = (inputs[name] for name in "qkv")
    causal, scale = bool(sizes["causal"]), scalars["scale"]
    attention = torch.ops.aten._scaled_dot_product_cudnn_attention

    def run():
        o, lse, *_ = attention(q, k, v, None, True, 0.0, causal, False, scale=scale)
        return {"o": o, "lse": lse.reshape(outputs["lse"].shape)}

    run.versions = {"cudnn": str(torch.backends.cudnn.version()), "torch": torch.__version__}
    return run


def fa2(inputs, outputs, sizes, scalars):
    """FlashAttention-2 as PyTorch ships it. It lays o out by position before head: one copy is charged."""
    _equal_lengths_or_full(sizes, "PyTorch's FlashAttention-2")
    import torch

    q, k, v = (inputs[name] for name in "qkv")
    causal, scale = bool(sizes["causal"]), scalars["scale"]
    attention = torch.ops.aten._scaled_dot_product_flash_attention

    def run():
        o, lse, *_ = attention(q, k, v, 0.0, causal, False, scale=scale)
        outputs["o"].copy_(o)
        return {"o": outputs["o"], "lse": lse}

    run.versions = {"torch": torch.__version__}
    return run


def _equal_lengths_or_full(sizes, what):
    """Declines causal masks over more keys than queries."""
    if sizes["causal"] and sizes["q_len"] != sizes["kv_len"]:
        raise NotImplementedError(f"{what} aligns the causal mask at the upper left corner")


def _version(package):
    from importlib.metadata import version

    return version(package)
