"""The panel for the complex product. Everything is imported when it is called.

Each function prepares one workload and returns ``run``; see ``cudahercules.replay.interface``.
"""

from functools import cache

CHUNK = 1024
"""Terms (complex ones) that tensor cores sum before the result is added to C with ordinary additions."""


def three_tf32(inputs, outputs, sizes, scalars):
    """One real product of 2k terms on TF32 tensor cores for each of three combinations of split operands.

    C as real numbers is A as real numbers (m by 2k) times B with each x + iy as the square (x, y; -y, x).
    With the high and low parts side by side along k, small products first, the three combinations are one
    product of 6k terms. It is taken in chunks, each by the fastest algorithm of cuBLASLt, so that what tensor
    cores cut from a running sum stays small."""
    import torch

    from cudahercules.measure.cublaslt import best_matmul, version

    split_a, split_b, add = _compiled()
    m, n, k = (sizes[name] for name in "mnk")
    a, b = torch.view_as_real(inputs["a"]), torch.view_as_real(inputs["b"])
    c = torch.view_as_real(outputs["c"]).view(m, 2 * n)
    partial = torch.empty_like(c) if k > CHUNK else c

    def step(first, last):
        """Prepares the chunk of terms first .. last - 1; the first chunk goes straight into C."""
        left = torch.empty((m, 6 * (last - first)), dtype=c.dtype, device=c.device)
        right = torch.empty((6 * (last - first), 2 * n), dtype=c.dtype, device=c.device)
        multiply = best_matmul(left, right, c if first == 0 else partial, "32f_fast_tf32")

        def run():
            split_a(a[:, first:last], left)
            split_b(b[first:last], right)
            multiply()
            if first > 0:
                add(c, partial)

        return run

    steps = [step(first, min(first + CHUNK, k)) for first in range(0, k, CHUNK)]

    def run():
        for one in steps:
            one()

    run.versions = {"cublasLt": version(), "torch": torch.__version__}
    return run


@cache
def _compiled():
    """Compiled once a process: a chunk of A, and one of B, as TF32 parts side by side along k; addition."""
    import torch

    def high(x):
        """The nearest TF32 number, by integer arithmetic: half a unit added, the low 13 bits cleared."""
        return ((x.view(torch.int32) + 0x1000) & -0x2000).view(torch.float32)

    def split_a(a, out):
        whole = a.reshape(a.shape[0], -1)
        upper = high(whole)
        out.copy_(torch.cat([high(whole - upper), upper, upper], dim=1))

    def split_b(b, out):
        real, imaginary = b[..., 0], b[..., 1]
        upper_row = torch.stack([real, imaginary], dim=-1)
        lower_row = torch.stack([-imaginary, real], dim=-1)
        whole = torch.stack([upper_row, lower_row], dim=1).reshape(2 * b.shape[0], -1)
        upper = high(whole)
        out.copy_(torch.cat([upper, high(whole - upper), upper], dim=0))

    def add(total, part):
        total.add_(part)

    mode = "max-autotune-no-cudagraphs"
    split_a, split_b, add = (torch.compile(f, mode=mode, dynamic=False) for f in (split_a, split_b, add))
    return split_a, split_b, add


def cublas_cgemm3m(inputs, outputs, sizes, scalars):
    """cuBLAS's complex product with three real multiplications, on ordinary fp32 units."""
    import torch

    from cudahercules.measure import cublas

    _full_precision()
    a, b, c = inputs["a"], inputs["b"], outputs["c"]

    def run():
        cublas.complex_product_in_three(a, b, c)

    run.versions = {"cublas": cublas.version(), "torch": torch.__version__}
    return run


def torch_mm(inputs, outputs, sizes, scalars):
    """cuBLAS as PyTorch calls it for complex numbers, without TF32."""
    import torch

    _full_precision()
    a, b, c = inputs["a"], inputs["b"], outputs["c"]

    def run():
        torch.mm(a, b, out=c)

    run.versions = {"torch": torch.__version__}
    return run


def _full_precision():
    """fp32 products in fp32, not in TF32."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
