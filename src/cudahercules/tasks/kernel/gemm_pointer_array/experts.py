"""The panel for batched products of named matrices. Everything is imported when it is called.

Each function prepares one workload and returns ``run``; see ``cudahercules.replay.interface``. Tables are
data, so whatever is computed from them is part of the run.
"""


def cublas_pointers(inputs, outputs, sizes, scalars):
    """cuBLAS over arrays of pointers, which the run computes from the tables; sums in fp32."""
    import torch

    from cudahercules.measure import cublas

    a, b, c = inputs["a"], inputs["b"], outputs["c"]
    to_c = torch.arange(sizes["batch"], device=c.device) * (c.stride(0) * c.element_size()) + c.data_ptr()
    shape = (sizes["m"], sizes["n"], sizes["k"])

    def run():
        to_a = inputs["a_of"].to(torch.int64) * (a.stride(0) * a.element_size()) + a.data_ptr()
        to_b = inputs["b_of"].to(torch.int64) * (b.stride(0) * b.element_size()) + b.data_ptr()
        cublas.products_of_pointers(to_a, to_b, to_c, shape, c.dtype)

    run.versions = {"cublas": cublas.version(), "torch": torch.__version__}
    return run


def torch_gather_bmm(inputs, outputs, sizes, scalars):
    """The named matrices gathered into two dense batches, then cuBLAS with strides."""
    import torch

    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    a, b, a_of, b_of, c = inputs["a"], inputs["b"], inputs["a_of"], inputs["b_of"], outputs["c"]

    def run():
        torch.bmm(a.index_select(0, a_of), b.index_select(0, b_of), out=c)

    run.versions = {"torch": torch.__version__}
    return run
