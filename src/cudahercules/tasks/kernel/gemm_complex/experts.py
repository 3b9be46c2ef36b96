"""The panel for the complex product. Everything is imported when it is called.

Each function prepares one workload and returns ``run``; see ``cudahercules.replay.interface``.
"""

from functools import cache

CHUNK = 256
"""Terms (complex ones) that tensor cores sum before cuBLAS adds the result to C with ordinary additions."""


def three_tf32(inputs, outputs, sizes, scalars):
    """One real product of 2k terms on TF32 tensor cores for each of three combinations of split operands.

    C as real numbers is A as real numbers (m by 2k) times B with each x + iy as the square (x, y; -y, x).
    With the high and low parts side by side along k, the three combinations are one product of 6k terms.
    cuBLAS takes it in chunks and adds each to C, so that what tensor cores cut from a sum stays small."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = True
    torch.set_float32_matmul_precision("high")
    split_a, split_b = _splitters()
    a, b = torch.view_as_real(inputs["a"]), torch.view_as_real(inputs["b"])
    c = torch.view_as_real(outputs["c"]).view(sizes["m"], 2 * sizes["n"])
    starts = range(0, sizes["k"], CHUNK)

    def run():
        for first in starts:
            left, right = split_a(a[:, first : first + CHUNK]), split_b(b[first : first + CHUNK])
            if first == 0:
                torch.mm(left, right, out=c)
            else:
                c.addmm_(left, right)

    run.versions = {"torch": torch.__version__}
    return run


@cache
def _splitters():
    """Compiled once a process: a chunk of A, and one of B, as TF32 parts side by side along k."""
    import torch

    def high(x):
        """The nearest TF32 number, by integer arithmetic: half a unit added, the low 13 bits cleared."""
        return ((x.view(torch.int32) + 0x1000) & -0x2000).view(torch.float32)

    def split_a(a):
        whole = a.reshape(a.shape[0], -1)
        upper = high(whole)
        return torch.cat([high(whole - upper), upper, upper], dim=1)

    def split_b(b):
        real, imaginary = b[..., 0], b[..., 1]
        upper_row = torch.stack([real, imaginary], dim=-1)
        lower_row = torch.stack([-imaginary, real], dim=-1)
        whole = torch.stack([upper_row, lower_row], dim=1).reshape(2 * b.shape[0], -1)
        upper = high(whole)
        return torch.cat([upper, high(whole - upper), upper], dim=0)

    mode = "max-autotune-no-cudagraphs"
    return torch.compile(split_a, mode=mode, dynamic=False), torch.compile(split_b, mode=mode, dynamic=False)


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
