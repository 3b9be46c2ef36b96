"""A GPU judge without a GPU: contestants that compute with NumPy, a station that starts no process."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from cudahercules.build.artifact import Artifact, DeviceModule, KernelInfo
from cudahercules.judge import gpu_grading, gpu_speed, instructions
from cudahercules.judge import lanes as lanes_module
from cudahercules.judge.answers_gpu import KeptAnswer, side_effects
from cudahercules.judge.checks import check_output
from cudahercules.judge.device import Gpu
from cudahercules.judge.lanes import Lane, Lanes
from cudahercules.judge.operands import reference_of
from cudahercules.judge.protocol import Case
from cudahercules.judge.simulated import Simulated, World
from cudahercules.judge.verdict import OutputCheck, WrongOutput
from cudahercules.measure import panel as panels
from cudahercules.measure.profiles import load_profile
from cudahercules.record.plan import ARENA_BASE, Buffer, KernelLaunch, LaunchPlan
from cudahercules.task.inputs import generate
from cudahercules.task.load import family_module, load_family

BENCHMARK_TASKS = Path(__file__).parents[2] / "benchmarks" / "gpu" / "tasks"
GPU = Gpu(0, "NVIDIA H200", "90a", (9, 0), "13.0", 140 << 30, 60 << 20)


@pytest.fixture
def task():
    """y = 2 x with bench workloads that are small enough for NumPy, and one expert."""
    (whole,) = load_family(BENCHMARK_TASKS / "kernel" / "scale")
    sizes = {"us_55": 4000, "us_300": 8000}
    workloads = [
        w.model_copy(update={"dimensions": {"n": sizes.get(w.name, w.dimensions["n"])}})
        for w in whole.workloads
        if w.role.value != "bench" or w.name in sizes
    ]
    expert = {"name": "library", "title": "a library", "packages": ("numpy",)}
    from cudahercules.task.model import Expert

    return whole.model_copy(update={"workloads": tuple(workloads), "experts": (Expert(**expert),)})


class Playing(Simulated):
    """A simulated contestant that really computes: ``wrong`` is added to the first output element of
    samples from number ``wrong_from`` on."""

    def set_up(self, task, workload, behaviour):
        self.task, self.workload, self.behaviour = task, workload, behaviour
        self.results = {}
        return self

    def _one(self, request):
        sample = super()._one(request)
        if sample.kept is not None:
            values = {t.name: generate(self.task, t, self.workload, request.seed) for t in self.task.inputs}
            exact = reference_of(family_module(self.task), self.task, self.workload, values)
            got = {t.name: exact[t.name].astype(t.dtype.numpy) for t in self.task.outputs}
            if self.behaviour.wrong(self.workload.name, self.taken):
                got["y"][0] += 1
            self.results[sample.kept] = got
        changed = self.behaviour.changed_inputs if sample.kept is not None else ()
        return sample.model_copy(update={"changed_inputs": changed})

    def outputs(self, sample):
        results = self.results[sample.kept]

        class Kept:
            def host(self, name):
                return results[name]

        return Kept()


class Behaviour:
    """What the candidate does; tests change its attributes."""

    microseconds = 200.0
    expert_us = 200.0
    faults_at = None
    changed_inputs = ()
    device_answers_differ = 0
    question = "attribute 16"  # that the device answers differently

    def wrong(self, workload, taken):
        return False


class NumpyAnswers:
    """References and checks as the device's, in NumPy."""

    def copy(self, task, workload, contestant, sample):
        kept = contestant.outputs(sample)
        outputs = {t.name: kept.host(t.name) for t in task.outputs}
        return KeptAnswer(sample.seed, outputs, sample.changed_inputs, sample.damaged_canaries)

    def reference(self, task, workload, seed):
        values = {t.name: generate(task, t, workload, seed) for t in task.inputs}
        return reference_of(family_module(task), task, workload, values)

    def check(self, task, workload, answer, reference=None):
        if problem := side_effects(task, answer.changed_inputs, answer.damaged):
            return problem
        if reference is None:
            reference = self.reference(task, workload, answer.seed)
        checks = []
        for t in task.outputs:
            check = check_output(t, task.tolerance[t.name], answer.outputs[t.name], reference[t.name])
            if isinstance(check, WrongOutput):
                return check
            assert isinstance(check, OutputCheck)
            checks.append(check)
        return tuple(checks)

    def close(self):
        pass


class PretendStation:
    """Everything that a grading asks of a station."""

    def __init__(self, task, behaviour):
        self.gpu, self.world, self.behaviour = GPU, World(seed=3, placement=0.002), behaviour
        self.answers = NumpyAnswers()
        self.counters = self.world
        self.profile = self.own_profile = load_profile("90a")
        self.free = 100 << 30
        self.opened, self.declines, self.warmed, self.settled = [], {}, 0, 0
        self.rested, self.stand = [], False

    def candidate_lanes(self):
        return Lanes([Lane(None), Lane(None)])

    def usable_experts(self, task):
        return panels.usable_experts(task, ("numpy",))

    def open_expert(self, task, expert, workload):
        self.opened.append((expert, workload.name))
        made = Playing(self.world, "expert", self.behaviour.expert_us, 1.0)
        return made.set_up(task, workload, Behaviour())

    def start_experts(self, task):
        pass

    def await_expert(self, task, expert, workload):
        if expert in self.declines:
            raise self.declines[expert]

    def warm_answers(self, task):
        self.warmed += 1

    def settle(self):
        assert self.warmed, "PyTorch may come up while something is timed"
        self.settled += 1

    def held_by(self, task, expert):
        return 0

    def answers_stand(self, task):
        return self.stand

    def rest(self, task, expert):
        self.rested.append(expert)

    def free_memory(self):
        return self.free


@pytest.fixture
def behaviour():
    return Behaviour()


@pytest.fixture
def station(task, behaviour, monkeypatch, tmp_path):
    """A pretend station, with recording and replay replaced in the judge's module."""
    monkeypatch.setenv("HERCULES_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(panels, "SHIPPED", tmp_path / "no panels")
    made = PretendStation(task, behaviour)

    def start(plan, artifact, task, workload, device, *, process, sample_s):
        from cudahercules.record.plan import DeviceAnswer
        from cudahercules.replay.interface import AnswersDiffer

        if behaviour.device_answers_differ:
            behaviour.device_answers_differ -= 1
            raise AnswersDiffer((DeviceAnswer(question=behaviour.question, answer="132"),))
        faults = behaviour.faults_at if workload.role.value == "bench" else None
        contestant = Playing(made.world, "candidate", behaviour.microseconds, 1.0, faults)
        return contestant.set_up(task, workload, behaviour)

    monkeypatch.setattr(gpu_grading, "start_replay", start)
    monkeypatch.setattr(
        gpu_grading, "record", lambda artifact, task, workload, profile: plan_of(task, workload)
    )
    monkeypatch.setattr(gpu_grading, "locate_fault", lambda *_: None)
    for module in (gpu_grading, gpu_speed, instructions):
        monkeypatch.setattr(module, "instruction_mixes", lambda _: {"twice": {"global load": 1}})
    monkeypatch.setattr(lanes_module, "end", lambda processes, waiting=True: None)
    return made


def plan_of(task, workload):
    n = workload.dimensions["n"]
    kernel = KernelLaunch(
        stream=0, module=0, kernel="twice", grid=(1, 1, 1), block=(256, 1, 1), parameters=b""
    )
    return LaunchPlan(
        task=task.id,
        workload=workload.name,
        artifact="a" * 64,
        architecture="90a",
        profile="nvidia-h200",
        arena_base=ARENA_BASE,
        buffers=tuple(
            Buffer(name=name, kind=kind, address=ARENA_BASE + k * (64 << 20), size=4 * n)
            for k, (name, kind) in enumerate((("x", "input"), ("y", "output")))
        ),
        solve=(kernel,),
    )


@pytest.fixture
def artifact(tmp_path):
    info = KernelInfo(
        name="twice",
        parameters=(),
        registers=20,
        static_shared=0,
        local=0,
        spill_stores=0,
        spill_loads=0,
        constant=0,
        max_threads=1024,
    )
    module = DeviceModule(
        source="s.cu", cubin="s.cubin", ptx="s.ptx", fatbin_hash="0", kernels=(info,), symbols=()
    )
    return Artifact(
        key="a" * 64,
        architecture="90a",
        directory=tmp_path,
        host_object="s.so",
        has_prepare=False,
        modules=(module,),
        compiler="nvcc 13.0",
        flags=(),
        seconds=0.1,
    )


@pytest.fixture
def case(task):
    ticks = itertools.count()
    return Case(
        task=task,
        candidate="s.cu",
        candidate_sha256="0" * 64,
        seed="a seed",
        clock=lambda: float(next(ticks)),
        architecture="90a",
        compiler="nvcc 13.0",
    )


@pytest.fixture(autouse=True)
def virtual_clock(monkeypatch, request):
    """The outside clock of a measurement in a pretend station is the world's own."""
    if "station" not in request.fixturenames:
        return
    made = request.getfixturevalue("station")
    from cudahercules.judge import paired

    real = paired.measure

    def measure(*arguments, **more):
        return real(*arguments, monotonic_ns=made.world.monotonic_ns, **more)

    monkeypatch.setattr(paired, "measure", measure)


@pytest.fixture
def make_plan():
    """A function (task, workload) -> plan."""
    return plan_of
