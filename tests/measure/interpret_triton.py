"""Our Triton kernels on a family's small workloads, in Triton's interpreter: ``interpret_triton.py TASK``.

Needs TRITON_INTERPRET=1 from the start, because Triton's own functions are decorated when it is imported.
Prints a line a workload and ends with status 1 if an answer is wrong.
"""

import sys

import array_api_compat.numpy as xnp
import numpy as np
import torch

from cudahercules.judge.checks import check_output
from cudahercules.judge.verdict import OutputCheck
from cudahercules.measure import triton_convolution as kernels
from cudahercules.task.inputs import generate
from cudahercules.task.load import family_module, load_task
from cudahercules.task.model import WorkloadRole

TILE = {"PIXELS": 64, "FILTERS": 32, "CHANNELS": 32}


class Fixed:
    """A kernel with one tile instead of a search."""

    def __init__(self, kernel):
        self.kernel = kernel

    def __getitem__(self, grid):
        return lambda *values, **options: self.kernel[grid(TILE)](*values, **options, **TILE)


FORWARD, GRADIENT = Fixed(kernels.forward_kernel), Fixed(kernels.filter_gradient_kernel)


def plain(t, y, how):
    return kernels.forward(t["x"], t["filter"], y, how, kernel=FORWARD)


def rectified(t, y, how):
    return kernels.forward(t["x"], t["filter"], y, how, bias=t["bias"], kernel=FORWARD)


def activated(t, y, how):
    return kernels.forward(t["x"], t["filter"], y, how, (t["scale"], t["bias"]), kernel=FORWARD)


def filter_gradient(t, dfilter, how):
    operands = (t[name] for name in ("dy", "x", "scale", "bias"))
    return kernels.filter_gradient(*operands, dfilter, how, kernel=GRADIENT)


KERNELS = {
    "conv2d_fprop": plain,
    "conv2d_fprop_bias_relu": rectified,
    "conv2d_fprop_prologue": activated,
    "conv2d_wgrad": filter_gradient,
}


def mistake(task, workload):
    """What is wrong with the kernel's answer, or nothing."""
    values = {t.name: generate(task, t, workload, 7) for t in task.inputs}
    wide = {name: x.astype(np.float64) for name, x in values.items()}
    (tensor,) = task.outputs
    expected = family_module(task).reference(wide, task.sizes(workload), workload.scalars, xnp)[tensor.name]
    out = torch.full(expected.shape, torch.nan, dtype=torch.from_numpy(values["x"]).dtype)
    how = tuple(int(workload.scalars[name]) for name in ("stride", "padding", "dilation"))
    make = KERNELS[task.family.removeprefix("kernel/")]
    make({name: torch.from_numpy(x.copy()) for name, x in values.items()}, out, how)()
    found = check_output(tensor, task.tolerance[tensor.name], out.numpy(), expected)
    return "" if isinstance(found, OutputCheck) else found.message


def main():
    task, wrong = load_task(sys.argv[1]), 0
    for workload in task.workloads_of(WorkloadRole.SMOKE, WorkloadRole.CHECK):
        message = mistake(task, workload)
        wrong += bool(message)
        print(workload.name, message or "right")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
