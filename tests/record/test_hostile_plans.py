"""Plans are untrusted data: whatever is edited into one is refused with the place, or is harmless."""

from __future__ import annotations

import base64
import copy
import json
import random

import pytest
from recording import COMMON, bench, read_cases

from cudahercules.errors import PlanError
from cudahercules.record.parse import load_plan
from cudahercules.record.plan import ARENA_BASE, LaunchPlan

RICH = read_cases("hostile.cases")


@pytest.fixture(scope="module")
def rich():
    return bench(COMMON, (("rich", RICH["rich"][0]),), RICH["prepare"][0])


@pytest.fixture(scope="module")
def good(rich) -> dict:
    return json.loads(rich.plan("rich").canonical_json())


def load(rich, data) -> LaunchPlan:
    return load_plan(json.dumps(data), rich.artifact, rich.task)


def find(data: dict, op: str, number: int = 0) -> dict:
    return [o for o in data["solve"] if o["op"] == op][number]


def launch(data: dict, name: str) -> dict:
    return next(o for o in data["solve"] if o["op"] == "kernel" and name in o["kernel"])


def test_prepare_is_recorded_and_sees_weights_only(rich):
    plan = rich.plan("rich")
    assert [op.op for op in plan.prepare] == ["upload", "kernel"]
    assert load(rich, json.loads(plan.canonical_json())) == plan


def edit(path: str, value):
    """An edit as a function: ``path`` is like ``solve.kernel:add.grid`` or ``buffers.0.size``."""

    def apply(data: dict) -> None:
        *parents, last = path.split("/")
        at = data
        for part in parents:
            if part.startswith("kernel:"):
                at = launch(data, part[7:])
            elif part.startswith("op:"):
                at = find(data, part[3:])
            else:
                at = at[int(part)] if isinstance(at, list) else at[part]
        if isinstance(at, list):
            at[int(last)] = value
        else:
            at[last] = value

    return apply


B64 = base64.b64encode
FORGED = [
    ("artifact", edit("artifact", "0" * 64), "artifact: the plan was recorded from another build"),
    ("architecture", edit("architecture", "80"), "architecture: the plan is for sm_80"),
    ("task", edit("task", "kernel/gemm/fp32@general"), "task: the plan is for kernel/gemm"),
    ("workload", edit("workload", "bench"), "workload:"),
    ("version", edit("version", 2), "field version"),
    ("unknown field", edit("extra", 1), "field extra"),
    ("arena base", edit("arena_base", ARENA_BASE + (2 << 20)), "arena_base:"),
    ("buffer moved", edit("buffers/1/address", ARENA_BASE + 8), "buffers 1 (w): address"),
    ("buffer grown", edit("buffers/0/size", 1 << 41), "buffers 0: size"),
    ("buffer renamed", edit("buffers/0/name", "w"), "two of one name"),
    ("input made output", edit("buffers/0/kind", "output"), "they are not those of workload rich"),
    ("huge scratch", edit("buffers/4/size", 65 << 30), "scratch buffers"),
    ("negative size", edit("buffers/0/size", -1), "field buffers.0.size"),
    ("symbol moved", edit("symbols/0/address", 4096), "symbols: they are not the variables"),
    ("no such kernel", edit("kernel:add/kernel", "evil"), "field kernel: module 0 has no kernel 'evil'"),
    ("no such module", edit("kernel:add/module", 7), "field module: 7 does not exist"),
    ("other kernel", edit("kernel:add/kernel", "_Z7nothingv"), "field parameters: 24 bytes, expected 0"),
    (
        "short parameters",
        edit("kernel:add/parameters", B64(bytes(16)).decode()),
        "field parameters: 16 bytes, expected 24",
    ),
    ("bad base64", edit("kernel:add/parameters", "@@@"), "field parameters"),
    (
        "padding",
        edit("kernel:mixed/parameters", B64(b"\1" * 40).decode()),
        "field parameters: the padding at byte 25",
    ),
    ("zero grid", edit("kernel:add/grid", [0, 1, 1]), "field grid"),
    ("huge grid", edit("kernel:add/grid", [1, 65536, 1]), "field grid"),
    ("two dimensions", edit("kernel:add/grid", [1, 1]), "field grid"),
    ("float grid", edit("kernel:add/grid", [1.5, 1, 1]), "field grid"),
    ("big block", edit("kernel:add/block", [1024, 2, 1]), "field block: 2048 threads"),
    ("cluster", edit("kernel:fixed_cluster/cluster", [4, 1, 1]), "the kernel requires (2, 1, 1)"),
    ("no cluster", edit("kernel:fixed_cluster/cluster", [0, 0, 0]), "field cluster"),
    ("cluster grid", edit("kernel:add/cluster", [3, 1, 1]), "does not divide the grid"),
    ("preferred", edit("kernel:fixed_cluster/preferred_cluster", [3, 1, 1]), "field preferred_cluster"),
    ("shared", edit("kernel:add/dynamic_shared", 1 << 20), "field dynamic_shared"),
    ("priority", edit("kernel:add/priority", -6), "field priority"),
    ("hit ratio", edit("kernel:nothing/access_policy/hit_ratio", 2.0), "field access_policy.hit_ratio"),
    ("window", edit("kernel:nothing/access_policy/address", 4096), "lies in no buffer"),
    (
        "relocation index",
        edit("kernel:add/relocations/0/index", 99),
        "field relocations.0: buffer 99 + 0 does not exist",
    ),
    ("relocation addend", edit("kernel:add/relocations/0/addend", 4001), "buffer 0 + 4001 does not exist"),
    ("relocation offset", edit("kernel:add/relocations/0/offset", 24), "is outside the 24 bytes"),
    ("relocation overlap", edit("kernel:add/relocations/0/offset", 8), "overlaps"),
    ("relocation alignment", edit("kernel:add/relocations/0/offset", 4), "not aligned to 8"),
    ("relocation on data", edit("kernel:add/relocations/1/offset", 16), "the bytes at 16 are not zero"),
    ("map index", edit("kernel:mapped/tensor_maps/0/index", 5), "tensor map 5 does not exist"),
    ("map offset", edit("kernel:mapped/tensor_maps/0/offset", 120), "not aligned to 64"),
    ("map address", edit("tensor_maps/0/address", 4096), "tensor map 0, field address"),
    ("map rank", edit("tensor_maps/0/rank", 3), "tensor map 0, field dimensions: 2 values, expected 3"),
    ("map rank 9", edit("tensor_maps/0/rank", 9), "field tensor_maps.0.rank"),
    (
        "map dimension",
        edit("tensor_maps/0/dimensions/0", 1 << 50),
        "field dimensions: a value is out of range",
    ),
    ("memset input", edit("op:memset/address", ARENA_BASE + (2 << 20) - 4096), "input a is read-only"),
    ("memset outside", edit("op:memset/height", 10**6), "do not lie in one buffer"),
    ("memset overflow", edit("op:memset/height", 2**64), "do not lie in one buffer"),
    ("memset pitch", edit("op:memset/pitch", 10), "field address: pitch 10 is less"),
    ("memset value", edit("op:memset/value", 256), "field value: 256 does not fit"),
    ("memset element", edit("op:memset/element_size", 3), "field element_size"),
    ("memset nothing", edit("op:memset/width", 0), "rows of 0 bytes"),
    ("copy to input", edit("op:copy/destination", ARENA_BASE + (2 << 20) - 4096), "input a is read-only"),
    ("copy source", edit("op:copy/source", 0), "field source"),
    ("copy rows", edit("op:copy/height", 2**63), "field destination"),
    ("negative copy", edit("op:copy/width", -1), "field width"),
    ("upload outside", edit("op:upload/destination", 1 << 60), "field destination"),
    ("upload data", edit("op:upload/data", B64(bytes(65 << 20)).decode()), "uploads exceed 64 MiB"),
    ("empty upload", edit("op:upload/data", ""), "field destination: 1 rows of 0 bytes"),
    ("wait first", edit("op:wait/event", 1000), "field event: 1000 has not been recorded before"),
    ("stream", edit("kernel:add/stream", 5000), "field stream: 5000"),
    ("unforked", edit("kernel:add/stream", 5), "field stream: 5 begins without waiting for stream 0"),
    ("operation kind", edit("op:memset/op", "system"), "operation"),
    ("stack", edit("stack_limit", 1 << 30), "stack_limit"),
    ("persisting", edit("persisting_l2", -1), "persisting_l2"),
    ("long answer", edit("answers/0/answer", "x" * 9000), "answers 0: longer"),
]


@pytest.mark.parametrize(("apply", "message"), [(a, m) for _, a, m in FORGED], ids=[n for n, _, _ in FORGED])
def test_forged_field_is_named(rich, good, apply, message):
    data = copy.deepcopy(good)
    apply(data)
    with pytest.raises(PlanError) as raised:
        load(rich, data)
    assert message in str(raised.value)
    assert len(str(raised.value)) < 2000


def test_message_names_phase_and_operation(rich, good):
    data = copy.deepcopy(good)
    data["prepare"][1]["grid"] = [0, 1, 1]
    with pytest.raises(PlanError, match=r"^prepare operation 1 \(kernel\), field grid"):
        load(rich, data)


def test_stream_that_is_not_joined(rich, good):
    data = copy.deepcopy(good)
    last = [i for i, op in enumerate(data["solve"]) if op["op"] == "wait" and op["stream"] == 0][-1]
    del data["solve"][last]
    with pytest.raises(PlanError, match="is not joined with stream 0"):
        load(rich, data)


def test_too_many_operations(rich, good, monkeypatch):
    from cudahercules.record import check

    monkeypatch.setattr(check, "MAX_OPERATIONS", 100)
    data = copy.deepcopy(good)
    nothing = data["prepare"][1]
    data["prepare"] = [nothing] * 101
    with pytest.raises(PlanError, match="more than 100"):
        load(rich, data)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        "{",
        "\x00",
        '{"version": ' + "9" * 10000 + "}",
        "[" * 100000,
        '{"a":' * 50000,
        b"\xff\xfe",
        '{"buffers": NaN}',
    ],
    ids=range(11),
)
def test_text_that_is_no_plan(rich, text):
    with pytest.raises(PlanError):
        load_plan(text, rich.artifact, rich.task)


def test_oversized_text_is_not_parsed(rich):
    class Long(str):
        def __len__(self) -> int:
            return 1 << 40

    with pytest.raises(PlanError, match="at most"):
        load_plan(Long("{}"), rich.artifact)


def _places(node, path=()):
    if isinstance(node, dict):
        for key, value in node.items():
            yield (*path, key)
            yield from _places(value, (*path, key))
    elif isinstance(node, list):
        for i, value in enumerate(node):
            yield (*path, i)
            yield from _places(value, (*path, i))


WIDE = [0, 1, -1, 2**31, 2**32, 2**63, 2**64, -(2**63), ARENA_BASE]
VALUES = [*WIDE, 1.5, None, True, "", "x" * 300, [], {}, [0, 0, 0], "AAAA"]


def test_thousands_of_random_edits(rich, good):
    """Each edit is refused with a PlanError, or what is loaded obeys every rule that a check states."""
    rng = random.Random(20261)
    places = list(_places(good))
    refused = 0
    for _ in range(3000):
        data = copy.deepcopy(good)
        for _ in range(rng.choice((1, 1, 2))):
            path = rng.choice(places)
            try:
                at = data
                for part in path[:-1]:
                    at = at[part]
                choice = rng.random()
                if choice < 0.15:
                    del at[path[-1]]
                elif choice < 0.3 and isinstance(at[path[-1]], int):
                    at[path[-1]] += rng.choice((-8, -4, -1, 1, 4, 8, 4096, 2 << 20))
                else:
                    at[path[-1]] = rng.choice(VALUES)
            except (KeyError, IndexError, TypeError):
                continue
        try:
            plan = load(rich, data)
        except PlanError:
            refused += 1
            continue
        _obeys(plan, rich)
    assert refused > 2000


def _obeys(plan: LaunchPlan, rich) -> None:
    kernels = {k.name for m in rich.artifact.modules for k in m.kernels}
    spans = [(b.address, b.address + b.size, b.kind) for b in plan.buffers]
    spans += [(s.address, s.address + s.size, "symbol") for s in plan.symbols]
    for op in (*plan.prepare, *plan.solve):
        if op.op == "kernel":
            assert op.kernel in kernels
            assert all(r.addend <= plan.buffers[r.index].size for r in op.relocations if r.kind == "buffer")
        elif op.op in ("memset", "copy", "upload"):
            first = op.address if op.op == "memset" else op.destination
            if op.op == "upload":
                last = first + len(op.data)
            elif op.op == "memset":
                last = first + (op.height - 1) * op.pitch + op.width * op.element_size
            else:
                last = first + (op.height - 1) * op.destination_pitch + op.width
            assert any(low <= first < last <= high and kind != "input" for low, high, kind in spans)
