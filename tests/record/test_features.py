"""What the recorder understands: each case is a small solve and what its plan must say."""

from __future__ import annotations

import struct

import pytest
from recording import COMMON, bench, read_cases

from cudahercules.errors import PlanError
from cudahercules.record.answers import check_answers
from cudahercules.record.plan import Copy, EventRecord, EventWait, KernelLaunch, Memset, Upload
from cudahercules.record.recorder import record

CASES = read_cases("features.cases")


@pytest.fixture(scope="module")
def cases():
    return bench(COMMON, tuple((name, body) for name, (body, _) in CASES.items()))


def ops(plan, kind):
    return [op for op in plan.solve if isinstance(op, kind)]


def targets(plan, op):
    """{offset: 'buffer+addend'} of an operation's relocations."""
    names = {"buffer": plan.buffers, "symbol": plan.symbols}
    return {r.offset: f"{names[r.kind][r.index].name}+{r.addend}" for r in op.relocations}


@pytest.mark.parametrize("name", CASES)
def test_every_case_records_twice_alike_and_survives_json(cases, name):
    from cudahercules.record.listing import describe
    from cudahercules.record.parse import load_plan

    plan = cases.plan(name)
    assert cases.record(name).sha256 == plan.sha256
    assert load_plan(plan.canonical_json(), cases.artifact, cases.task) == plan
    assert f"workload {name}" in describe(plan, cases.artifact)


def test_plain_launch(cases):
    plan = cases.plan("plain")
    (op,) = plan.solve
    assert isinstance(op, KernelLaunch)
    assert (op.stream, op.grid, op.block, op.kernel) == (0, (4, 1, 1), (256, 1, 1), "_Z3addPKfPfl")
    assert targets(plan, op) == {0: "a+0", 8: "c+0"}
    assert op.parameters == bytes(16) + (1000).to_bytes(8, "little")


def test_scalars_of_every_kind_arrive(cases):
    (op,) = cases.plan("all_scalars").solve
    assert struct.unpack("<ifd", op.parameters[8:24]) == (-7, 1.5, 0.25)


def test_pointer_inside_a_struct_is_found_and_padding_between_parameters_is_zero(cases):
    plan = cases.plan("padding")
    (op,) = plan.solve
    assert targets(plan, op) == {8: "a+20", 32: "c+8"}
    assert op.parameters[24] == ord("x") and not any(op.parameters[25:32])
    assert op.parameters[0] == 1 and not any(
        op.parameters[1:8]
    )  # padding in the struct: the stack was cleared


def test_end_pointer_is_a_relocation(cases):
    plan = cases.plan("end_pointer")
    assert targets(plan, plan.solve[0])[0] == "a+4000"


@pytest.mark.parametrize("name", ["default_stream", "sync_is_nothing"])
def test_no_events_where_one_stream_is_used(cases, name):
    plan = cases.plan(name)
    assert [op.stream for op in plan.solve] == [0, 0]
    assert all(isinstance(op, KernelLaunch) for op in plan.solve)


def shape(plan):
    """The plan as a list of words: k<grid>@stream, r<event>@stream, w<event>@stream."""
    words = []
    for op in plan.solve:
        if isinstance(op, KernelLaunch):
            words.append(f"k{op.grid[0]}@{op.stream}")
        elif isinstance(op, EventRecord | EventWait):
            words.append(f"{'r' if isinstance(op, EventRecord) else 'w'}{op.event}@{op.stream}")
        else:
            words.append(f"{op.op}@{op.stream}")
    return " ".join(words)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("two_streams", "k4@0 r0@0 w0@1 k1@1 k4@0 r1@1 w1@0 k4@0"),
        ("unjoined_stream", "r0@0 w0@1 k1@1 r1@1 w1@0"),
        ("blocking_and_default", "r0@0 w0@1 k1@1 r1@1 w1@0 k2@0 r2@0 w2@1 k3@1 r3@1 w3@0"),
        ("host_sync_orders", "r0@0 w0@1 k1@1 r1@1 w1@2 k2@2 w1@0 r2@2 w2@0"),
        ("event_sync_orders", "r0@0 w0@1 k1@1 r1@1 w1@0 k2@0"),
        ("per_thread", "r0@0 w0@1 k1@1 k2@0 r1@1 w1@0"),
        ("inner_event", "k1@0 r0@0 w0@1 k1@1 r1@1 w1@0"),
    ],
)
def test_order_between_streams(cases, name, expected):
    text = shape(cases.plan(name))
    if name == "host_sync_orders":  # the joins at the end may come in either form
        assert text.startswith("r0@0 w0@1 k1@1 r1@1 w1@2 k2@2")
        return
    assert text == expected


def test_priority_is_kept(cases):
    (launch,) = cases.plan("priority").launches
    assert launch.priority == -5


def test_scratch_lies_apart_in_the_arena(cases):
    plan = cases.plan("scratch")
    x, y = [b for b in plan.buffers if b.kind == "scratch"]
    assert (x.size, y.size) == (4001, 3 << 20)
    assert y.address - (x.address + x.size) >= 2 << 20
    launch = plan.launches[0]
    assert targets(plan, launch) == {0: "scratch 0+0", 8: "scratch 1+0"}


def test_scratch_that_is_freed_in_stream_order_is_used_again(cases):
    assert len([b for b in cases.plan("scratch_again").buffers if b.kind == "scratch"]) == 1


def test_memsets(cases):
    one, two, three, four = ops(cases.plan("memsets"), Memset)
    assert (one.value, one.width, two.value, two.width) == (1, 16, 255, 4000)
    assert (three.pitch, three.width, three.height, four.height) == (400, 100, 10, 3)


def test_copies(cases):
    one, two, three = ops(cases.plan("copies"), Copy)
    assert (one.width, two.width) == (4000, 4)
    assert (three.destination_pitch, three.source_pitch, three.width, three.height) == (400, 200, 100, 5)


def test_uploads_hold_the_bytes_of_the_call(cases):
    one, two, three = ops(cases.plan("uploads"), Upload)
    assert struct.unpack("<3i", one.data) == (1, 2, 3)
    assert struct.unpack("<i", two.data) == (9,)
    assert struct.unpack("<2i", three.data) == (1, 3)


def test_addresses_in_uploads_and_of_symbols(cases):
    plan = cases.plan("pointer_table")
    table, second, _ = ops(plan, Upload)
    assert targets(plan, table) == {0: "a+0", 8: "w+4", 24: "c+0"}
    assert targets(plan, second) == {0: "table+0"}
    assert targets(plan, plan.launches[0])[0] == "table+12"
    (copy,) = ops(plan, Copy)
    symbol = next(s for s in plan.symbols if s.name == "table")
    assert copy.source == symbol.address + 4


def test_device_answers_are_kept(cases):
    answers = {a.question: a.answer for a in cases.plan("attributes").answers}
    assert answers["attribute 16"] == "132"
    assert "16=132" in answers["properties"].split()
    assert set(answers) == {"attribute 16", "attribute 75", "properties", "memory"}


def test_occupancy_answers_are_kept(cases):
    plan = cases.plan("occupancy")
    answers = {a.question: a.answer for a in plan.answers}
    assert answers["occupancy _Z3addPKfPfl 256 0 0"] == "8"
    assert answers["clusters _Z3addPKfPfl 128 0 4,1,1"] == str(plan.launches[0].grid[0])
    assert answers["function _Z7boundedPf"].endswith("threads=128")


def test_what_a_gpu_told_is_answered_instead_of_what_is_computed(cases):
    question = "clusters _Z3addPKfPfl 128 0 4,1,1"
    profile = cases.profile.model_copy(update={"told": {question: "37"}})
    workload = next(w for w in cases.task.workloads if w.name == "occupancy")
    plan = record(cases.artifact, cases.task, workload, profile)
    assert plan.launches[0].grid[0] == 37
    assert {a.question: a.answer for a in plan.answers}[question] == "37"


def test_an_answer_that_the_gpu_did_not_give_is_refused(cases):
    plan = cases.plan("occupancy")
    profile = cases.profile.model_copy(update={"told": {"occupancy _Z3addPKfPfl 256 0 0": "7"}})
    with pytest.raises(PlanError, match="was answered '8'"):
        check_answers(plan, cases.artifact, profile)


def test_launch_attributes(cases):
    (op,) = cases.plan("launch_attributes").launches
    assert op.cluster == (2, 1, 1) and op.preferred_cluster == (4, 1, 1) and op.cluster_policy == 1
    assert op.programmatic and op.priority == -3 and op.shared_carveout == 50
    assert op.access_policy.size == 4000 and op.access_policy.hit_ratio == 0.5


def test_function_attributes_reach_the_launch(cases):
    (op,) = cases.plan("big_shared").launches
    assert (op.dynamic_shared, op.shared_carveout) == (200 << 10, 100)
    (op,) = cases.plan("non_portable").launches
    assert op.non_portable_cluster and op.cluster == (16, 1, 1)
    (op,) = cases.plan("compile_time_cluster").launches
    assert op.cluster == (2, 1, 1)
    (op,) = cases.plan("cooperative").launches
    assert op.cooperative and op.grid == (1056, 1, 1)


def test_stream_window_and_limits(cases):
    plan = cases.plan("stream_window")
    assert plan.launches[0].access_policy.hit == 2
    assert (plan.stack_limit, plan.persisting_l2) == (4096, 1 << 20)


def test_captured_graph_is_inlined_at_each_launch(cases):
    plan = cases.plan("capture")
    assert [op.grid[0] for op in plan.launches] == [4, 1, 2, 3, 1, 2, 3]
    assert shape(plan).startswith("k4@0 k1@0 r0@0 w0@1 k2@1 r1@1 memset@0 w1@0 k3@0")


def test_graph_built_by_hand(cases):
    plan = cases.plan("graph_by_hand")
    assert len(plan.launches) == 2 and len({op.stream for op in plan.launches}) == 2
    (memset,) = ops(plan, Memset)
    assert (memset.value, memset.element_size, memset.width) == (7, 4, 10)
    assert isinstance([op for op in plan.solve if not isinstance(op, EventRecord | EventWait)][-1], Copy)


def test_copies_of_one_slice(cases):
    plane, row = ops(cases.plan("slices"), Copy)
    assert (plane.destination_pitch, plane.source_pitch, plane.width, plane.height) == (400, 200, 100, 5)
    assert row.destination == plane.destination + 404 and row.height == 1


def test_child_graphs_attributes_and_updates(cases):
    (op,) = cases.plan("graph_attributes").launches
    assert op.priority == -2 and op.cluster == (2, 1, 1)
    assert [op.grid[0] for op in cases.plan("update_between_launches").launches] == [1, 2]
    plan = cases.plan("nested_capture")
    assert shape(plan) == "k1@0 memset@0 k2@0"


def test_tensor_maps_in_parameters(cases):
    plan = cases.plan("map_parameter")
    (tensor_map,) = plan.tensor_maps  # the same arguments make the same map
    assert tensor_map.dimensions == (32, 30) and tensor_map.strides == (128,) and tensor_map.box == (32, 8)
    assert tensor_map.address == plan.buffers[0].address
    for op in plan.launches:
        assert [(p.offset, p.index) for p in op.tensor_maps] == [(112, 0)]
        assert not any(op.parameters)


def test_tensor_maps_in_uploads_and_constant_memory(cases):
    plan = cases.plan("map_upload")
    constant, table = ops(plan, Upload)
    assert [(p.offset, p.index) for p in constant.tensor_maps] == [(0, 1)]
    assert [(p.offset, p.index) for p in table.tensor_maps] == [(0, 0), (128, 1)]
    symbol = next(s for s in plan.symbols if s.name == "constant_map")
    assert symbol.space == "constant" and constant.destination == symbol.address


def test_an_error_that_is_looked_at_is_no_failure(cases):
    (op,) = cases.plan("fallback").launches
    assert op.dynamic_shared == 1024


def test_warm_recording_is_fast(cases):
    import time

    cases.plan("plain")
    times = []
    for _ in range(5):
        start = time.perf_counter()
        cases.record("plain")
        times.append(time.perf_counter() - start)
    assert min(times) < 0.15  # 0.01 to 0.03 s on an idle machine; the bound leaves room for a busy one
