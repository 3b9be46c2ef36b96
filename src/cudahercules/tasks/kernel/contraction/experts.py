"""The panel for contractions. Everything is imported when it is called.

Each function prepares one workload and returns ``run``; see ``cudahercules.replay.interface``.
"""

from functools import cache

EQUATIONS = {3: "bda,dc->abc", 4: "aebf,dfce->abcd", 6: "dega,gfbc->abcdef"}
"""By the rank of the result."""


def fewest_copies(inputs, outputs, sizes, scalars):
    """cuBLAS on the tensors where they lie, as far as it can; generated kernels transpose the rest."""
    import torch

    _full_precision()
    prepared = {3: _one_batch, 4: _two_copies, 6: _batches}[sizes["rank"]]
    run = prepared(inputs["x"], inputs["y"], outputs["z"], sizes)
    run.versions = {"torch": torch.__version__}
    return run


def _one_batch(x, y, z, sizes):
    """Z[:, b, :] = X[b]^T Y for every b: a batch with strides, and no copy."""
    import torch

    left, right = x.transpose(1, 2), y.expand(sizes["b"], -1, -1)

    def run():
        torch.bmm(left, right, out=z.transpose(0, 1))

    return run


def _two_copies(x, y, z, sizes):
    """X as (ab, ef), Y as (ef, cd); their product is Z, by the fastest algorithm of cuBLASLt."""
    import torch

    from cudahercules.measure.cublaslt import best_matmul

    copy = _compiled_copy()
    a, b, c, d, e, f = (sizes[mode] for mode in "abcdef")
    left = torch.empty((a * b, e * f), dtype=x.dtype, device=x.device)
    right = torch.empty((e * f, c * d), dtype=x.dtype, device=x.device)
    multiply = best_matmul(left, right, z.view(a * b, c * d), "32f")

    def run():
        copy(x.permute(0, 2, 1, 3), left.view(a, b, e, f))
        copy(y.permute(3, 1, 2, 0), right.view(e, f, c, d))
        multiply()

    return run


def _batches(x, y, z, sizes):
    """For every a a batch over (b, c) of (de, g) times (g, f), written into Z where it belongs. The operands
    are small and are copied into that order first."""
    import torch

    copy = _compiled_copy()
    a, b, c, d, e, f, g = (sizes[mode] for mode in "abcdefg")
    left = torch.empty((a, d, e, g), dtype=x.dtype, device=x.device)
    right = torch.empty((b, c, g, f), dtype=x.dtype, device=x.device)

    def run():
        copy(x.permute(3, 0, 1, 2), left)
        copy(y.permute(2, 3, 0, 1), right)
        for i in range(a):
            one = left[i].view(1, d * e, g).expand(b * c, -1, -1)
            torch.bmm(one, right.view(b * c, g, f), out=z[i].view(b * c, d * e, f))

    return run


def cutensor(inputs, outputs, sizes, scalars):
    """cuTENSOR's contraction as CuPy calls it, on the tensors where they lie."""
    x, y, z = inputs["x"], inputs["y"], outputs["z"]
    if str(x.dtype) != "torch.float32":
        raise NotImplementedError("CuPy knows no bf16, so cuTENSOR is asked for fp32 only")
    import cupy
    import torch
    from cupyx import cutensor

    modes_x, rest = EQUATIONS[sizes["rank"]].split(",")
    modes_y, modes_z = rest.split("->")
    left, right, result = cupy.from_dlpack(x), cupy.from_dlpack(y), cupy.from_dlpack(z)

    def run():
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            cutensor.contraction(1.0, left, modes_x, right, modes_y, 0.0, result, modes_z)

    run.versions = {"cupy": cupy.__version__, "torch": torch.__version__}
    return run


def torch_compile(inputs, outputs, sizes, scalars):
    """torch.einsum as torch.compile lowers it: its transpositions may join what comes before and after."""
    import torch

    _full_precision()
    compiled = _compiled_einsum(EQUATIONS[sizes["rank"]])
    x, y, z = inputs["x"], inputs["y"], outputs["z"]

    def run():
        compiled(x, y, z)

    run.versions = {"torch": torch.__version__}
    return run


def torch_einsum(inputs, outputs, sizes, scalars):
    """PyTorch's own decomposition: transposing copies, a product of batches, a copy into Z."""
    import torch

    _full_precision()
    equation, x, y, z = EQUATIONS[sizes["rank"]], inputs["x"], inputs["y"], outputs["z"]

    def run():
        z.copy_(torch.einsum(equation, x, y))

    run.versions = {"torch": torch.__version__}
    return run


@cache
def _compiled_copy():
    """Compiled once a process."""
    import torch

    def copy(source, target):
        target.copy_(source)

    return torch.compile(copy, mode="max-autotune-no-cudagraphs", dynamic=False)


@cache
def _compiled_einsum(equation):
    import torch

    def contract(x, y, z):
        z.copy_(torch.einsum(equation, x, y))

    return torch.compile(contract, mode="max-autotune-no-cudagraphs", dynamic=False)


def _full_precision():
    """fp32 products in fp32, not in TF32, and no reductions in half precision."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
