"""The panel for attention. Everything is imported when it is called.

Each function prepares one workload and returns ``run``; see ``cudahercules.replay.interface``. Tensors are
(batch, heads, length, head_dim); libraries that want (batch, length, heads, head_dim) get views.
"""


def fa3(inputs, outputs, sizes, scalars):
    """FlashAttention-3: warp-specialised Hopper kernels, written straight into o. The wheel has bf16 only
    (its fa3_fwd_config says so); head dimension 32 runs in the kernels for 64."""
    if str(inputs["q"].dtype) == "torch.float16":
        raise NotImplementedError("fa3-fwd 0.0.3 is built without fp16")
    _on_hopper()
    import fa3_fwd_interface  # noqa: F401  (registers the operator)
    import torch

    return _flash_attention_3(torch.ops.fa3_fwd.fwd, (), "fa3-fwd", inputs, outputs, sizes, scalars)


def fa3_tokenspeed(inputs, outputs, sizes, scalars):
    """FlashAttention-3 again, in a build that has fp16 as well but no kernels for head dimension 96, which
    runs in those for 128."""
    _on_hopper()
    import flash_attn_interface  # noqa: F401  (registers the operator)
    import torch

    no_sinks = (None,)
    fwd = torch.ops.flash_attn_3.fwd
    return _flash_attention_3(fwd, no_sinks, "tokenspeed-fa3", inputs, outputs, sizes, scalars)


def _flash_attention_3(fwd, last_options, package, inputs, outputs, sizes, scalars):
    """``run`` for one build of FlashAttention-3, whose operator takes every option by position."""
    import torch

    q, k, v = (inputs[name].transpose(1, 2) for name in "qkv")
    o, causal = outputs["o"].transpose(1, 2), bool(sizes["causal"])
    # Between these come the options of paged, packed and quantised attention.
    before_lengths = (q, k, v, None, None, None, o)
    options = [None] * 16
    after_options = (scalars["scale"], causal, -1, -1, 0, 0.0, True, None, 1, None, 0, *last_options)

    def run():
        _, lse, *_ = fwd(*before_lengths, *options, *after_options)
        return {"o": outputs["o"], "lse": lse}

    run.versions = {package: _version(package), "torch": torch.__version__}
    return run


def cudnn(inputs, outputs, sizes, scalars):
    """cuDNN's fused attention as PyTorch calls it, with the statistics as for training. PyTorch itself sends
    head dimensions over 128 elsewhere; the operator hands them to cuDNN, which may decline."""
    if sizes["causal"] and sizes["q_len"] != sizes["kv_len"]:
        raise NotImplementedError("PyTorch's cuDNN attention aligns the causal mask at the upper left corner")
    import torch

    q, k, v = (inputs[name] for name in "qkv")
    causal, scale = bool(sizes["causal"]), scalars["scale"]
    attention = torch.ops.aten._scaled_dot_product_cudnn_attention

    def run():
        o, lse, *_ = attention(q, k, v, None, True, 0.0, causal, False, scale=scale)
        return {"o": o, "lse": lse.reshape(outputs["lse"].shape)}

    if sizes["head_dim"] > 128:
        _decline_what_cudnn_declines(run, sizes["head_dim"])
    run.versions = {"cudnn": str(torch.backends.cudnn.version()), "torch": torch.__version__}
    return run


def fa2(inputs, outputs, sizes, scalars):
    """FlashAttention-2 as PyTorch ships it. The operator aligns the causal mask at the lower right corner
    (torch/nn/attention/bias.py uses it for that). Where it lays o out by position before head, one copy is
    charged."""
    import torch

    q, k, v = (inputs[name] for name in "qkv")
    causal, scale = bool(sizes["causal"]), scalars["scale"]
    attention = torch.ops.aten._scaled_dot_product_flash_attention

    def run():
        o, lse, *_ = attention(q, k, v, 0.0, causal, False, scale=scale)
        if not o.is_contiguous():
            o = outputs["o"].copy_(o)
        return {"o": o, "lse": lse}

    run.versions = {"torch": torch.__version__}
    return run


def _on_hopper():
    """Declines other GPUs than those of sm_90."""
    import torch

    major, minor = torch.cuda.get_device_capability()
    if major != 9:
        raise NotImplementedError(
            f"FlashAttention-3's kernels are for sm_90, and this GPU is sm_{major}{minor}"
        )


def _decline_what_cudnn_declines(run, head_dim):
    """Tries once: cuDNN's front end says in an error of its own that it has no plan. Another error comes
    again when ``run`` is warmed up, and counts as what it is."""
    try:
        run()
    except RuntimeError as error:
        if "cuDNN Frontend error" in str(error):
            raise NotImplementedError(
                f"this version of cuDNN has no plan for head dimension {head_dim}"
            ) from error


def _version(package):
    from importlib.metadata import version

    return version(package)
