"""The panel for multi-head attention. Everything is imported when it is called.

Each function prepares one workload and returns ``run``; see ``cudahercules.replay.interface``. Tensors are
(batch, length, heads, head_dim); PyTorch wants (batch, heads, length, head_dim) and gets views.
"""


def cudnn(inputs, outputs, sizes, scalars):
    """cuDNN's fused attention as PyTorch calls it, without statistics."""
    import torch

    q, k, v = _heads_second(inputs)
    causal, scale = bool(sizes["causal"]), scalars["scale"]
    attention = torch.ops.aten._scaled_dot_product_cudnn_attention

    def run():
        o, *_ = attention(q, k, v, None, False, 0.0, causal, False, scale=scale)
        return {"o": _dense(o, outputs["o"])}

    run.versions = {"cudnn": str(torch.backends.cudnn.version()), "torch": torch.__version__}
    return run


def fa3(inputs, outputs, sizes, scalars):
    """FlashAttention-3: warp-specialised Hopper kernels, written straight into o."""
    _equal_lengths_or_full(sizes, "FlashAttention-3")
    if str(inputs["q"].dtype) == "torch.float16":
        raise NotImplementedError("fa3-fwd 0.0.3 is built without fp16")
    import torch

    major, minor = torch.cuda.get_device_capability()
    if major != 9:
        raise NotImplementedError(
            f"FlashAttention-3's kernels are for sm_90, and this GPU is sm_{major}{minor}"
        )
    import fa3_fwd_interface  # noqa: F401  (registers the operator)

    # fwd takes every option of paged, packed and quantised attention by position.
    before_lengths = (inputs["q"], inputs["k"], inputs["v"], None, None, None, outputs["o"])
    options = [None] * 16
    causal = bool(sizes["causal"])
    after_options = (scalars["scale"], causal, -1, -1, 0, 0.0, True, None, 1, None, 0)

    def run():
        torch.ops.fa3_fwd.fwd(*before_lengths, *options, *after_options)

    run.versions = {"fa3-fwd": _version("fa3-fwd"), "torch": torch.__version__}
    return run


def fa2(inputs, outputs, sizes, scalars):
    """FlashAttention-2 as PyTorch ships it."""
    _equal_lengths_or_full(sizes, "FlashAttention-2")
    import torch

    q, k, v = _heads_second(inputs)
    causal, scale = bool(sizes["causal"]), scalars["scale"]
    attention = torch.ops.aten._scaled_dot_product_flash_attention

    def run():
        o, *_ = attention(q, k, v, 0.0, causal, False, scale=scale)
        return {"o": _dense(o, outputs["o"])}

    run.versions = {"torch": torch.__version__}
    return run


def cutlass_41(inputs, outputs, sizes, scalars):
    """PyTorch's memory-efficient attention, whose kernels CUTLASS shows as example 41."""
    import torch

    q, k, v = _heads_second(inputs)
    causal, scale = bool(sizes["causal"]), scalars["scale"]
    attention = torch.ops.aten._scaled_dot_product_efficient_attention

    def run():
        o, *_ = attention(q, k, v, None, False, 0.0, causal, scale=scale)
        return {"o": _dense(o, outputs["o"])}

    run.versions = {"torch": torch.__version__}
    return run


def _heads_second(inputs):
    return tuple(inputs[name].transpose(1, 2) for name in "qkv")


def _dense(o, place):
    """o with its heads second, in the task's order: a view where the library lays it out so, else a copy,
    which is charged."""
    seen = o.transpose(1, 2)
    return seen if seen.is_contiguous() else place.copy_(seen)


def _equal_lengths_or_full(sizes, what):
    """Declines causal masks over unequal lengths."""
    if sizes["causal"] and sizes["q_len"] != sizes["kv_len"]:
        raise NotImplementedError(f"{what} aligns the causal mask at the lower right corner")


def _version(package):
    from importlib.metadata import version

    return version(package)
