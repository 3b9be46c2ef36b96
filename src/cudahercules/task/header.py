"""``solve.h``: the interface of a task as C++, generated from its tensors.

One header serves one member for one target. Integer parameters are macros in upper case, each
tensor has a type alias ``<name>_t``, so the same source can serve several members.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cudahercules.task.model import DType, Role, Scalar, Task, Tensor

_INCLUDES = {
    DType.FP16: "cuda_fp16.h",
    DType.BF16: "cuda_bf16.h",
    DType.FP8_E4M3: "cuda_fp8.h",
    DType.FP8_E5M2: "cuda_fp8.h",
}
_ROLE = {
    Role.IN: "input",
    Role.WEIGHT: "input (weight: prepare may read it too)",
    Role.OUT: "output",
    Role.INOUT: "input and output, changed in place",
}


def solve_header(task: Task) -> str:
    """The text of ``solve.h``: includes, macros, type aliases, and the declarations to define."""
    return "\n".join([*_preamble(task), *_types(task), "", *_declarations(task), ""])


def _preamble(task: Task) -> Iterator[str]:
    yield f"// solve.h: the interface of {task.id}."
    yield "#pragma once"
    yield ""
    yield "#include <cuda_runtime.h>"
    yield from (f"#include <{name}>" for name in sorted({_INCLUDES[t.dtype] for t in _special(task)}))
    yield "#include <cstdint>"
    yield ""
    for name, value in task.constants.items():
        meaning = task.meanings.get(name, "")
        yield f"#define {name.upper()} {value}" + (f"  // {meaning}" if meaning else "")
    if task.constants:
        yield ""


def _special(task: Task) -> Iterator[Tensor]:
    return (t for t in task.tensors if t.dtype in _INCLUDES)


def _types(task: Task) -> Iterator[str]:
    for tensor in task.tensors:
        yield f"using {tensor.name}_t = {tensor.dtype.c_type};  // {tensor.dtype.value}"


def _declarations(task: Task) -> Iterator[str]:
    yield "// Enqueue all work on `stream` (or on streams joined to it) and return."
    yield from _documentation(task, task.tensors)
    yield from _function("solve", task, task.tensors)
    if task.weights:
        yield ""
        yield "// Optional: define it to prepare from the weights alone; it is not timed."
        yield from _documentation(task, task.weights)
        yield from _function("prepare", task, task.weights)


def _documentation(task: Task, tensors: Sequence[Tensor]) -> Iterator[str]:
    rows = [(t.name, describe_tensor(task, t)) for t in tensors]
    rows += [(d, task.meanings.get(d, "")) for d in task.dimensions]
    rows += [(s.name, s.description) for s in task.scalars]
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        yield f"//   {name:<{width}}  {text}".rstrip()


def describe_tensor(task: Task, tensor: Tensor) -> str:
    """One line: role, dtype, shape, order in memory, and what the tensor is."""
    shape = ", ".join(
        extent.upper() if isinstance(extent, str) and extent not in task.dimensions else str(extent)
        for extent in tensor.shape
    )
    order = ""
    if len(tensor.shape) > 1:
        order = ", row-major" if tensor.layout == "row" else ", column-major"
    about = f": {tensor.description}" if tensor.description else ""
    return f"{_ROLE[tensor.role]}, {tensor.dtype.value}[{shape}]{order}{about}"


def _function(name: str, task: Task, tensors: Sequence[Tensor]) -> Iterator[str]:
    parameters = [parameter(t) for t in tensors]
    parameters += [f"int64_t {d}" for d in task.dimensions]
    parameters += [_scalar(s) for s in task.scalars]
    parameters.append("cudaStream_t stream")
    opening = f'extern "C" void {name}('
    indent = " " * len(opening)
    for i, text in enumerate(parameters):
        end = ");" if i == len(parameters) - 1 else ","
        yield f"{opening if i == 0 else indent}{text}{end}"


def parameter(tensor: Tensor) -> str:
    """The tensor as a C++ parameter; inputs point to const."""
    const = "const " if tensor.role in (Role.IN, Role.WEIGHT) else ""
    return f"{const}{tensor.name}_t* {tensor.name}"


def _scalar(scalar: Scalar) -> str:
    return f"{scalar.c_type} {scalar.name}"
