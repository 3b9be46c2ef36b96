"""The panel for attention backward. Everything is imported when it is called.

Each function prepares one workload and returns ``run``; see ``cudahercules.replay.interface``. Tensors are
(batch, length, heads, head_dim), as FlashAttention wants them; PyTorch's operators get views by head.
"""


def cudnn(inputs, outputs, sizes, scalars):
    """cuDNN's fused backward as PyTorch calls it. PyTorch itself sends head dimensions over 128 elsewhere;
    the operator hands them to cuDNN, which may decline."""
    if sizes["causal"] and sizes["q_len"] not in (1, sizes["kv_len"]):
        raise NotImplementedError("PyTorch's cuDNN attention aligns the causal mask at the upper left corner")
    import torch

    q, k, v, o, dout = (inputs[name].transpose(1, 2) for name in ("q", "k", "v", "o", "dout"))
    causal, scale = bool(sizes["causal"]) and sizes["q_len"] > 1, scalars["scale"]  # one query sees all
    aten = torch.ops.aten
    # The forward pass, once: for the shape that its log-sum-exp has in this version, and the seed and
    # offset of a dropout that is none.
    forward = _or_decline(
        lambda: aten._scaled_dot_product_cudnn_attention(
            q, k, v, None, True, 0.0, causal, False, scale=scale
        ),
        sizes["head_dim"],
    )
    _, like, *lengths, seed, offset, _ = forward
    lse = inputs["lse"].reshape(like.shape)

    def run():
        dq, dk, dv = aten._scaled_dot_product_cudnn_attention_backward(
            dout, q, k, v, o, lse, seed, offset, None, *lengths, 0.0, causal, scale=scale
        )
        return _by_position(dq, dk, dv, outputs)

    _or_decline(run, sizes["head_dim"])
    run.versions = {"cudnn": str(torch.backends.cudnn.version()), "torch": torch.__version__}
    return run


def fa3(inputs, outputs, sizes, scalars):
    """FlashAttention-3's backward, which no wheel for PyTorch contains: both builds of its forward pass on
    PyPI are made without it, and the JAX wheels that have it are no use here. This is for machines where
    FlashAttention's hopper directory was built from source (it installs as flash_attn_3)."""
    import flash_attn_interface  # noqa: F401  (registers the operator)
    import torch

    major, minor = torch.cuda.get_device_capability()
    if major != 9:
        raise NotImplementedError(
            f"FlashAttention-3's kernels are for sm_90, and this GPU is sm_{major}{minor}"
        )
    operands = [inputs[name] for name in ("dout", "q", "k", "v", "o", "lse")]
    grads = [outputs[name] for name in ("dq", "dk", "dv")]
    lengths = [None] * 6
    options = (scalars["scale"], bool(sizes["causal"]), -1, -1, 0.0, False, 0)

    def run():
        torch.ops.flash_attn_3.bwd(*operands, *grads, *lengths, *options)

    run.versions = {"flash-attn-3": _version("flash-attn-3"), "torch": torch.__version__}
    return run


def fa2(inputs, outputs, sizes, scalars):
    """FlashAttention-2's backward as PyTorch ships it. The operator aligns the causal mask at the lower
    right corner. Heads of a group are added up by a kernel of PyTorch's own."""
    import torch

    q, k, v, o, dout = (inputs[name].transpose(1, 2) for name in ("q", "k", "v", "o", "dout"))
    lse, causal, scale = inputs["lse"], bool(sizes["causal"]), scalars["scale"]
    aten = torch.ops.aten
    # The forward pass, once: for lengths, and for the seed and offset of a dropout that is none.
    forward = aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, False, scale=scale)
    _, _, *lengths, seed, offset, _ = forward

    def run():
        dq, dk, dv = aten._scaled_dot_product_flash_attention_backward(
            dout, q, k, v, o, lse, *lengths, 0.0, causal, seed, offset, scale=scale
        )
        return _by_position(dq, dk, dv, outputs)

    run.versions = {"torch": torch.__version__}
    return run


def _by_position(dq, dk, dv, outputs):
    """Gradients by head as outputs by position: views where they lie so already, else copies."""
    grads = {}
    for name, grad in (("dq", dq), ("dk", dk), ("dv", dv)):
        grad = grad.transpose(1, 2)
        grads[name] = grad if grad.is_contiguous() else outputs[name].copy_(grad)
    return grads


def _or_decline(call, head_dim):
    """What ``call`` returns; declines where cuDNN's front end says in its own error that it has no plan."""
    try:
        return call()
    except RuntimeError as error:
        if "cuDNN Frontend error" in str(error):
            raise NotImplementedError(
                f"this version of cuDNN has no plan for head dimension {head_dim} here"
            ) from error
        raise


def _version(package):
    from importlib.metadata import version

    return version(package)
