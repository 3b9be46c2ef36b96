"""The panel for the fp32 matrix product. Everything is imported when it is called.

Each function prepares one workload and returns ``run``, which writes ``outputs``; see
``cudahercules.replay.interface`` for the rules.
"""


def torch_mm(inputs, outputs, sizes, scalars):
    """cuBLAS as PyTorch calls it, in true fp32 (TF32 switched off)."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    a, b, c = inputs["a"], inputs["b"], outputs["c"]

    def run():
        torch.mm(a, b, out=c)

    run.versions = {"torch": torch.__version__}
    return run


def torch_compile_max_autotune(inputs, outputs, sizes, scalars):
    """torch.compile in max-autotune: the best of cuBLAS and generated Triton kernels, in true fp32."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    compiled = torch.compile(torch.mm, mode="max-autotune-no-cudagraphs", dynamic=False)
    a, b = inputs["a"], inputs["b"]

    def run():
        return {"c": compiled(a, b)}

    run.versions = {"torch": torch.__version__}
    return run
