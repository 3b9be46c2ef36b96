"""Task files: what loads, and how each mistake is explained (file, line, field)."""

import re
import subprocess
import sys
import time

import pytest

from cudahercules.errors import TaskError, UsageError
from cudahercules.task import yaml_tree
from cudahercules.task.load import all_tasks, load_family, load_task, work
from cudahercules.task.model import Target, WorkloadRole
from cudahercules.task.released import released_names, slices

# --- the bundled families ------------------------------------------------------------------------


def test_the_bundled_tasks_are_there():
    ids = [t.id for t in all_tasks()]
    assert ids == sorted(ids)
    assert {
        "kernel/gemm/fp32@general",
        "kernel/rotary/hd64_halved@general",
        "kernel/rotary/hd128_interleaved@hopper",
        "module/layernorm_fwd/fp32_1024@general",
        "module/layernorm_fwd/bf16_8192@general",
    } <= set(ids)


def test_members_fill_placeholders_constants_and_cases():
    task = load_task("module/layernorm_fwd/bf16_4096")
    assert task.constants == {"hidden": 4096}
    assert {t.name: t.dtype.value for t in task.tensors} == {
        "x": "bf16",
        "weight": "bf16",
        "bias": "bf16",
        "z": "bf16",
        "mean": "fp32",
        "rstd": "fp32",
    }
    assert task.tolerance["z"].l2 > 100 * load_task("layernorm_fwd/fp32_4096").tolerance["z"].l2 / 2
    assert task.shape(task.tensors[0], task.workloads[0]) == (5, 4096)
    assert {w.name for w in task.workloads_of(WorkloadRole.BENCH)} == {"bloom_7b", "bloom_7b_odd"}
    assert "{" not in task.title


def test_every_task_has_what_the_judge_needs(each_task):
    assert {w.role for w in each_task.workloads} == set(WorkloadRole)
    assert len(each_task.mutants) >= 4
    assert len(each_task.candidates) >= 2
    assert each_task.experts
    assert all(w.source for w in each_task.workloads_of(WorkloadRole.BENCH))


def test_small_workloads_are_small_and_bench_workloads_fill_a_large_gpu(each_task):
    for workload in each_task.workloads:
        cost = work(each_task, workload)
        seconds = max((cost.bytes_read + cost.bytes_written) / 4e12, cost.flops / 50e12)
        if workload.role is WorkloadRole.BENCH:
            assert seconds > 50e-6, workload.name
        else:
            # About 4 instructions a flop in the naive kernels: 30 M thread instructions. What a task has of
            # fixed size may be larger, a transform of 65536 points for example: then no more than 3 of it.
            least = work(each_task, smallest(workload)).flops
            limit = {"smoke": max(1.2e6, least), "check": max(7.5e6, 3 * least)}[workload.role]
            assert cost.flops <= limit, workload.name


def smallest(workload):
    """The workload with every dimension 1."""
    return workload.model_copy(update={"dimensions": dict.fromkeys(workload.dimensions, 1)})


def test_work_counts_each_operand_once():
    task = load_task("gemm/fp32")
    workload = task.workloads[0]
    m, n, k = (workload.dimensions[d] for d in "mnk")
    cost = work(task, workload)
    assert cost.bytes_read == 4 * (m * k + k * n)
    assert cost.bytes_written == 4 * m * n
    assert cost.flops == 2 * m * n * k


def test_loading_all_is_fast_and_runs_no_family():
    code = (
        "import sys, time; from cudahercules.task.load import all_tasks; t = time.process_time();"
        "n = len(all_tasks()); print((time.process_time() - t) / n, 'torch' in sys.modules,"
        "any(m.startswith('cudahercules_family') for m in sys.modules))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    seconds_a_task, torch, families = out.split()
    assert float(seconds_a_task) < 0.005
    assert (torch, families) == ("False", "False")


# --- look-up -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("kernel/gemm/fp32@general", "kernel/gemm/fp32@general"),
        ("kernel/gemm/fp32", "kernel/gemm/fp32@general"),
        ("gemm/fp32", "kernel/gemm/fp32@general"),
        ("layernorm_fwd/bf16_4096", "module/layernorm_fwd/bf16_4096@general"),
        ("rotary/hd64_halved", "kernel/rotary/hd64_halved@general"),
        ("rotary/hd64_halved@hopper", "kernel/rotary/hd64_halved@hopper"),
    ],
)
def test_short_forms(query, expected):
    assert load_task(query).id == expected


def test_an_ambiguous_name_lists_the_choices():
    with pytest.raises(UsageError, match=r"names 4 tasks.*hd128_halved@hopper.*hd64_halved@hopper"):
        load_task("kernel/rotary@hopper")


@pytest.mark.parametrize(
    ("query", "nearest"),
    [
        ("kernel/gemmm/fp32@general", "kernel/gemm/fp32@general"),
        ("gem", "kernel/gemm/"),
        ("module/layernorm/fp32_1024", "module/layernorm_fwd/fp32_1024@general"),
        ("rotary/hd128_interleaved@hoper", "kernel/rotary/hd128_interleaved@hopper"),
    ],
)
def test_a_misspelt_name_suggests_the_nearest(query, nearest):
    with pytest.raises(UsageError, match="Did you mean.*" + re.escape(nearest)):
        load_task(query)


def test_a_name_like_nothing_points_to_the_list():
    with pytest.raises(UsageError, match="`hercules tasks` lists"):
        load_task("xyzzy")


# --- families of one's own -----------------------------------------------------------------------


def test_hercules_tasks_adds_families(family_copy):
    family_copy()
    task = load_task("kernel/edited/fp32")
    assert task.target is Target.GENERAL
    assert task.tensors == load_task("kernel/gemm/fp32").tensors


def releases(directory):
    return {f"{t.member}@{t.target.value}": t.release for t in load_family(directory)}


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("prompt.md", "Compute", "Calculate"),
        ("family.py", "2.0 *", "2.5 *"),
        ("experts.py", "import torch", "import torch  # a change in an opponent"),
        ("task.yaml", "m: 48, n: 40", "m: 49, n: 40"),
        ("task.yaml", "title: Matrix", "title: A matrix"),
        ("helper.cuh", "", "// a file that no list names may be an opponent's"),
    ],
)
def test_the_release_follows_what_candidates_are_judged_by(family_copy, file, old, new):
    directory = family_copy()
    before = releases(directory)
    text = (directory / file).read_text() if (directory / file).exists() else ""
    assert old in text
    (directory / file).write_text(text.replace(old, new, 1) if old else new)
    after = releases(directory)
    assert before.keys() == after.keys()
    assert all(before[name] != after[name] for name in before)


def test_the_release_ignores_what_judges_nobody(family_copy):
    directory = family_copy()
    before = releases(directory)
    for file in ("naive.cu", "strategy.md", "mutants/last_row.cu", "hostile/no_solve.cu"):
        (directory / file).parent.mkdir(exist_ok=True)
        (directory / file).write_text("// changed\n")
    text = (directory / "task.yaml").read_text()
    assert "CUTLASS and ThunderKittens" in text and "domain: dense" in text
    text = text.replace("CUTLASS and ThunderKittens", "others").replace("domain: dense", "domain: thick")
    wrong = "mutants:\n  - {file: mutants/last_row.cu, verdict: incorrect, reason: made for a test}\n"
    text = text[: text.index("released:")].replace("mutants:\n", wrong, 1)
    (directory / "task.yaml").write_text(text)
    assert releases(directory) == before


def test_the_release_is_a_members_own(family_copy):
    directory = family_copy()
    before = releases(directory)
    text = (directory / "task.yaml").read_text()
    (directory / "task.yaml").write_text(text.replace("fp32: {l2: 4.0e-6", "fp32: {l2: 3.9e-6", 1))
    changed = {name for name, release in releases(directory).items() if release != before[name]}
    assert changed == {"fp32@general", "fp32@hopper"}


def test_a_cuda_source_of_an_expert_counts(family_copy):
    directory = family_copy(family="module/layernorm_fwd")
    before = releases(directory)
    sources = {f"{e.name}.cu" for t in load_family(directory) for e in t.experts}
    ours = [name for name in sources if (directory / name).exists()]
    assert ours, "LayerNorm has an expert of ours"
    (directory / ours[0]).write_text("// changed\n")
    assert releases(directory) != before


# --- the tasks of the release --------------------------------------------------------------------


def test_the_released_names_are_195_and_ten_that_were_dropped():
    names = released_names()
    assert len(names) == 205 and sum(names.values()) == 195
    assert {part: len(inside) for part, inside in slices().items()} == {
        "class1/general": 20,
        "class1/hopper": 21,
        "class1/blackwell": 22,
        "class2/general": 43,
        "class2/hopper": 64,
        "class2/blackwell": 12,
        "class3": 10,
        "class4": 3,
    }
    assert names["class1/hopper/57_hopper_grouped_gemm"] and names["class3/tcgnn_gcn/general"]
    assert not names["class1/hopper/53_hopper_gemm_permute"]


def test_a_task_knows_what_it_answers_for():
    name = "class1/general/00_basic_gemm"
    assert "TF32" in load_task("kernel/gemm/fp32@general").released[name].repaired
    assert name not in load_task("kernel/gemm/fp32@hopper").released


def test_a_missing_tasks_directory_is_said(monkeypatch):
    monkeypatch.setenv("HERCULES_TASKS", "/no/such/place")
    with pytest.raises(UsageError, match="/no/such/place, which is not a directory"):
        all_tasks()


# --- mistakes ------------------------------------------------------------------------------------

TOLERANCE = "fp32: {l2: 4.0e-6, row_l2: 8.0e-6, element: 4.0e-5, row_floor: 0}"
SMOKE = "  - {name: smoke, role: smoke, dimensions: {m: 48, n: 40, k: 64}}\n"

BASIC = "  class1/general/00_basic_gemm:\n    tasks: [fp32@general]"
RELEASED = "released.class1/general/00_basic_gemm.tasks"

# (old text, new text, text on the line that the error must name, field, what)
MISTAKES = [
    (
        BASIC,
        BASIC.replace("basic_gemm", "basic_gem"),
        "00_basic_gem:",
        "released.class1/general/00_basic_gem",
        "is no task of the release; did you mean class1/general/00_basic_gemm?",
    ),
    (BASIC, BASIC.replace("fp32@", "fp31@"), "fp31@", f"{RELEASED}.0", "'fp31@general' is no member@target"),
    (BASIC, BASIC.replace("]", ", fp32@general]"), "fp32@general,", f"{RELEASED}.1", "is listed twice"),
    (BASIC, BASIC.replace("[fp32@general]", "[]"), "tasks: []", RELEASED, "at least 1 item"),
    (BASIC, BASIC.replace("tasks:", "task:"), "00_basic_gemm", f"{RELEASED}", "is missing"),
    ("role: in,", "role: inn,", "name: a", "tensors.0.role", "'inn'"),
    ('dtype: "{dtype}"', "dtype: fp31", "name: a", "tensors.0.dtype", "'fp31'"),
    ('dtype: "{dtype}"', 'dtype: "{type}"', "name: a", "tensors.0.dtype", "{type} is no parameter"),
    ("shape: [m, k]", "shape: [m, q]", "name: a", "tensors.0.shape.1", "'q' is neither"),
    ("shape: [m, k]", "shape: [m, 0]", "name: a", "tensors.0.shape.1", "at least 1"),
    ("name: a,", "name: A,", "name: A", "tensors.0.name", "pattern"),
    ("name: a,", "name: m,", "name: m", "tensors.0.name", "taken by a dimension"),
    ("name: a,", "name: float,", "name: float", "tensors.0.name", "means something else"),
    ("name: a,", "name: size,", "name: size", "tensors.0.name", "system type"),
    ("name: a,", "name: a, colour: red,", "colour", "tensors.0.colour", "not a known field"),
    ("title:", "titel:", "titel", "title", "is missing"),
    ("m: 48, n: 40, k: 64", "m: 48, n: 40", "name: smoke", "workloads.0.dimensions", "does not give k"),
    ("m: 48,", "m: 48, j: 1,", "name: smoke", "workloads.0.dimensions.j", "no such name"),
    ("m: 48,", "m: 0,", "name: smoke", "workloads.0", "outside 1"),
    ("m: 48,", "m: many,", "name: smoke", "workloads.0.dimensions.m", "integer"),
    (SMOKE, "", "workloads:", "workloads", "no smoke workload"),
    ("name: odd", "name: smoke", "name: smoke, role: check", "workloads.1.name", "second workload"),
    ("values: {a: {kind: row", "values: {c: {kind: row", "kind: row", "workloads.6.values.c", "no input"),
    ("kind: row_scaled", "kind: rowscaled", "kind: rowscaled", "workloads.6.values.a", "rowscaled"),
    ("low_exponent: -40", "low_exponent: -400", "-400", "workloads.6.values.a", "-126 <="),
    ("  c:\n    per", "  d:\n    per", "tolerance:", "tolerance", "output c has none"),
    (TOLERANCE, "fp32: {l2: 1.0e-6}", "  c:", "tolerance.c", "each above zero"),
    ("  c: {per", "  a: {per", "a: {per", "lower_precision.a", "no output"),
    ("mutants/b_transposed.cu", "mutants/none.cu", "none.cu", "mutants.2.file", "no such file"),
    ("mutants/b_transposed.cu", "../../../etc/passwd", "passwd", "mutants.2.file", "no such file"),
    ("verdict: incorrect,", "verdict: wrong,", "verdict: wrong", "mutants.0.verdict", "none of"),
    ("- naive.cu\n", "- tiled.cu\n", "candidates", "candidates", "must be naive.cu"),
    ("- tiled.cu", "- none.cu", "none.cu", "candidates.1", "no such file"),
    ("- tiled.cu", r'- "ti\0led.cu"', "led.cu", "candidates.1", "no such file"),
    ("- tiled.cu", "- {file: none.cu}", "none.cu", "candidates.1", "no such file"),
    ("- tiled.cu", "- {file: tiled.cu, only: [x]}", "tiled", "candidates.1.only", "no member matches 'x'"),
    ("- tiled.cu", "- {file: tiled.cu, fast: true}", "tiled", "candidates.1.fast", "not a known field"),
    ("targets: [general, hopper]", "targets: [hoper]", "targets", "targets.0", "'hoper'"),
    ("    dtype: fp32\n", "    dtype: 1.5\n", "dtype: 1.5", "members.fp32.dtype", "integer or a word"),
    ("  fp32:\n", "  fp32: yes\n  other:\n", "fp32: yes", "members.fp32", "mapping"),
    ("  tf32:\n", "  x: {}\n  tf32:\n", "x: {}", "members.x", "other parameters than fp32"),
    ("members:\n", "members: {}\nothers:\n", "members", "members", "must map each member"),
    ("domain: dense", "domain: dense\ndomain: dense", "domain", "domain", "given twice"),
    ("role: smoke,", "role: smoke, only: [int8],", "int8", "workloads.0.only", "no member matches"),
]


@pytest.mark.parametrize(("old", "new", "marker", "field", "what"), MISTAKES)
def test_mistakes_name_file_line_and_field(family_copy, old, new, marker, field, what):
    directory = family_copy((old, new))
    with pytest.raises(TaskError) as caught:
        load_family(directory)
    path, line, rest = str(caught.value).split(":", 2)
    lines = (directory / "task.yaml").read_text().splitlines()
    assert path == str(directory / "task.yaml")
    if what != "is missing":
        assert marker in lines[int(line) - 1]
    assert rest.startswith(f" {field}: ")
    assert what in rest


def test_an_expert_needs_its_function(family_copy):
    directory = family_copy(("name: torch_mm", "name: torch_nn"))
    with pytest.raises(TaskError, match=r"experts\.\d\.name: experts\.py defines no function torch_nn"):
        load_family(directory)


def test_integer_tensors_need_integer_values(family_copy):
    directory = family_copy(('name: a, role: in, dtype: "{dtype}"', "name: a, role: in, dtype: int8"))
    with pytest.raises(TaskError, match=r"tensors\.0\.values: an int8 tensor needs values of kind integer"):
        load_family(directory)
    directory = family_copy(
        (
            'name: a, role: in, dtype: "{dtype}"',
            "name: a, values: {kind: integer, low: 0, high: 200}, role: in, dtype: int8",
        ),
        name="second",
    )
    with pytest.raises(TaskError, match=r"does not fit int8 \(-128 \.\. 127\)"):
        load_family(directory)


@pytest.mark.parametrize(
    ("dtype", "values", "what"),
    [
        ("fp32", "total: 5", r"tensors\.0\.values: partition makes integers"),
        ("int8", "total: 128", r"tensors\.0\.values: does not fit int8 \(up to 127\)"),
        (
            "int32",
            "total: 5",
            r"workloads\.\d+\.dimensions: a partition has at most 4096 elements, a has \d+",
        ),
    ],
)
def test_a_partition_is_short_and_of_integers(family_copy, dtype, values, what):
    directory = family_copy(
        (
            'name: a, role: in, dtype: "{dtype}"',
            f"name: a, values: {{kind: partition, {values}}}, role: in, dtype: {dtype}",
        )
    )
    with pytest.raises(TaskError, match=what):
        load_family(directory)


HOSTILE = [
    ("alias bomb", "a: &a [x, x]\nb: [*a, *a]\n", r":1: .*anchors and aliases"),
    ("tag", "a: !!python/object/apply:os.system ['true']\n", r":1: the tag .* is not allowed"),
    ("deep", "a: " + "[" * 500 + "]" * 500, r"nested deeper than 16"),
    ("many", "a: [" + "1," * 30_000 + "]", r"more than 20000 values"),
    ("huge", "a: " + "x" * 300_000, r"larger than 256 KiB"),
    ("two documents", "a: 1\n---\nb: 2\n", r":2: a second document"),
    ("not yaml", "a: [1, 2\nb: }\n", r":2: is not YAML"),
    ("tab", "a:\n\t- 1\n", r":2: is not YAML"),
    ("not a mapping", "- 1\n", r":1: the file must be a mapping"),
    ("empty", "", r":1: the file is empty"),
    ("scalar", "7", r":1: the file must be a mapping"),
    ("mapping as key", "? {a: 1}\n: 2\n", r":1: a key must be a plain word"),
    ("infinite number", "a: 1e999\n", r":1: 1e999 is not a finite number"),
    ("huge integer", "title: " + "9" * 5000, r":1: 9{20} is not a finite number$"),
    ("long key", "k" * 100 + ": 1", r":1: a key has at most 80"),
    ("terminal codes", '"\\e[2J": 1', r":1: a key has at most 80 printable"),
    ("null byte", "a: \0\n", r"is not YAML"),
]


@pytest.mark.parametrize(("text", "what"), [h[1:] for h in HOSTILE], ids=[h[0] for h in HOSTILE])
def test_hostile_files_are_refused_quickly(family_copy, text, what):
    directory = family_copy()
    (directory / "task.yaml").write_text(text)
    start = time.perf_counter()
    with pytest.raises(TaskError, match=what) as caught:
        load_family(directory)
    assert time.perf_counter() - start < 2
    assert str(directory / "task.yaml") in str(caught.value)


def test_not_utf8_names_the_line(family_copy):
    directory = family_copy()
    (directory / "task.yaml").write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(TaskError, match=r"task\.yaml:2: is not UTF-8"):
        load_family(directory)


def test_missing_files_are_said(family_copy):
    directory = family_copy()
    (directory / "prompt.md").unlink()
    with pytest.raises(TaskError, match=r"prompt\.md: there is no such file; every family needs one"):
        load_family(directory)
    (directory / "task.yaml").unlink()
    with pytest.raises(TaskError, match=r"task\.yaml: cannot be read \(No such file"):
        load_family(directory)


def test_scalars_follow_yaml_1_2():
    text = "[1e-5, 1.0e-5, -3, .5, no, on, true, ~, 'x', \"7\", 0x10, 1_000]"
    values = yaml_tree.parse(text).plain()
    assert values == [1e-5, 1e-5, -3, 0.5, "no", "on", True, None, "x", "7", "0x10", "1_000"]


# --- what a new author gets wrong ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (("targets: [general, hopper]", "targets: [general, general]"), "targets: general is listed twice"),
        (("title: Matrix", 'title: "two\\nlines" #'), "title: must be one line"),
        (("fp32: {l2: 4.0e-6", "fp32: {exact: true, l2: 4.0e-6"), "leave l2, row_l2 and element out"),
    ],
)
def test_contradictions_are_refused(family_copy, edit, message):
    folder = family_copy(edit)
    with pytest.raises(TaskError, match=message):
        load_family(folder)


def test_experts_that_are_no_python_are_not_called_missing(family_copy):
    folder = family_copy()
    (folder / "experts.py").write_text('"""The panel."""\n\ndef cublaslt_search(:\n')
    with pytest.raises(TaskError, match=r"experts: experts.py line 3 is no Python: invalid syntax"):
        load_family(folder)


def test_an_author_hears_of_hercules_tasks_while_it_is_not_set(monkeypatch, tmp_path):
    monkeypatch.delenv("HERCULES_TASKS", raising=False)
    with pytest.raises(UsageError, match=r"once HERCULES_TASKS names its directory"):
        load_task("kernel/segmented_sum/fp32")
    with pytest.raises(UsageError, match=r"(?!.*HERCULES_TASKS)there is no task"):
        load_task("kernel/gemm/fp99")
    monkeypatch.setenv("HERCULES_TASKS", str(tmp_path))
    with pytest.raises(UsageError, match=r"^(?!.*HERCULES_TASKS)"):
        load_task("kernel/segmented_sum/fp32")
