"""The panel for products with 2:4 sparse weights. Everything is imported when it is called.

Each function prepares one workload and returns ``run``; see ``cudahercules.replay.interface``. Weights are
compressed in ``run.prepare``, as a candidate may in ``prepare``.
"""

PLACES = ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3))
"""Where the two values of a pattern lie among four."""


def cublaslt_dense(inputs, outputs, sizes, scalars):
    """Dense weights made in preparation, then the fastest product that cuBLASLt offers."""
    import torch

    from cudahercules.measure.cublaslt import best_matmul, version

    dense, densify = _dense(inputs, sizes)
    densify()  # the search runs on real weights
    run = best_matmul(inputs["x"].view(sizes["tokens"], -1), dense, outputs["y"], transposed=True)
    run.prepare = densify
    run.versions = {"cublasLt": version(), "torch": torch.__version__}
    return run


def cusparselt(inputs, outputs, sizes, scalars):
    """cuSPARSELt as PyTorch calls it, compressed in preparation, with the algorithm of its search. With
    torch 2.11 and cuSPARSELt 0.8 on an H200 the search failed (internal error) and the default ended the
    process (illegal instruction)."""
    if sizes["tokens"] % 8 or sizes["outputs"] % 32 or sizes["quads"] % 8:
        raise NotImplementedError("PyTorch calls cuSPARSELt for multiples of 8 tokens and 32 weights only")
    import torch

    dense, densify = _dense(inputs, sizes)
    x = inputs["x"].view(sizes["tokens"], -1).t()
    densify()
    compressed = torch._cslt_compress(dense)
    algorithm = torch._cslt_sparse_mm_search(compressed, x, transpose_result=True)

    def run():
        return {"y": torch._cslt_sparse_mm(compressed, x, transpose_result=True, alg_id=algorithm)}

    def compress():
        densify()
        compressed.copy_(torch._cslt_compress(dense))

    run.prepare = compress
    run.versions = {"cusparselt": str(torch.backends.cusparselt.version()), "torch": torch.__version__}
    return run


def _dense(inputs, sizes):
    """(weights, function): fp16 of shape (outputs, k), and what fills it from values and patterns."""
    import torch

    value, pattern = inputs["value"], inputs["pattern"]
    dense = torch.empty((sizes["outputs"], sizes["quads"], 4), dtype=value.dtype, device=value.device)
    places = torch.tensor(PLACES, device=value.device)
    step = max(1, (1 << 27) // sizes["quads"])

    def densify():
        dense.zero_()
        for first in range(0, sizes["outputs"], step):
            piece = slice(first, first + step)
            dense[piece].scatter_(2, places[pattern[piece].long()], value[piece])

    return dense.view(sizes["outputs"], -1), densify
