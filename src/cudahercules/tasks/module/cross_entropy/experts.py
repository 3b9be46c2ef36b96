"""The panel for cross entropy. Everything is imported when it is called.

Each function prepares one workload and returns ``run``; see ``cudahercules.replay.interface``.
"""

from functools import cache
from pathlib import Path


def tuned(inputs, outputs, sizes, scalars):
    """Our own kernel in tuned.cu. An expert with a CUDA source of its name is built, recorded and
    replayed as a plan, exactly like a candidate; this function is never run on tensors."""
    return Path(__file__).with_name("tuned.cu")


def torch_compile(inputs, outputs, sizes, scalars):
    """Loss and gradient by the formula in fp32, fused by torch.compile, autotuned."""
    import torch

    compiled = _compiled(sizes["vocabulary"], int(scalars["ignore_index"]), scalars["grad_scale"])

    def run():
        loss, gradient = compiled(inputs["logits"], inputs["labels"])
        return {"loss": loss, "dlogits": gradient}

    run.versions = {"torch": torch.__version__}
    return run


@cache
def _compiled(vocabulary, ignore_index, grad_scale):
    """Compiled once a process and set of constants."""
    import torch

    def both(logits, labels):
        counts = labels != ignore_index
        safe = torch.where(counts, labels, 0)
        x = logits.float()
        lse = torch.logsumexp(x, -1)
        loss = torch.where(counts, lse - x.gather(1, safe[:, None])[:, 0], 0.0)
        is_label = torch.arange(vocabulary, device=x.device)[None, :] == safe[:, None]
        gradient = (torch.exp(x - lse[:, None]) - is_label.float()) * grad_scale
        return loss, torch.where(counts[:, None], gradient, 0.0).to(torch.bfloat16)

    return torch.compile(both, mode="max-autotune-no-cudagraphs", dynamic=False)


def liger_cross_entropy(inputs, outputs, sizes, scalars):
    """Liger's Triton kernel, which turns logits into gradients in place: they are copied first. It is
    launched without its Python wrapper, which reads the number of counted tokens back to the host.

    Its factor of every gradient is one over that number, and is the factor of the loss as well, so the
    losses are multiplied back."""
    import torch
    import triton
    from liger_kernel.ops.cross_entropy import MAX_FUSED_SIZE, liger_cross_entropy_kernel

    logits, labels = inputs["logits"], inputs["labels"]
    loss, gradient = outputs["loss"], outputs["dlogits"]
    rows, vocabulary = sizes["rows"], sizes["vocabulary"]
    divisor = 1.0 / scalars["grad_scale"]
    block = min(MAX_FUSED_SIZE, triton.next_power_of_2(vocabulary))
    arguments = {
        "X_ptr": gradient,
        "X_stride": gradient.stride(0),
        "Y_ptr": labels,
        "Y_stride": 1,
        "weight_ptr": None,
        "loss_ptr": loss,
        "z_loss_ptr": None,
        "loss_stride": 1,
        "token_accuracy_ptr": None,
        "token_accuracy_stride": 0,
        "predicted_tokens_ptr": None,
        "predicted_tokens_stride": 0,
        "n_cols": vocabulary,
        "n_non_ignore": divisor,
        "sum_non_ignore_weight": divisor,
        "weight_sum": 0.0,
        "ignore_index": int(scalars["ignore_index"]),
        "lse_square_scale": 0.0,
        "label_smoothing": 0.0,
        "reduction": "mean",
        "softcap": None,
        "RETURN_Z_LOSS": False,
        "RETURN_TOKEN_ACCURACY": False,
        "RETURN_PREDICTED_TOKENS": False,
        "BLOCK_SIZE": block,
        "HAS_WEIGHT": False,
        "HAS_SOFTCAPPING": False,
        "HAS_GRADIENTS": True,
    }
    if set(liger_cross_entropy_kernel.arg_names) != set(arguments):
        raise NotImplementedError("this version of Liger's cross entropy kernel takes other arguments")

    def run():
        gradient.copy_(logits)
        loss.zero_()
        liger_cross_entropy_kernel[(rows,)](**arguments, num_warps=32)
        loss.mul_(divisor)

    run.versions = {"torch": torch.__version__, "triton": triton.__version__}
    return run


def quack_cross_entropy(inputs, outputs, sizes, scalars):
    """quack's CuTe-DSL kernels: loss and log-sum-exp, then the gradient with grad_scale as the gradient of
    every loss. Its forward kernel can give the gradient as well, but without a factor: multiplying it
    afterwards moves more bytes than reading the logits twice. Rows must be whole numbers of 4-byte words."""
    logits, labels = inputs["logits"], inputs["labels"]
    if sizes["vocabulary"] * logits.element_size() % 4:
        raise NotImplementedError("quack's cross entropy wants rows of whole 4-byte words")
    from importlib.metadata import version

    import torch
    from quack.cross_entropy import cross_entropy_bwd_out, cross_entropy_fwd_out

    loss, gradient, ignore_index = outputs["loss"], outputs["dlogits"], int(scalars["ignore_index"])
    lse = torch.empty_like(loss)
    factor = torch.full_like(loss, scalars["grad_scale"])

    def run():
        cross_entropy_fwd_out(logits, labels, None, loss, lse, None, ignore_index)
        cross_entropy_bwd_out(logits, labels, factor, lse, gradient, ignore_index)

    run.versions = {"torch": torch.__version__, "quack-kernels": version("quack-kernels")}
    return run
