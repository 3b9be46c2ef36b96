"""The panel for the triangular product. Everything is imported when it is called.

Each function prepares one workload and returns ``run``; see ``cudahercules.replay.interface``.
"""

PANEL = 1024
"""Rows of C that are computed together."""


def cublas_trmm(inputs, outputs, sizes, scalars):
    """cuBLAS's own routine, called by its C interface: torch does not offer it."""
    import torch

    from cudahercules.measure import cublas

    _full_precision()
    a, b, c, alpha = inputs["a"], inputs["b"], outputs["c"], scalars["alpha"]

    def run():
        cublas.trmm_lower(a, b, c, alpha)

    run.versions = {"cublas": cublas.version(), "torch": torch.__version__}
    return run


def row_panels(inputs, outputs, sizes, scalars):
    """Plain products of cuBLAS: each panel of rows is multiplied up to its square on the diagonal, and that
    square, cleared above its diagonal, comes on top."""
    import torch

    _full_precision()
    a, b, c, alpha = inputs["a"], inputs["b"], outputs["c"], scalars["alpha"]
    starts = range(0, sizes["m"], PANEL)
    triangle = torch.empty((min(PANEL, sizes["m"]),) * 2, dtype=a.dtype, device=a.device)

    def run():
        for first in reversed(starts):
            last = min(first + PANEL, sizes["m"])
            rows = c[first:last]
            cleared = triangle[: last - first, : last - first]
            torch.tril(a[first:last, first:last], out=cleared)
            torch.mm(cleared, b[first:last], out=rows)
            rows.addmm_(a[first:last, :first], b[:first], beta=alpha, alpha=alpha)

    run.versions = {"torch": torch.__version__}
    return run


def torch_full(inputs, outputs, sizes, scalars):
    """A copy of A with zeros above the diagonal, and the full product of cuBLAS: twice the work."""
    import torch

    _full_precision()
    a, b, c, alpha = inputs["a"], inputs["b"], outputs["c"], scalars["alpha"]
    triangle = torch.empty_like(a)

    def run():
        torch.tril(a, out=triangle)
        torch.addmm(c, triangle, b, beta=0.0, alpha=alpha, out=c)

    run.versions = {"torch": torch.__version__}
    return run


def _full_precision():
    """fp32 products in fp32, not in TF32."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
