"""The task as a model reads it: the family's ``prompt.md``, then everything that is generated.

Interface, contract, hardware, sizes and tolerance come from the task itself, so they cannot
contradict what the judge does. Nothing of the reference, the experts, the mutants, the check
workloads' values or any seed goes in.
"""

from __future__ import annotations

from collections.abc import Iterator

from cudahercules.task.header import solve_header
from cudahercules.task.model import (
    Distribution,
    LibraryPolicy,
    Target,
    Task,
    Tensor,
    Tolerance,
    Workload,
    WorkloadRole,
)

TOOLKIT = "CUDA 13.0"

_HARDWARE = {
    Target.GENERAL: "any NVIDIA GPU from Ampere on; it is built for the one at hand "
    "(sm_80, sm_90a, sm_100a, sm_103a or sm_120a)",
    Target.AMPERE: "NVIDIA A100 (Ampere), built for sm_80",
    Target.HOPPER: "NVIDIA H100/H200 (Hopper), built for sm_90a",
    Target.BLACKWELL: "NVIDIA B200 (Blackwell), built for sm_100a",
    Target.BLACKWELL_SM103: "NVIDIA B300 (Blackwell Ultra), built for sm_103a",
    Target.BLACKWELL_RTX: "NVIDIA RTX Blackwell, built for sm_120a",
}
_LIBRARIES = {
    LibraryPolicy.RUNTIME: "CUDA runtime headers, libcu++ (`<cuda/...>`) and cooperative groups. "
    "No CUB, Thrust, CUTLASS, cuBLAS or any other library.",
    LibraryPolicy.CUB: "CUDA runtime headers, libcu++, cooperative groups, CUB and Thrust. "
    "No CUTLASS, cuBLAS or any other library.",
    LibraryPolicy.CUTLASS: "CUDA runtime headers, libcu++, cooperative groups, CUB, Thrust, and "
    "CUTLASS with CuTe. No cuBLAS or any other library.",
}
_CONTRACT = """\
* Define `solve` exactly as `solve.h` declares it. It runs on the host: enqueue work on `stream`, or on
  streams of your own that are forked from it and joined to it with events.
* Inputs are read-only. Outputs hold poison (NaN patterns), not zeros: write every element.
* Every pointer is a device pointer, 256-byte aligned. Tensors are dense and do not overlap.
* Take scratch memory with `cudaMalloc`, `cudaMallocAsync` or module-scope `__device__` variables.
  Its contents are undefined at each call.
* Nothing may be assumed to survive from one call to the next: inputs change, and scratch, outputs and
  module variables are reset.
* No synchronisation is needed and none changes anything. The host code cannot see tensor values:
  reading device memory from the host, timing on the device's clock from the host, managed or mapped
  memory, textures, run-time compilation, host callbacks, launches from the device and the device heap
  are refused.
* What is enqueued may depend on the dimensions and scalars only, never on tensor values."""
_PREPARE = """\
* `prepare` is optional. It sees only the weights, runs before `solve`, and is not timed; what it
  writes to scratch or module variables is there when `solve` runs."""
_JUDGING = """\
First come small workloads with odd sizes and difficult values, which are checked and not timed. Then
the workloads above are timed and checked: fresh inputs and a cold L2 cache for each sample, in turns
with an implementation that experts ship for the same work on the same GPU. Wrong answers have no
speed. The aim is to be faster than the expert on all of these workloads."""


def prompt(task: Task) -> str:
    """The whole text that a model gets for ``task``, in Markdown."""
    return "\n\n".join(sections(task).values()) + "\n"


def sections(task: Task) -> dict[str, str]:
    """The parts of :func:`prompt` in their order: ``statement`` (the family's prompt.md), ``interface``,
    ``contract``, ``values``, ``environment``, ``workloads``, ``accuracy`` and ``answer``."""
    return {
        "statement": task.prompt_text.strip(),
        "interface": "## Interface\n\n`solve.h` (include it; it is generated):\n\n"
        f"```cpp\n{solve_header(task)}```",
        "contract": f"## Contract\n\n{_CONTRACT}" + (f"\n{_PREPARE}" if task.weights else ""),
        "values": "## Values\n\n" + "\n".join(_values(task)),
        "environment": "## Hardware, compiler, libraries\n\n" + "\n".join(_environment(task)),
        "workloads": "## Timed workloads\n\n" + "\n".join(_workloads(task)) + f"\n\n{_JUDGING}",
        "accuracy": "## Accuracy\n\n" + "\n".join(_accuracy(task)),
        "answer": "## Answer\n\nOne CUDA C++ source file that includes `solve.h` and defines "
        + ("`solve` and, if you like, `prepare`." if task.weights else "`solve`."),
    }


def _values(task: Task) -> Iterator[str]:
    yield "In the timed workloads, unless a workload says otherwise:"
    yield ""
    for tensor in task.inputs:
        yield f"* `{tensor.name}`: {describe_values(tensor.values)}"


def describe_values(values: Distribution) -> str:
    """A distribution in words."""
    fields = values.model_dump()
    kind = fields.pop("kind").replace("_", " ")
    numbers = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in fields.items())
    return f"{kind} ({numbers})"


def _environment(task: Task) -> Iterator[str]:
    yield f"* GPU: {_HARDWARE[task.target]}."
    yield f"* Compiler: nvcc of {TOOLKIT}, C++17, `-O3`. No other flags can be given."
    yield f"* Allowed: {_LIBRARIES[task.library_policy]} Inline PTX is allowed."


def _workloads(task: Task) -> Iterator[str]:
    names = [*task.dimensions, *(s.name for s in task.scalars)]
    yield f"| workload | {' | '.join(names)} | from |"
    yield "|---|" + "---:|" * len(names) + "---|"
    for workload in task.workloads_of(WorkloadRole.BENCH):
        numbers = [str(workload.dimensions[d]) for d in task.dimensions]
        numbers += [f"{workload.scalars[s.name]:g}" for s in task.scalars]
        about = "; ".join([workload.source, *_overrides(workload)]).strip("; ")
        yield f"| {workload.name} | {' | '.join(numbers)} | {about} |"
    yield ""
    yield "Other sizes, from 1 upwards, must give right answers as well."


def _overrides(workload: Workload) -> Iterator[str]:
    for name, values in workload.values.items():
        yield f"{name}: {describe_values(values)}"


def _accuracy(task: Task) -> Iterator[str]:
    yield "Outputs are compared with a double-precision reference on the same inputs. NaN and infinity fail."
    yield ""
    for tensor in task.outputs:
        yield f"* `{tensor.name}`: {_tolerance(tensor, task.tolerance[tensor.name])}"


def _tolerance(tensor: Tensor, bound: Tolerance) -> str:
    if bound.exact:
        return "every element must be equal."
    row = "row (slice along the last axis)" if len(tensor.shape) > 1 else "vector"
    text = f"relative L2 error of the whole output at most {bound.l2:g}"
    if len(tensor.shape) > 1:
        text += f", of the worst {row} at most {bound.row_l2:g}"
    text += f", and no element off by more than {bound.element:g} times the root mean square of its {row}"
    return text + (f" plus {bound.element_relative:g} times its own size." if bound.element_relative else ".")
