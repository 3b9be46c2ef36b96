"""Run a candidate's own host code on the GPU with NVIDIA's runtime, and save what it wrote.

``python direct.py KIT NAME WORKLOAD KERNELS OUTPUT SEED...``: a process of its own, since this is what
the judge never does with a candidate that it does not trust. Inputs come from the replay's generator,
outputs begin with its poison; OUTPUT is an .npz of raw bytes by ``SEED/TENSOR``.
"""

from __future__ import annotations

import ctypes
import shutil
import sys
from pathlib import Path

import numpy as np
from hard_plans import Kit, load_kit

from cudahercules.replay.driver import Context, api
from cudahercules.replay.generator import POISON_16, DeviceCode, fill_parameters
from cudahercules.task.model import Role


def execute(kit: Kit, workload_name: str, code: DeviceCode, library: ctypes.CDLL, seed: int) -> dict:
    """One call of prepare (if there is one) and solve on fresh memory; outputs as raw bytes."""
    task = kit.task
    workload = next(w for w in task.workloads if w.name == workload_name)
    stream = api.cuStreamCreate(1)
    pointers = {}
    for number, tensor in enumerate(task.tensors):
        room = max(task.nbytes(tensor, workload), 256) + 512
        pointers[tensor.name] = pointer = int(api.cuMemAlloc(room))
        api.cuMemsetD16Async(pointer, POISON_16, room // 2, stream)
        if tensor.role is not Role.OUT:
            values = task.distribution(tensor, workload)
            fill = fill_parameters(tensor, task.shape(tensor, workload), values, number, seed)
            code.fill(pointer, tensor.dtype, fill, stream)
    sizes = [ctypes.c_int64(workload.dimensions[d]) for d in task.dimensions]
    handle = ctypes.c_void_p(int(stream))
    if kit.artifact.has_prepare:
        library.prepare(*(ctypes.c_void_p(pointers[t.name]) for t in task.weights), *sizes, handle)
    library.solve(*(ctypes.c_void_p(pointers[t.name]) for t in task.tensors), *sizes, handle)
    api.cuCtxSynchronize()
    found = {}
    for tensor in task.outputs:
        raw = np.empty(task.nbytes(tensor, workload), np.uint8)
        api.cuMemcpyDtoH(raw.ctypes.data, pointers[tensor.name], raw.nbytes)
        found[f"{seed}/{tensor.name}"] = raw
    return found


def main(kit_directory: str, name: str, workload: str, kernels: str, output: str, *seeds: str) -> int:
    kit = load_kit(Path(kit_directory), name)
    found = {}
    for seed in map(int, seeds):
        # A private copy of the library for each call: its variables start from their first values.
        copy = Path(output).with_name(f"direct-{seed}.so")
        shutil.copy(str(kit.direct), copy)
        context = Context(0)
        code = DeviceCode(Path(kernels), context)
        found |= execute(kit, workload, code, ctypes.CDLL(str(copy)), seed)
    np.savez(output, **found)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
