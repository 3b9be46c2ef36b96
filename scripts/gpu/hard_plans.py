"""Candidates that stress the recorder and the replay, as tasks of their own; and a kit of them.

``python scripts/gpu/hard_plans.py build DIRECTORY [NAME...]`` compiles and records each candidate
(no GPU needed) and builds the same source with NVIDIA's own runtime into a shared object, for direct
execution. ``load_kit`` reads the directory back, on another machine too.
"""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from cudahercules.build.artifact import Artifact
from cudahercules.build.candidate import load_candidate
from cudahercules.build.compile import build
from cudahercules.build.steps import compiler_flags
from cudahercules.build.toolchain import find_cutlass, find_toolchain
from cudahercules.measure.profiles import load_profile
from cudahercules.process import Limits, run_limited
from cudahercules.record.plan import LaunchPlan
from cudahercules.record.recorder import record
from cudahercules.task.header import solve_header
from cudahercules.task.load import load_task
from cudahercules.task.model import (
    DType,
    Integer,
    LibraryPolicy,
    Normal,
    Role,
    Target,
    Task,
    TaskClass,
    Tensor,
    Tolerance,
    Workload,
    WorkloadRole,
)

HERE = Path(__file__).parent / "hard"
ARCHITECTURE = "90a"


def _tensor(name: str, role: Role, dtype: DType, *shape: str | int, values=None, layout="row") -> Tensor:
    return Tensor(name=name, role=role, dtype=dtype, shape=shape, values=values or Normal(), layout=layout)


def _task(name: str, tensors: tuple[Tensor, ...], sizes: list[dict[str, int]], policy="runtime") -> Task:
    return Task(
        id=f"kernel/hard/{name}@hopper",
        family="kernel/hard",
        member=name,
        task_class=TaskClass.KERNEL,
        target=Target.HOPPER,
        title=name,
        domain="selftest",
        directory=HERE,
        prompt_text="",
        constants={},
        dimensions=tuple(sizes[0]),
        tensors=tensors,
        workloads=tuple(
            Workload(name=f"size{i}", role=WorkloadRole.CHECK, dimensions=s) for i, s in enumerate(sizes)
        ),
        tolerance={t.name: Tolerance(exact=True) for t in tensors if t.role is Role.OUT},
        library_policy=LibraryPolicy(policy),
        release="selftest",
    )


_IN, _OUT, _WEIGHT = Role.IN, Role.OUT, Role.WEIGHT
_FLOAT_MAP = (_tensor("x", _IN, DType.FP32, "n"), _tensor("y", _OUT, DType.FP32, "n"))
_SMALL_INTEGERS = Integer(kind="integer", low=-1000, high=1000)
_ANY_WORD = Integer(kind="integer", low=0, high=2**32 - 1)
_N = [{"n": 1 << 20}, {"n": 1_000_003}]

TASKS: dict[str, Task] = {
    t.member: t
    for t in (
        _task(
            "cub_sort",
            (
                _tensor("keys", _IN, DType.UINT32, "n", values=_ANY_WORD),
                _tensor("values", _IN, DType.UINT32, "n", values=_ANY_WORD),
                _tensor("sorted_keys", _OUT, DType.UINT32, "n"),
                _tensor("sorted_values", _OUT, DType.UINT32, "n"),
            ),
            [{"n": (1 << 24) + 13}, {"n": 1000}],
            "cub",
        ),
        _task(
            "cub_algorithms",
            (
                _tensor("values", _IN, DType.INT32, "n", values=_SMALL_INTEGERS),
                _tensor("prefix", _OUT, DType.INT32, "n"),
                _tensor("total", _OUT, DType.INT32, 1),
                _tensor("odd", _OUT, DType.INT32, "n"),
                _tensor("count", _OUT, DType.INT32, 1),
            ),
            [{"n": (1 << 22) + 5}],
            "cub",
        ),
        _task(
            "cooperative",
            (
                _tensor("x", _IN, DType.UINT32, "n", values=_ANY_WORD),
                _tensor("y", _OUT, DType.UINT64, "n"),
            ),
            _N,
        ),
        *(
            _task(name, _FLOAT_MAP, _N)
            for name in ("programmatic", "two_streams", "own_graph", "symbols", "cluster")
        ),
        _task(
            "tensor_map",
            (
                _tensor("x", _IN, DType.FP32, "rows", "columns"),
                _tensor("y", _OUT, DType.FP32, "columns", "rows"),
                _tensor("z", _OUT, DType.FP32, "columns", "rows"),
            ),
            [{"rows": 1024, "columns": 2048}],
        ),
        _task(
            "cutlass_gemm",
            (
                _tensor("a", _IN, DType.BF16, "m", "k"),
                _tensor("b", _IN, DType.BF16, "k", "n", layout="column"),
                _tensor("c", _OUT, DType.BF16, "m", "n"),
            ),
            [{"m": 4096, "n": 4096, "k": 4096}],
            "cutlass",
        ),
        _task(
            "weights",
            (
                _tensor("w", _WEIGHT, DType.FP32, "n"),
                _tensor("x", _IN, DType.FP32, "n"),
                _tensor("y", _OUT, DType.FP32, "n"),
            ),
            _N,
        ),
        _task(
            "residue",
            (
                _tensor("x", _IN, DType.FP32, "n"),
                _tensor("out", _OUT, DType.UINT32, "n"),
                _tensor("found", _OUT, DType.INT32, 16),
                _tensor("seen", _OUT, DType.INT32, 16),
            ),
            [{"n": 4096}],
        ),
        _task(
            "beside",
            (
                _tensor("x", _IN, DType.FP32, "offset"),
                _tensor("found", _OUT, DType.INT32, 1),
                _tensor("seen", _OUT, DType.INT32, 1),
            ),
            [{"offset": n} for n in (256, 4096, 65536, 1 << 20)],
        ),
        _task(
            "faults",
            (*_FLOAT_MAP, _tensor("choice", _IN, DType.INT32, "mode")),
            [{"n": 4096, "mode": i + 1} for i in range(6)],
        ),
        _task(
            "persisting",
            (*_FLOAT_MAP, _tensor("choice", _IN, DType.INT32, "mode")),
            [{"n": 4 << 20, "mode": i + 1} for i in range(2)],
        ),
    )
}
"""``faults`` and ``persisting`` choose what to do by the dimension ``mode``."""

FAMILY_CASES = {
    "gemm_naive": ("kernel/gemm/fp32@general", "naive.cu", ("odd", "square_4096")),
    "gemm_tiled": ("kernel/gemm/fp32@general", "tiled.cu", ("square_4096",)),
}
"""Name -> task, candidate and workloads of families that ship."""


@dataclass(frozen=True)
class Kit:
    """One candidate, built and recorded: plans by workload; ``direct`` is None if not built."""

    name: str
    task: Task
    artifact: Artifact
    plans: dict[str, LaunchPlan]
    direct: Path | None


def build_one(name: str, directory: Path) -> None:
    """Build, record and store ``name`` under ``directory``. Raises SystemExit with the reason."""
    if name in TASKS:
        task, source = TASKS[name], HERE / f"{name}.cu"
        workloads = [w.name for w in task.workloads]
    else:
        identity, file, chosen = FAMILY_CASES[name]
        task = load_task(identity)
        source, workloads = task.directory / file, list(chosen)
    artifact = build(load_candidate(source), task, ARCHITECTURE)
    if not isinstance(artifact, Artifact):
        raise SystemExit(f"{name}: {artifact.kind}: {artifact.message}\n{artifact.diagnostics}")
    plans = {}
    for workload in task.workloads:
        if workload.name not in workloads:
            continue
        plan = record(artifact, task, workload, load_profile(ARCHITECTURE))
        if not isinstance(plan, LaunchPlan):
            raise SystemExit(f"{name}/{workload.name}: {plan.kind}: {plan.message}")
        plans[workload.name] = plan
    target = directory / name
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for module in artifact.modules:
        (target / module.cubin).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(artifact.path(module.cubin), target / module.cubin)
    (target / "artifact.json").write_text(artifact.model_dump_json())
    (target / "task.json").write_text(task.model_dump_json())
    (target / "plans.json").write_text(json.dumps({k: p.canonical_json() for k, p in plans.items()}))
    if name in TASKS:
        build_direct(task, source, target / "direct.so")


def build_direct(task: Task, source: Path, target: Path) -> None:
    """``source`` as a shared object with NVIDIA's runtime inside, compiled with the same flags."""
    toolchain = find_toolchain()
    work = target.parent / "work"
    work.mkdir()
    (work / "solve.h").write_text(solve_header(task))
    extra = ["-I", str(find_cutlass())] if task.library_policy is LibraryPolicy.CUTLASS else []
    flags = [f for f in compiler_flags(ARCHITECTURE) if f not in ("-Xptxas", "-v") and "prefix-map" not in f]
    flags = [f for f in flags if f != "-Xcompiler"]
    done = run_limited(
        [toolchain.nvcc, *flags, "-Xcompiler", "-fPIC", "-shared", "-I", work, *extra, "-o", target, source],
        Limits(wall_s=600),
        env=toolchain.environment(work),
    )
    shutil.rmtree(work)
    if done.status != 0:
        raise SystemExit(f"{task.member}: direct build: {done.stderr.decode(errors='replace')[-2000:]}")


def load_kit(directory: Path, name: str) -> Kit:
    """Read one kit; paths are made those of this machine."""
    place = directory / name
    task = Task.model_validate_json((place / "task.json").read_text())
    shipped = Path(__file__).parents[2] / "src/cudahercules/tasks" / task.family
    task = task.model_copy(update={"directory": shipped if shipped.is_dir() else HERE})
    artifact = Artifact.model_validate_json((place / "artifact.json").read_text())
    artifact = artifact.model_copy(update={"directory": place})
    plans = json.loads((place / "plans.json").read_text())
    direct = place / "direct.so"
    return Kit(
        name,
        task,
        artifact,
        {k: LaunchPlan.model_validate_json(text) for k, text in plans.items()},
        direct if direct.exists() else None,
    )


def main(arguments: list[str]) -> int:
    if len(arguments) < 2 or arguments[0] != "build":
        print(__doc__)
        return 2
    for name in arguments[2:] or [*TASKS, *FAMILY_CASES]:
        build_one(name, Path(arguments[1]))
        print(name, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
