"""The panel for attention of few queries over long contexts. Everything is imported when it is called.

Each function prepares one workload and returns ``run``; see ``cudahercules.replay.interface``. Tensors are
(batch, length, heads, head_dim), as FlashAttention-3 wants them; PyTorch's operators get views by head.
"""

from pathlib import Path

SPLITS = (2, 4, 8, 16, 32, 64, 128)


def warp_rings(inputs, outputs, sizes, scalars):
    """Our own kernel in warp_rings.cu. An expert with a CUDA source of its name is built, recorded and
    replayed as a plan, exactly like a candidate; this function is never run on tensors."""
    return Path(__file__).with_name("warp_rings.cu")


def fa3(inputs, outputs, sizes, scalars):
    """FlashAttention-3 with the number of splits that is fastest here. The wheel has bf16 only (its
    fa3_fwd_config says so); head dimension 32 runs in the kernels for 64."""
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

    # Between these come the options of paged, packed and quantised attention.
    before_lengths = (inputs["q"], inputs["k"], inputs["v"], None, None, None, outputs["o"])
    options = [None] * 16
    mask = (scalars["scale"], bool(sizes["causal"]), -1, -1, 0, 0.0, True, None)

    def with_splits(splits):
        after_options = (*mask, splits, None, 0, *last_options)

        def run():
            _, lse, *_ = fwd(*before_lengths, *options, *after_options)
            return {"o": outputs["o"], "lse": lse}

        return run

    its_own_choice, none = 0, 1
    run = min((with_splits(n) for n in (its_own_choice, none, *SPLITS)), key=_microseconds)
    run.versions = {package: _version(package), "torch": torch.__version__}
    return run


def fa2(inputs, outputs, sizes, scalars):
    """FlashAttention-2 as PyTorch ships it. The operator splits the keys by a rule of its own and takes no
    number of splits; it aligns the causal mask at the lower right corner (torch/nn/attention/bias.py uses it
    for that). Where o comes in another layout, one copy is charged."""
    import torch

    q, k, v = (inputs[name].transpose(1, 2) for name in "qkv")
    causal, scale = bool(sizes["causal"]), scalars["scale"]
    attention = torch.ops.aten._scaled_dot_product_flash_attention

    def run():
        o, lse, *_ = attention(q, k, v, 0.0, causal, False, scale=scale)
        return {"o": _dense(o.transpose(1, 2), outputs["o"]), "lse": lse}

    run.versions = {"torch": torch.__version__}
    return run


def cudnn(inputs, outputs, sizes, scalars):
    """cuDNN's fused attention as PyTorch calls it, with the statistics as for training. PyTorch itself sends
    head dimensions over 128 elsewhere; the operator hands them to cuDNN, which may decline."""
    if sizes["causal"] and sizes["q_len"] not in (1, sizes["kv_len"]):
        raise NotImplementedError("PyTorch's cuDNN attention aligns the causal mask at the upper left corner")
    import torch

    q, k, v = (inputs[name].transpose(1, 2) for name in "qkv")
    causal, scale = bool(sizes["causal"]) and sizes["q_len"] > 1, scalars["scale"]  # one query sees all
    attention = torch.ops.aten._scaled_dot_product_cudnn_attention

    def run():
        o, lse, *_ = attention(q, k, v, None, True, 0.0, causal, False, scale=scale)
        return {"o": _dense(o.transpose(1, 2), outputs["o"]), "lse": lse.reshape(outputs["lse"].shape)}

    if sizes["head_dim"] > 128:
        _decline_what_cudnn_declines(run, sizes["head_dim"])
    run.versions = {"cudnn": str(torch.backends.cudnn.version()), "torch": torch.__version__}
    return run


def _dense(result, output):
    """``result`` if it lies as the output must, else a copy in ``output``."""
    return result if result.is_contiguous() else output.copy_(result)


def _microseconds(run, repeats=20):
    """Mean time of one call in a row of them: enough to choose among numbers of splits, in set-up only."""
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(3):
        run()
    begin.record()
    for _ in range(repeats):
        run()
    end.record()
    end.synchronize()
    return 1e3 * begin.elapsed_time(end) / repeats


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
