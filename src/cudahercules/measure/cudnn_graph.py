"""cuDNN's graph interface at its best: the plans that it offers are timed, and the fastest is kept.

PyTorch builds graphs of a single convolution. What surrounds one (a scale and a rectifier before it, a bias
after it) can be fused by cuDNN itself, if it is described as one graph. Needs the package
nvidia-cudnn-frontend; the library is the one that torch brings.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

WORKSPACE_BYTES = 1 << 30
"""Plans that need more scratch memory are passed over."""
WARM_UP_RUNS, SCREENING_RUNS, FINAL_RUNS, FINALISTS = 1, 3, 12, 4
"""Plans are timed a few times, the best ones then more often."""
SEARCH_S = 45.0
"""Plans that are not reached within this time are passed over: the library lists its best guesses first, and
many plans are compiled when they are built."""

Describe = Callable[[Any, Mapping[str, Any]], Any]
"""(graph, tensors of the graph by name) to the graph's result."""


def fastest_graph(operands: Mapping[str, Any], result: Any, describe: Describe) -> Callable[[], None]:
    """A function that runs the fastest plan for a graph on the stream that is current now.

    operands   name -> torch tensor: fp16 or bf16, any strides, axes as cuDNN has them (batch, channel, row,
               column)
    result     torch tensor that the function writes
    describe   builds the graph; values between its nodes are fp32, and so is the arithmetic

    Raises NotImplementedError if cuDNN offers no plan that runs.
    """
    import cudnn
    import torch

    handle = cudnn.create_handle()
    cudnn.set_stream(handle, torch.cuda.current_stream().cuda_stream)
    graph, places = _planned(cudnn, handle, operands, result, describe)
    plans: list[tuple[float, int, Callable[[], None]]] = []
    began = time.monotonic()
    for index in range(graph.get_execution_plan_count()):
        if plans and time.monotonic() - began > SEARCH_S:
            break
        plan = _built(cudnn, torch, graph, index, places, handle)
        if plan is not None:
            plans.append((_microseconds(torch, plan, SCREENING_RUNS), index, plan))
    if not plans:
        raise NotImplementedError("cuDNN offers no plan for this graph that runs on this GPU")
    finalists = [plan for _, _, plan in sorted(plans)[:FINALISTS]]
    return min(finalists, key=lambda plan: _microseconds(torch, plan, FINAL_RUNS))


def version() -> dict[str, str]:
    """Versions of the library and of the package that describes graphs to it."""
    import cudnn

    return {"cudnn": str(cudnn.backend_version()), "cudnn-frontend": cudnn.__version__}


def _planned(
    cudnn: Any, handle: Any, operands: Mapping[str, Any], result: Any, describe: Describe
) -> tuple[Any, dict[Any, Any]]:
    """The graph with its list of plans, and the torch tensor of each of its outer tensors."""
    types = {"torch.float16": cudnn.data_type.HALF, "torch.bfloat16": cudnn.data_type.BFLOAT16}
    graph = cudnn.pygraph(
        io_data_type=types[str(result.dtype)],
        intermediate_data_type=cudnn.data_type.FLOAT,
        compute_data_type=cudnn.data_type.FLOAT,
        handle=handle,
    )
    outer = {
        name: graph.tensor(
            name=name, dim=list(t.shape), stride=list(t.stride()), data_type=types[str(t.dtype)]
        )
        for name, t in operands.items()
    }
    end = describe(graph, outer)
    end.set_output(True).set_data_type(types[str(result.dtype)])
    end.set_dim(list(result.shape)).set_stride(list(result.stride()))
    try:
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.B, cudnn.heur_mode.FALLBACK])
        graph.check_support()
    except cudnn.cudnnGraphNotSupportedError as error:
        raise NotImplementedError(f"cuDNN does not support this graph: {error}") from error
    return graph, {**{outer[name]: t for name, t in operands.items()}, end: result}


def _built(
    cudnn: Any, torch: Any, graph: Any, index: int, places: dict[Any, Any], handle: Any
) -> Callable[[], None] | None:
    """The plan as a function, run once; None if it cannot be built, needs too much memory or does not run."""
    try:
        graph.build_plan_at_index(index)
        needed = graph.get_workspace_size_plan_at_index(index)
        if needed > WORKSPACE_BYTES:
            return None
        workspace = torch.empty(max(1, needed), dtype=torch.uint8, device="cuda")

        def run() -> None:
            graph.execute_plan_at_index(places, workspace, index, handle)

        for _ in range(WARM_UP_RUNS):
            run()
        torch.cuda.synchronize()
    except (cudnn.cudnnGraphNotSupportedError, RuntimeError):
        return None
    return run


def _microseconds(torch: Any, run: Callable[[], None], runs: int) -> float:
    """The shortest of some runs."""
    times = []
    for _ in range(runs):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        stop.record()
        stop.synchronize()
        times.append(1e3 * start.elapsed_time(stop))
    return min(times)
