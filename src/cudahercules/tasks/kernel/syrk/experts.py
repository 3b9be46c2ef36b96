"""The panel for the symmetric rank-k update. Everything is imported when it is called.

Each function prepares one workload and returns ``run``, which changes C in place; see
``cudahercules.replay.interface``.
"""

LEAF = 1024
"""Rows of the triangles at which the recursion ends."""


def cublas_syrk(inputs, outputs, sizes, scalars):
    """cuBLAS's own routine, called by its C interface: torch does not offer it."""
    import torch

    from cudahercules.measure import cublas

    _full_precision()
    a, c, alpha, beta = inputs["a"], outputs["c"], scalars["alpha"], scalars["beta"]

    def run():
        cublas.syrk_lower(a, c, alpha, beta)

    run.versions = {"cublas": cublas.version(), "torch": torch.__version__}
    return run


def recursive_gemm(inputs, outputs, sizes, scalars):
    """Plain products of cuBLAS for the squares below the diagonal, and full small products for what remains:
    the recursion halves the rows until they are LEAF."""
    import torch

    _full_precision()
    a, c, alpha, beta = inputs["a"], outputs["c"], scalars["alpha"], scalars["beta"]
    below = torch.ones((LEAF, LEAF), dtype=torch.bool, device=a.device).tril_()
    scratch = torch.empty((LEAF, LEAF), dtype=a.dtype, device=a.device)

    def update(first, last):
        rows = last - first
        triangle = c[first:last, first:last]
        if rows <= LEAF:
            square = scratch[:rows, :rows]
            torch.addmm(triangle, a[first:last], a[first:last].t(), beta=beta, alpha=alpha, out=square)
            torch.where(below[:rows, :rows], square, triangle, out=triangle)
            return
        middle = first + max(LEAF, rows // 2 // LEAF * LEAF)
        c[middle:last, first:middle].addmm_(a[middle:last], a[first:middle].t(), beta=beta, alpha=alpha)
        update(first, middle)
        update(middle, last)

    def run():
        update(0, sizes["n"])

    run.versions = {"torch": torch.__version__}
    return run


def torch_full(inputs, outputs, sizes, scalars):
    """The full product of cuBLAS, of which one more kernel keeps the lower triangle: twice the work."""
    import torch

    _full_precision()
    a, c, alpha, beta = inputs["a"], outputs["c"], scalars["alpha"], scalars["beta"]
    below = torch.ones_like(c, dtype=torch.bool).tril_()
    square = torch.empty_like(c)

    def run():
        torch.addmm(c, a, a.t(), beta=beta, alpha=alpha, out=square)
        torch.where(below, square, c, out=c)

    run.versions = {"torch": torch.__version__}
    return run


def _full_precision():
    """fp32 products in fp32, not in TF32."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
