"""The panel for the triangular product. Everything is imported when it is called.

Each function prepares one workload and returns ``run``; see ``cudahercules.replay.interface``.
"""

from functools import cache

PANEL = 1024
"""Rows of C that are computed together."""
CHUNK = 512
"""Terms that tensor cores sum before cuBLAS adds the result to C with ordinary additions."""


def three_tf32(inputs, outputs, sizes, scalars):
    """Columns of L a chunk at a time, from the diagonal down, by three TF32 products side by side.

    Operands are split in a high and a low TF32 part; small products come first. The chunks are short, so that
    what tensor cores cut from a running sum stays small."""
    a, b, c, alpha = inputs["a"], inputs["b"], outputs["c"], scalars["alpha"]
    if str(a.dtype) != "torch.float32":
        raise NotImplementedError("TF32 parts make up for single precision only")
    import torch

    torch.backends.cuda.matmul.allow_tf32 = True
    torch.set_float32_matmul_precision("high")
    split_a, split_b = _splitters()

    def run():
        for first in range(0, sizes["m"], CHUNK):
            left = split_a(a[first:, first : first + CHUNK])
            right = split_b(b[first : first + CHUNK])
            rows = c[first:]
            torch.addmm(rows, left, right, beta=0.0 if first == 0 else 1.0, alpha=alpha, out=rows)

    run.versions = {"torch": torch.__version__}
    return run


@cache
def _splitters():
    """Compiled once a process: a chunk of L, cleared above the diagonal, and one of B, as TF32 parts along
    the sum. Heights differ from chunk to chunk, so the kernels take any."""
    import torch

    def high(x):
        """The nearest TF32 number, by integer arithmetic: half a unit added, the low 13 bits cleared."""
        return ((x.view(torch.int32) + 0x1000) & -0x2000).view(torch.float32)

    def split_a(a):
        whole = torch.tril(a)
        upper = high(whole)
        return torch.cat([high(whole - upper), upper, upper], dim=1)

    def split_b(b):
        upper = high(b)
        return torch.cat([upper, high(b - upper), upper], dim=0)

    return torch.compile(split_a, dynamic=True), torch.compile(split_b, dynamic=True)


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
