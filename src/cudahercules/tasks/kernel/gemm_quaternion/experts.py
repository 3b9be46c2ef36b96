"""The panel for the quaternion product. Everything is imported when it is called.

C as real numbers (m by 4n) is A as real numbers (m by 4k) times B with each quaternion as the 4 x 4 matrix
that multiplies from the right. So the panel consists of real products. Each function prepares one workload
and returns ``run``; see ``cudahercules.replay.interface``.
"""

from functools import cache

CHUNK = 128
"""Quaternions that tensor cores sum before cuBLAS adds the result to C with ordinary additions."""


def three_tf32(inputs, outputs, sizes, scalars):
    """Three real products on TF32 tensor cores for each of three combinations of split operands.

    With the high and low parts side by side along k, the three combinations are one product of 12k terms.
    cuBLAS takes it in chunks and adds each to C, so that what tensor cores cut from a sum stays small."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = True
    torch.set_float32_matmul_precision("high")
    split_a, split_b = _splitters()
    a, b, c = inputs["a"], inputs["b"], outputs["c"].view(sizes["m"], -1)
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


def cublaslt_real(inputs, outputs, sizes, scalars):
    """One real product in fp32 by the fastest algorithm of cuBLASLt; B is expanded by a generated kernel."""
    import torch

    from cudahercules.measure.cublaslt import best_matmul, version

    _full_precision()
    expand = _compiled_expansion()
    a, c = inputs["a"].view(sizes["m"], -1), outputs["c"].view(sizes["m"], -1)
    expanded = torch.empty((4 * sizes["k"], 4 * sizes["n"]), dtype=a.dtype, device=a.device)
    multiply = best_matmul(a, expanded, c, "32f")

    def run():
        expand(inputs["b"], expanded)
        multiply()

    run.versions = {"cublasLt": version(), "torch": torch.__version__}
    return run


def torch_real(inputs, outputs, sizes, scalars):
    """The same by PyTorch's own kernels."""
    import torch

    _full_precision()
    a, b, c = inputs["a"].view(sizes["m"], -1), inputs["b"], outputs["c"].view(sizes["m"], -1)

    def run():
        torch.mm(a, _right_factors(b), out=c)

    run.versions = {"torch": torch.__version__}
    return run


def _right_factors(b):
    """(k, n, 4) to (4k, 4n): row 4p + s holds what component s of A's quaternion p is multiplied by."""
    import torch

    w, x, y, z = b.unbind(-1)
    rows = [
        torch.stack([w, x, y, z], dim=-1),
        torch.stack([-x, w, -z, y], dim=-1),
        torch.stack([-y, z, w, -x], dim=-1),
        torch.stack([-z, -y, x, w], dim=-1),
    ]
    return torch.stack(rows, dim=1).reshape(4 * b.shape[0], -1)


@cache
def _compiled_expansion():
    """Compiled once a process."""
    import torch

    def expand(b, out):
        out.copy_(_right_factors(b))

    return torch.compile(expand, mode="max-autotune-no-cudagraphs", dynamic=False)


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
        whole = _right_factors(b)
        upper = high(whole)
        return torch.cat([upper, high(whole - upper), upper], dim=0)

    mode = "max-autotune-no-cudagraphs"
    return torch.compile(split_a, mode=mode, dynamic=False), torch.compile(split_b, mode=mode, dynamic=False)


def _full_precision():
    """fp32 products in fp32, not in TF32."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
