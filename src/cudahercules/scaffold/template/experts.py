"""The panel: what professionals ship for this problem. Experts run on a GPU only.

Each function is called once a workload and may plan, allocate and tune; the ``run`` that it returns is
captured into a CUDA graph and replayed with new values, so it must keep nothing computed from them.
``inputs`` and ``outputs`` map tensor names to torch tensors. Import inside the functions: listing and
grading on a CPU load no framework. A ``NAME.cu`` beside this file makes the expert NAME a plan, replayed
exactly like a candidate.
"""


def torch_add(inputs, outputs, sizes, scalars):
    """One element-wise kernel of PyTorch, vectorised where the layout allows."""
    import torch

    x, z, alpha = inputs["x"], outputs["z"], scalars["alpha"]
    bias = inputs["bias"].reshape(1, -1)

    def run():
        torch.add(bias, x, alpha=alpha, out=z)

    run.versions = {"torch": torch.__version__}
    return run


def torch_compile(inputs, outputs, sizes, scalars):
    """The same expression as torch.compile lowers it: one Triton kernel, autotuned."""
    import torch
    import triton

    x, alpha = inputs["x"], scalars["alpha"]
    bias = inputs["bias"].reshape(1, -1)
    compiled = torch.compile(
        lambda x, bias: torch.add(bias, x, alpha=alpha), mode="max-autotune-no-cudagraphs", dynamic=False
    )

    def run():
        return {"z": compiled(x, bias)}  # a result that the library allocated itself: no copy is charged

    run.versions = {"torch": torch.__version__, "triton": triton.__version__}
    return run
