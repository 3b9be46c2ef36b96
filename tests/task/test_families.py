"""The bundled families: references against independent ones, and files that keep their promises."""

import math
import re
import subprocess
import sys

import array_api_compat.numpy as xnp
import numpy as np
import pytest

from cudahercules.judge.operands import widen
from cudahercules.task.inputs import generate
from cudahercules.task.load import BUNDLED, all_tasks, experts_module, family_module
from cudahercules.task.model import WorkloadRole

FAMILIES = sorted({t.directory for t in all_tasks()})


def wide_inputs(task, workload, seed=1):
    """Inputs as the judge hands them to a reference: float64, complex128 or 64-bit integers."""
    arrays = {t.name: generate(task, t, workload, seed) for t in task.inputs}
    return {t.name: widen(t, arrays[t.name]) for t in task.inputs}


def reference(task, workload, inputs, xp=xnp):
    return family_module(task).reference(inputs, task.sizes(workload), workload.scalars, xp)


# --- independent references, element by element --------------------------------------------------


def simple_gemm(task, workload, x):
    a, b = x["a"], x["b"]
    c = [[math.fsum(p * q for p, q in zip(r, s, strict=True)) for s in b.T.tolist()] for r in a.tolist()]
    return {"c": np.array(c)}


def simple_rotary(task, workload, x):
    size, half = task.constants["head_dim"], task.constants["head_dim"] // 2

    def rotate(values):
        out = np.empty_like(values)
        for token, place in enumerate(x["position"]):
            row = x["cos_sin"][place]
            for i in range(half):
                pair = (2 * i, 2 * i + 1) if task.constants["interleaved"] else (i, i + half)
                turn = np.array([[row[i], -row[half + i]], [row[half + i], row[i]]])
                for head in range(values.shape[1]):
                    out[token, head, list(pair)] = turn @ values[token, head, list(pair)]
        assert size == values.shape[-1]
        return out

    return {"q_out": rotate(x["q"]), "k_out": rotate(x["k"])}


def simple_layernorm(task, workload, x):
    z, means, rstds = [], [], []
    for row in x["x"].tolist():
        mean = math.fsum(row) / len(row)
        rstd = (math.fsum((v - mean) ** 2 for v in row) / len(row) + workload.scalars["eps"]) ** -0.5
        z.append((np.array(row) - mean) * rstd * x["weight"] + x["bias"])
        means.append(mean)
        rstds.append(rstd)
    return {"z": np.array(z), "mean": np.array(means), "rstd": np.array(rstds)[:, None]}


SIMPLE = {
    "kernel/gemm": simple_gemm,
    "kernel/rotary": simple_rotary,
    "module/layernorm_fwd": simple_layernorm,
}
KNOWN = SIMPLE


def test_reference_agrees_with_a_plain_one(known_task):
    if known_task.family not in SIMPLE:
        pytest.skip("the family's own test file has its plain reference")
    workloads = [*known_task.workloads_of(WorkloadRole.SMOKE), known_task.workloads[-3]]
    for workload in workloads:
        if workload.role is WorkloadRole.BENCH:
            continue
        inputs = wide_inputs(known_task, workload)
        got = reference(known_task, workload, inputs)
        expected = SIMPLE[known_task.family](known_task, workload, inputs)
        assert got.keys() == {t.name for t in known_task.outputs} == expected.keys()
        for tensor in known_task.outputs:
            value = got[tensor.name]
            assert value.shape == known_task.shape(tensor, workload)
            assert value.dtype == np.float64
            np.testing.assert_allclose(value, expected[tensor.name], rtol=1e-11, atol=1e-11)


def test_reference_is_the_same_in_every_array_library(each_task):
    torch = pytest.importorskip("torch")
    import array_api_compat.torch as xtorch

    for workload in each_task.workloads_of(WorkloadRole.SMOKE, WorkloadRole.CHECK):
        inputs = wide_inputs(each_task, workload)
        ours = reference(each_task, workload, inputs)
        theirs = reference(each_task, workload, {k: torch.asarray(v) for k, v in inputs.items()}, xtorch)
        for name, value in ours.items():
            np.testing.assert_allclose(theirs[name].numpy(), value, rtol=1e-11, atol=1e-12)


def test_positions_stay_inside_the_table():
    for task in all_tasks():
        if task.family != "kernel/rotary":
            continue
        for workload in task.workloads:
            position = next(t for t in task.tensors if t.name == "position")
            assert task.distribution(position, workload).high < workload.dimensions["positions"]
            assert task.distribution(position, workload).low >= 0


# --- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("directory", FAMILIES, ids=lambda d: d.name)
def test_every_candidate_states_its_expectation_first(directory):
    members = [t for t in all_tasks() if t.directory == directory]
    listed = {m.file: m for t in members for m in (*t.mutants, *t.hostile)}
    for name in sorted({c for t in members for c in t.candidates}):
        first = (directory / name).read_text().splitlines()[0]
        assert first.startswith("// ")
        assert not first.startswith("// expect:")
    on_disk = {
        str(p.relative_to(directory)) for k in ("mutants", "hostile") for p in (directory / k).glob("*")
    }
    assert on_disk == set(listed)
    for name, mutant in listed.items():
        first = (directory / name).read_text().splitlines()[0]
        stated = re.fullmatch(r"// expect: ([a-z_ ]+) — (.{20,})", first)
        assert stated, name
        assert stated[1] == mutant.verdict, name


@pytest.mark.parametrize("directory", FAMILIES, ids=lambda d: d.name)
def test_no_two_candidates_are_equal(directory):
    texts = [p.read_text() for p in directory.rglob("*.cu")]
    code = ["\n".join(t.splitlines()[1:]) for t in texts]
    assert len(set(code)) == len(code)


@pytest.mark.parametrize("directory", FAMILIES, ids=lambda d: d.name)
def test_python_files_import_no_framework_at_the_top(directory):
    for name in ("family.py", "experts.py"):
        code = "import sys; sys.path.insert(0, sys.argv[1]); import " + name.removesuffix(".py")
        code += "; print(*{m.split('.')[0] for m in sys.modules})"
        done = subprocess.run([sys.executable, "-c", code, str(directory)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert not {"torch", "triton", "cuda", "flashinfer", "liger_kernel"} & set(done.stdout.split()), name


def test_experts_take_the_four_arguments(each_task):
    module = experts_module(each_task)
    for expert in each_task.experts:
        function = getattr(module, expert.name)
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        assert names == ("inputs", "outputs", "sizes", "scalars")
        assert function.__doc__


def test_families_lie_where_their_class_says():
    assert all(t.directory.relative_to(BUNDLED).parts[0] == t.task_class.value for t in all_tasks())
