"""What the tests of families share: small workloads with inputs and reference, and roundings in NumPy."""

import array_api_compat.numpy as xnp
import ml_dtypes
import numpy as np

from cudahercules.judge.checks import check_output
from cudahercules.judge.verdict import OutputCheck
from cudahercules.task.inputs import generate
from cudahercules.task.load import BUNDLED, family_module, load_family
from cudahercules.task.model import WorkloadRole

f32 = np.float32
SMALL = (WorkloadRole.SMOKE, WorkloadRole.CHECK)


def tasks_of(family, target="general"):
    return [t for t in load_family(BUNDLED / family) if t.target == target]


def through(dtype):
    """Values as they are after a round trip through another type, in fp32."""
    return lambda x: np.asarray(x, f32).astype(dtype).astype(f32)


fp32 = through(f32)
fp16 = through(np.float16)
bf16 = through(ml_dtypes.bfloat16)


def e4m3(x):
    return np.clip(np.asarray(x, f32), -448, 448).astype(ml_dtypes.float8_e4m3fn).astype(f32)


class Case:
    """One small workload with inputs and reference."""

    def __init__(self, task, workload, seed):
        self.task, self.workload, self.sizes = task, workload, task.sizes(workload)
        self.inputs = {t.name: generate(task, t, workload, seed) for t in task.inputs}
        wide = {name: x.astype(np.float64) for name, x in self.inputs.items()}
        self.reference = family_module(task).reference(wide, self.sizes, workload.scalars, xnp)

    def misses(self, outputs, margin=1.0):
        """Names of the outputs that miss their bound divided by ``margin``."""
        missed = []
        for tensor in self.task.outputs:
            tight = self.task.tolerance[tensor.name].tightened(margin)
            stored = np.asarray(outputs[tensor.name]).astype(tensor.dtype.numpy)
            if not isinstance(check_output(tensor, tight, stored, self.reference[tensor.name]), OutputCheck):
                missed.append(tensor.name)
        return missed


def small_workloads(task, *names):
    """All smoke and check workloads of ``task``, or those of these names."""
    wanted = [w for w in task.workloads_of(*SMALL) if not names or w.name in names]
    assert len(wanted) == len(names or wanted)
    return wanted


def cases(task, *names, seeds=(11, 12, 13)):
    return [Case(task, w, seed) for w in small_workloads(task, *names) for seed in seeds]
