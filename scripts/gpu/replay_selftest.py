"""Bring-up of the replay on a real GPU, in one run: prints a short table last, writes JSON.

``python scripts/gpu/replay_selftest.py KIT`` with KIT built by ``hard_plans.py build``. Results go to
``$OUT`` (default ./out): selftest.json and the device's profile. Each section goes on where another
failed; the exit status is 1 if anything did.
"""

from __future__ import annotations

import itertools
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import persisting_probe
from hard_plans import TASKS, Kit, load_kit

from cudahercules.build.toolchain import find_toolchain
from cudahercules.measure.profiles import compare, load_profile
from cudahercules.record.plan import LaunchPlan
from cudahercules.replay.answers import Questioner
from cudahercules.replay.device import architecture_of, read_profile
from cudahercules.replay.driver import Context, DriverError, api
from cudahercules.replay.generator import DeviceCode, device_code, fill_parameters, hash_bytes
from cudahercules.replay.interface import (
    AnswersDiffer,
    Contestant,
    ContestantFault,
    ContestantHang,
    ContestantLost,
    Request,
    locate_fault,
    start_expert,
    start_replay,
    warm_process,
)
from cudahercules.task import inputs
from cudahercules.task.model import (
    Constant,
    DType,
    Integer,
    LowRank,
    Normal,
    Outliers,
    Role,
    RowScaled,
    Tensor,
    Uniform,
    Wide,
)

Row = tuple[str, bool, str]
SEED = 0x1234_5678_9ABC_DEF0
PLACES = [
    "output",
    "scratch",
    "named",
    "static",
    "function_static",
    "constant",
    "slack",
    "shared",
    "local",
    "registers",
]
DISTRIBUTIONS = (
    Normal(mean=-0.5, std=0.3),
    Uniform(kind="uniform", low=-0.3, high=1.1),
    Integer(kind="integer", low=0, high=120),
    Constant(kind="constant", value=1.5),
    Outliers(kind="outliers", std=0.7, fraction=0.01, scale=1000.0),
    Wide(kind="wide", low_exponent=-40, high_exponent=30),
    RowScaled(kind="row_scaled", low_exponent=-20, high_exponent=127),
    LowRank(kind="low_rank", rank=3, std=2.0),
)


class Selftest:
    """``rows`` is the table, ``facts`` what goes into the JSON beside it."""

    def __init__(self, kit: Path, out: Path):
        self.kit, self.out = kit, out
        self.rows: list[Row] = []
        self.facts: dict[str, Any] = {}

    def section(self, name: str, run: Callable[[], Iterator[Row]]) -> None:
        """Collect the rows of a section; an exception is a failed row of its own."""
        began = time.monotonic()
        try:
            self.rows += [(f"{name}: {what}", ok, detail) for what, ok, detail in run()]
        except Exception as error:
            traceback.print_exc()
            self.rows.append((f"{name}: ended early", False, f"{type(error).__name__}: {error}"[:300]))
        self.facts.setdefault("section_seconds", {})[name] = round(time.monotonic() - began, 2)
        print(f"-- {name} {time.monotonic() - began:.1f} s", flush=True)

    def load(self, name: str) -> Kit:
        return load_kit(self.kit, name)

    def start(self, kit: Kit, workload: str, plan: LaunchPlan | None = None, **more: Any) -> Contestant:
        """Replay a kit's plan; where the device answers otherwise, that is noted and the plan is
        replayed without its questions."""
        plan = plan or kit.plans[workload]
        chosen = next(w for w in kit.task.workloads if w.name == workload)
        try:
            return start_replay(plan, kit.artifact, kit.task, chosen, **more)
        except AnswersDiffer as error:
            noted = self.facts.setdefault("answers_that_differ", {})
            given = {a.question: a.answer for a in plan.answers}
            noted[f"{kit.name}/{workload}"] = [
                [d.question, given[d.question], d.answer] for d in error.differences
            ]
            bare = plan.model_copy(update={"answers": ()})
            return start_replay(bare, kit.artifact, kit.task, chosen, **more)

    # --- sections ----------------------------------------------------------------------------------

    def device(self) -> Iterator[Row]:
        profile = read_profile(0)
        (self.out / f"{profile.slug}.json").write_text(profile.model_dump_json(indent=2))
        differences = compare(load_profile(profile.architecture), profile)
        self.facts["profile_differences"] = differences
        yield "profile holds", not differences, "; ".join(differences)[:400]
        self.facts["environment"] = {
            "device": profile.name,
            "driver": profile.source,
            "python": platform.python_version(),
            "kernel": platform.release(),
            "toolchain": find_toolchain().title,
            "pageable_memory_access": profile.attributes.get(88),
            "host_page_tables": profile.attributes.get(100),
        }

    def clusters(self) -> Iterator[Row]:
        """How many clusters of each size fit when every block takes a whole multiprocessor: the
        GPC table of the profile must give the same."""
        context = Context(0)
        code = DeviceCode(device_code(architecture_of(0), find_toolchain().nvcc), context)
        function = code._function("wipe_shared")
        allowed = api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
        api.cuFuncSetAttribute(function, allowed, 1)
        fit = {}
        for size in range(1, 17):
            config = Questioner._config(1024, code.shared_bytes, (size, 1, 1))
            try:
                fit[size] = int(api.cuOccupancyMaxActiveClusters(function, config))
            except DriverError as error:
                fit[size] = f"{error.name}"
        code.close()
        self.facts["clusters_that_fit"] = fit
        table = load_profile(architecture_of(0)).gpc_sms
        told = {s: sum(g // s for g in table) for s in fit}
        wrong = {s: (told[s], n) for s, n in fit.items() if isinstance(n, int) and n != told[s]}
        yield "GPC table holds", not wrong, f"size: (profile, device) {wrong}" if wrong else str(table)

    def generator(self) -> Iterator[Row]:
        context = Context(0)
        code = DeviceCode(device_code(architecture_of(0), find_toolchain().nvcc), context)
        stream = api.cuStreamCreate(1)
        most = 1 << 24
        pointer = int(api.cuMemAlloc(most))
        total, wrong = 0, []
        for dtype, distribution in itertools.product(DType, DISTRIBUTIONS):
            if dtype.is_integer and not isinstance(distribution, Integer | Constant):
                continue
            for shape, layout in (((65_539,), "row"), ((37, 1001), "row"), ((301, 77), "column")):
                tensor = Tensor(name="t", role=Role.IN, dtype=dtype, shape=shape, layout=layout)
                want = inputs.generate_values(tensor, shape, distribution, 2, SEED)
                raw = np.frombuffer(want.tobytes("A"), np.uint8)
                code.fill(pointer, dtype, fill_parameters(tensor, shape, distribution, 2, SEED), stream)
                code.clear_slots(stream)
                code.hash(0, pointer, raw.nbytes, stream)
                got = np.empty_like(raw)
                hashed = code.slots(1, stream)[0]
                api.cuMemcpyDtoH(got.ctypes.data, pointer, got.nbytes)
                total += 1
                if not np.array_equal(got, raw) or hashed != hash_bytes(raw.tobytes()):
                    wrong.append(f"{dtype} {distribution.kind} {shape} {layout}")
        self.facts["generator_wrong"] = wrong
        yield "bit-equal to NumPy", not wrong, f"{total - len(wrong)} of {total} {wrong[:3] or ''}"
        tensor = Tensor(name="t", role=Role.IN, dtype=DType.BF16, shape=(most // 2,))
        fill = fill_parameters(tensor, (most // 2,), Normal(), 0, SEED)
        for name, work in (
            ("fill_16MiB_bf16", lambda: code.fill(pointer, DType.BF16, fill, stream)),
            ("evict", lambda: code.evict(stream, 1)),
            ("wipe", lambda: code.wipe(stream, 1)),
        ):
            work()
            api.cuCtxSynchronize()
            began = time.perf_counter()
            for _ in range(10):
                work()
            api.cuCtxSynchronize()
            self.facts[f"{name}_us"] = round((time.perf_counter() - began) * 1e5, 1)
        code.close()
        api.cuMemFree(pointer)

    def start_up(self) -> Iterator[Row]:
        kit = self.load("two_streams")
        seconds = []
        for _ in range(3):
            began = time.monotonic()
            with self.start(kit, "size0") as contestant:
                seconds.append(round(time.monotonic() - began, 3))
                ready = contestant.ready
        process = warm_process("candidate")
        time.sleep(1.0)
        began = time.monotonic()
        with self.start(kit, "size0", process=process) as contestant:
            warm = time.monotonic() - began
            times = []
            for seed in range(30):
                began = time.monotonic()
                sample = contestant.sample(seed)
                times.append((time.monotonic() - began, sample.microseconds))
            (repeated,) = contestant.batch([Request(seed=1, cold=False, repeat=2000)])
        self.facts["start_seconds"] = seconds
        self.facts["start_seconds_warm_process"] = round(warm, 3)
        self.facts["wall_ms_per_sample"] = round(1000 * statistics.median(t for t, _ in times), 3)
        self.facts["ready"] = ready.model_dump()
        outside = repeated.wall_ns / 1000 / repeated.microseconds
        yield "two streams replay", ready.nodes == 3 and not ready.relocated, f"{ready.nodes} nodes"
        yield "outside clock agrees", 0.98 < outside < 1.05, f"wall / events = {outside:.4f}"

    def hard(self) -> Iterator[Row]:
        names = [n for n in TASKS if n not in ("residue", "beside", "faults", "persisting")]
        for name in names:
            if not (self.kit / name).is_dir():
                yield name, False, "not in the kit"
                continue
            try:
                yield from self._hard_one(self.load(name))
            except Exception as error:
                traceback.print_exc()
                yield name, False, f"{type(error).__name__}: {error}"[:300]

    def _hard_one(self, kit: Kit) -> Iterator[Row]:
        for workload in kit.plans:
            outcomes, seeds = [], (SEED, 7)
            want = self._direct(kit, workload, seeds)
            with self.start(kit, workload) as contestant:
                for seed in seeds:
                    sample = contestant.sample(seed, keep=True)
                    kept = contestant.outputs(sample)
                    got = {t.name: kept.host(t.name) for t in kit.task.outputs}
                    same = [np.frombuffer(got[n].tobytes("A"), np.uint8) for n in got]
                    outcomes.append(
                        all(np.array_equal(a, want[f"{seed}/{n}"]) for a, n in zip(same, got, strict=True))
                        and not sample.damaged_canaries
                        and not sample.changed_inputs
                    )
                    contestant.release(sample)
                cold = [contestant.sample(s).microseconds for s in range(5)]
                nodes = contestant.ready.nodes
            detail = f"bit-equal {sum(outcomes)}/2, {nodes} nodes, {statistics.median(cold):.1f} us cold"
            yield f"{kit.name}/{workload}", all(outcomes), detail

    def _direct(self, kit: Kit, workload: str, seeds: tuple[int, ...]) -> dict[str, np.ndarray]:
        kernels = device_code(architecture_of(0), find_toolchain().nvcc)
        with tempfile.TemporaryDirectory() as directory:
            target = Path(directory) / "out.npz"
            subprocess.run(
                [
                    *(sys.executable, str(Path(__file__).with_name("direct.py"))),
                    *(str(self.kit), kit.name, workload, str(kernels), str(target)),
                    *map(str, seeds),
                ],
                check=True,
                timeout=120,
            )
            with np.load(target) as found:
                return {name: found[name] for name in found.files}

    def faults(self) -> Iterator[Row]:
        kit = self.load("faults")
        expected = {
            "size1": ("write_input", "out_of_bounds"),
            "size2": ("overrun", "out_of_bounds"),
            "size3": ("misaligned", "misaligned"),
            "size4": ("trap", "trap"),
            "size5": ("forever", "deadlock"),
        }
        with self.start(kit, "size0") as bystander:
            for workload, (kernel, what) in expected.items():
                plan = kit.plans[workload]
                chosen = next(w for w in kit.task.workloads if w.name == workload)
                contestant = self.start(kit, workload, sample_s=3.0)
                began = time.monotonic()
                try:
                    contestant.sample(1)
                    first = "nothing happened"
                except ContestantFault as error:
                    first = error.fault.what
                except ContestantHang:
                    first = "deadlock"
                took = time.monotonic() - began
                contestant.close()
                fault = None
                if what != "deadlock":  # locating a hang waits for its limit
                    fault = locate_fault(plan, kit.artifact, kit.task, chosen, 1)
                named = what == "deadlock" or (fault is not None and kernel in fault.kernel)
                message = fault.message if fault else f"killed after {took:.1f} s"
                yield kernel, first == what and named, message[:160]
            yield "a bystander goes on", bystander.sample(1, keep=True).kept == 1, ""

    def kill(self) -> Iterator[Row]:
        kit = self.load("two_streams")
        Context(0)  # stays current: outputs are received in it later
        before = int(api.cuMemGetInfo()[0])
        contestant = self.start(kit, "size0")
        during = int(api.cuMemGetInfo()[0])
        os.kill(contestant.ready.pid, signal.SIGKILL)
        try:
            contestant.sample(1)
            lost = False
        except ContestantLost:
            lost = True
        deadline = time.monotonic() + 10
        while int(api.cuMemGetInfo()[0]) < before - (64 << 20) and time.monotonic() < deadline:
            time.sleep(0.05)
        after = int(api.cuMemGetInfo()[0])
        detail = f"free {before >> 20} -> {during >> 20} -> {after >> 20} MiB"
        yield "kill -9 is noticed, memory comes back", lost and after >= before - (64 << 20), detail

    def residue(self) -> Iterator[Row]:
        kit = self.load("residue")
        found, seen = np.zeros(16, int), np.zeros(16, int)
        with self.start(kit, "size0") as contestant:
            for seed in range(8):
                sample = contestant.sample(seed, keep=True, cold=seed % 2 == 0)
                kept = contestant.outputs(sample)
                found += kept.host("found") != 0
                seen += kept.host("seen") != 0
                contestant.release(sample)
        self.facts["residue_found"] = dict(zip(PLACES, found.tolist(), strict=False))
        self.facts["residue_seen"] = dict(zip(PLACES, seen.tolist(), strict=False))
        for place, f, s in zip(PLACES, found, seen, strict=False):
            yield place, f == 0, f"found in {f} of 8 samples; the mark itself was seen in {s}"

    def beside(self) -> Iterator[Row]:
        """Memory of no variable, but in the pages that the driver maps for the module's variables."""
        kit = self.load("beside")
        for workload in kit.task.workloads:
            offset = workload.dimensions["offset"]
            found = seen = 0
            try:
                with self.start(kit, workload.name) as contestant:
                    for seed in range(4):
                        sample = contestant.sample(seed, keep=True)
                        kept = contestant.outputs(sample)
                        found += int(kept.host("found")[0])
                        seen += int(kept.host("seen")[0])
                        contestant.release(sample)
                detail = f"found in {found} of 4 samples, seen in {seen}"
            except ContestantFault as error:
                detail = f"not mapped ({error.fault.what})"
            yield f"{offset} bytes behind a variable", found == 0, detail

    def persisting(self) -> Iterator[Row]:
        times = persisting_probe.measure(self.load("persisting"), Context(0))
        medians = {name: round(statistics.median(values), 2) for name, values in times.items()}
        self.facts["persisting_us"] = medians
        shipped = medians["persisting as_shipped"]
        strictest = medians["persisting without_set_aside"]
        kept = medians["persisting no_reset"]
        detail = f"{shipped} us; strictest way {strictest}, without any reset {kept}"
        yield "nothing stays for the next cold sample", shipped > 0.98 * strictest, detail

    def families(self) -> Iterator[Row]:
        import torch

        torch.cuda.init()
        for name, workload in (("gemm_naive", "odd"), ("gemm_tiled", "square_4096")):
            kit = self.load(name)
            chosen = next(w for w in kit.task.workloads if w.name == workload)
            began = time.monotonic()
            with (
                start_expert(kit.task, "torch_mm", chosen) as expert,
                self.start(kit, workload) as candidate,
            ):
                both = time.monotonic() - began
                mine, theirs = (c.sample(SEED, keep=True) for c in (candidate, expert))
                same_inputs = mine.input_hashes == theirs.input_hashes and not mine.changed_inputs
                arrays = []
                for contestant, sample in ((candidate, mine), (expert, theirs)):
                    described = contestant.outputs(sample).device("c")
                    arrays.append(torch.as_tensor(described, device="cuda").view(torch.float32).double())
                error = float(torch.linalg.norm(arrays[0] - arrays[1]) / torch.linalg.norm(arrays[1]))
                del arrays
                pairs = []
                for seed in range(20):
                    order = (candidate, expert) if seed % 2 else (expert, candidate)
                    taken = {id(c): c.sample(seed).microseconds for c in order}
                    pairs.append((taken[id(candidate)], taken[id(expert)]))
                for contestant, sample in ((candidate, mine), (expert, theirs)):
                    contestant.release(sample)
            medians = [statistics.median(p[i] for p in pairs) for i in (0, 1)]
            self.facts[f"{name}/{workload}"] = {
                "candidate_us": medians[0],
                "expert_us": medians[1],
                "expert": expert.ready.model_dump(),
                "start_seconds_both": round(both, 2),
            }
            detail = (
                f"error {error:.1e}, {medians[0]:.1f} us, expert {medians[1]:.1f} us ({expert.ready.method})"
            )
            yield f"{name}/{workload}", same_inputs and error < 1e-5, detail


SECTIONS = [
    "device",
    "clusters",
    "generator",
    "start_up",
    "hard",
    "faults",
    "kill",
    "residue",
    "persisting",
    "families",
]


def main(arguments: list[str]) -> int:
    if not arguments:
        print(__doc__)
        return 2
    out = Path(os.environ.get("OUT", "out"))
    out.mkdir(parents=True, exist_ok=True)
    test = Selftest(Path(arguments[0]), out)
    for name in arguments[1:] or SECTIONS:
        test.section(name, getattr(test, name))
    failed = [row for row in test.rows if not row[1]]
    test.facts["rows"] = [{"what": w, "ok": bool(ok), "detail": d} for w, ok, d in test.rows]
    (out / "selftest.json").write_text(json.dumps(test.facts, indent=2, default=str))
    for what, ok, detail in test.rows:
        print(f"{'ok  ' if ok else 'FAIL'} {what:<44} {detail}")
    print(f"{len(test.rows) - len(failed)} of {len(test.rows)} ok")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
