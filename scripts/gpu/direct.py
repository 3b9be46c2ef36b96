"""Run a candidate's own host code on the GPU with NVIDIA's runtime, and save what it wrote.

``python direct.py KIT NAME WORKLOAD SEED KERNELS OUTPUT``: a process of its own, since this is what
the judge never does with a candidate that it does not trust. Inputs come from the replay's generator,
outputs begin with its poison; OUTPUT is an .npz of raw bytes by tensor name.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import numpy as np
from hard_plans import load_kit

from cudahercules.replay.driver import Context, api
from cudahercules.replay.generator import POISON_16, DeviceCode, fill_parameters
from cudahercules.task.model import Role


def main(kit: str, name: str, workload_name: str, seed: str, kernels: str, output: str) -> int:
    loaded = load_kit(Path(kit), name)
    task = loaded.task
    workload = next(w for w in task.workloads if w.name == workload_name)
    context = Context(0)
    code = DeviceCode(Path(kernels), context)
    stream = api.cuStreamCreate(1)
    pointers = {}
    for number, tensor in enumerate(task.tensors):
        size = task.nbytes(tensor, workload)
        pointers[tensor.name] = pointer = int(api.cuMemAlloc(max(size, 256) + 512))
        api.cuMemsetD16Async(pointer, POISON_16, (max(size, 256) + 512) // 2, stream)
        if tensor.role is not Role.OUT:
            fill = fill_parameters(
                tensor,
                task.shape(tensor, workload),
                task.distribution(tensor, workload),
                number,
                int(seed),
            )
            code.fill(pointer, tensor.dtype, fill, stream)
    library = ctypes.CDLL(str(loaded.direct))
    sizes = [ctypes.c_int64(workload.dimensions[d]) for d in task.dimensions]
    weights = [ctypes.c_void_p(pointers[t.name]) for t in task.weights]
    if loaded.artifact.has_prepare:
        library.prepare(*weights, *sizes, ctypes.c_void_p(int(stream)))
    library.solve(
        *(ctypes.c_void_p(pointers[t.name]) for t in task.tensors), *sizes, ctypes.c_void_p(int(stream))
    )
    api.cuCtxSynchronize()
    found = {}
    for tensor in task.outputs:
        raw = np.empty(task.nbytes(tensor, workload), np.uint8)
        api.cuMemcpyDtoH(raw.ctypes.data, pointers[tensor.name], raw.nbytes)
        found[tensor.name] = raw
    np.savez(output, **found)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
