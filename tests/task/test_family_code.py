"""A mistake in a family's own Python is its author's: file, line and error, and never a verdict."""

import pytest

from cudahercules.errors import TaskError
from cudahercules.judge.grade import grade
from cudahercules.judge.lint import lint
from cudahercules.judge.operands import reference_of
from cudahercules.task.family_code import mistakes_named, only_standard_functions
from cudahercules.task.inputs import generate
from cudahercules.task.load import BUNDLED, family_module, load_family, work

FLOPS = "\n\ndef flops(sizes):\n    return 2.0\n"
REFERENCE = "def reference(inputs, sizes, scalars, xp):\n    "


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def reference(:\n", r"family.py:1: SyntaxError: "),
        ("\nimport not_installed_anywhere\n", r"family.py:2: ModuleNotFoundError: "),
        ("import sys\n\nsys.exit(0)\n", r"family.py:3: SystemExit: 0"),
        (REFERENCE + "return xp.no_such_function(inputs['a'])" + FLOPS, r"family.py:2: AttributeError: "),
        (REFERENCE + "return {'c': inputs['z']}" + FLOPS, r"family.py:2: KeyError: 'z'"),
        (REFERENCE + "raise SystemExit" + FLOPS, r"family.py:2: SystemExit: no message"),
        (REFERENCE + "pass" + FLOPS, r"reference\(\) gives NoneType, not a dict"),
        (REFERENCE + "return {'c': 'abc'}" + FLOPS, r"reference\(\) gives str for c, not an array"),
        (REFERENCE + "return {}" + FLOPS, r"reference\(\) gives no c"),
        ("def reference(a):\n    pass" + FLOPS, r"family.py:1: TypeError: "),
    ],
)
def test_a_reference_that_fails_is_named(family_copy, code, message):
    folder = family_copy()
    (folder / "family.py").write_text(code)
    task = load_family(folder)[0]
    workload = task.workloads[0]
    values = {t.name: generate(task, t, workload, 1) for t in task.inputs}
    with pytest.raises(TaskError, match=message):
        reference_of(family_module(task), task, workload, values)


def test_grading_says_so_too_and_gives_no_verdict(family_copy):
    folder = family_copy()
    (folder / "family.py").write_text(REFERENCE + "raise SystemExit(0)" + FLOPS)
    with pytest.raises(TaskError, match=r"family.py:2: SystemExit"):
        grade(load_family(folder)[0], folder / "naive.cu", "cpu")


@pytest.mark.parametrize(
    ("result", "message"),
    [("'many'", "family.py:5: ValueError"), ("-1.0", "finite number"), ("float('nan')", "finite number")],
)
def test_lint_asks_for_the_flops_that_only_a_gpu_needs(family_copy, result, message):
    folder = family_copy()
    reference = REFERENCE + "return {'c': xp.matmul(inputs['a'], inputs['b'])}"
    (folder / "family.py").write_text(reference + FLOPS.replace("2.0", f"float({result})"))
    task = load_family(folder)[0]
    with pytest.raises(TaskError, match=message):
        work(task, task.workloads[0])
    with pytest.raises(TaskError, match=message):
        lint(task, "cpu")


@pytest.mark.parametrize("directory", sorted(BUNDLED.glob("*/*/")), ids=lambda d: d.name)
def test_bundled_references_keep_to_the_standard(directory):
    if (directory / "family.py").is_file():
        only_standard_functions(directory / "family.py")


def test_lint_finds_what_only_numpy_has(family_copy):
    folder = family_copy()
    code = (
        REFERENCE
        + "c = xp.matmul(inputs['a'], inputs['b'])\n    return {'c': xp.ascontiguousarray(c)}"
        + FLOPS
    )
    (folder / "family.py").write_text(code)
    with pytest.raises(
        TaskError, match=r"family.py:3: xp.ascontiguousarray is not in the array API standard"
    ):
        lint(load_family(folder)[0], "cpu")


@pytest.mark.parametrize("error", [MemoryError, OSError, RuntimeError, KeyboardInterrupt])
def test_what_is_the_machines_stays_the_machines(tmp_path, error):
    with pytest.raises(error), mistakes_named(tmp_path / "family.py"):
        raise error("not the author's")
