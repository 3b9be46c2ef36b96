"""The panel for sorting keys. Everything is imported when it is called.

Each function prepares one workload and returns ``run``; see ``cudahercules.replay.interface``.
"""

from pathlib import Path


def cub_radix_sort(inputs, outputs, sizes, scalars):
    """CUB's DeviceRadixSort through its own host code in cub_radix_sort.cu. An expert with a CUDA source
    of its name is built, recorded and replayed as a plan; this function is never run on tensors."""
    return Path(__file__).with_name("cub_radix_sort.cu")


def torch_sort(inputs, outputs, sizes, scalars):
    """torch.sort, which knows signed integers only: the top bit is flipped before and after. It sorts
    pairs of key and index, because it always gives the indices back."""
    import torch

    keys, result = inputs["keys"].view(torch.int32), outputs["sorted"].view(torch.int32)
    signed, indices = torch.empty_like(keys), torch.empty(keys.shape, dtype=torch.int64, device=keys.device)
    top_bit = -(2**31)

    def run():
        torch.bitwise_xor(keys, top_bit, out=signed)
        torch.sort(signed, out=(result, indices))
        result.bitwise_xor_(top_bit)

    run.versions = {"torch": torch.__version__}
    return run
