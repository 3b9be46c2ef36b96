"""The search among cuDNN's plans, with a stand-in for the library: what is kept, and what is passed over."""

import sys
from types import SimpleNamespace

import pytest

from cudahercules.measure import cudnn_graph


class Unsupported(Exception):
    pass


class Clock:
    """Milliseconds that the plans so far have taken."""

    now = 0.0


class Node:
    def set(self, *_):
        return self

    set_output = set_data_type = set_dim = set_stride = set


class Graph:
    """Plans by what they do: a time in ms, or what goes wrong."""

    def __init__(self, plans):
        self.plans, self.ran = plans, []

    def tensor(self, **_):
        return Node()

    def validate(self):
        if self.plans is None:
            raise Unsupported("no such pattern")

    def build_operation_graph(self): ...

    def create_execution_plans(self, modes): ...

    def check_support(self): ...

    def get_execution_plan_count(self):
        return len(self.plans)

    def build_plan_at_index(self, index):
        if self.plans[index] == "cannot be built":
            raise Unsupported("knobs")

    def get_workspace_size_plan_at_index(self, index):
        return 2 << 30 if self.plans[index] == "needs too much" else 0

    def execute_plan_at_index(self, places, workspace, index, handle):
        if self.plans[index] == "fails":
            raise RuntimeError("execution failed")
        self.ran.append(index)
        Clock.now += self.plans[index]


class Event:
    def __init__(self, enable_timing):
        self.at = 0.0

    def record(self):
        self.at = Clock.now

    def synchronize(self): ...

    def elapsed_time(self, stop):
        return stop.at - self.at


@pytest.fixture
def search(monkeypatch):
    """``search(plans)`` gives the graph and the function that was chosen."""
    tensor = SimpleNamespace(dtype="torch.float16", shape=(1, 8, 4, 4), stride=lambda: (128, 1, 32, 8))
    cuda = SimpleNamespace(
        Event=Event,
        synchronize=lambda: None,
        current_stream=lambda: SimpleNamespace(cuda_stream=7),
    )
    torch = SimpleNamespace(cuda=cuda, empty=lambda *_, **__: object(), uint8=None)
    monkeypatch.setitem(sys.modules, "torch", torch)

    def run(plans):
        graph = Graph(plans)
        cudnn = SimpleNamespace(
            create_handle=lambda: "handle",
            set_stream=lambda handle, stream: None,
            data_type=SimpleNamespace(HALF=1, BFLOAT16=2, FLOAT=3),
            heur_mode=SimpleNamespace(A=0, B=1, FALLBACK=2),
            pygraph=lambda **_: graph,
            cudnnGraphNotSupportedError=Unsupported,
        )
        monkeypatch.setitem(sys.modules, "cudnn", cudnn)
        return graph, cudnn_graph.fastest_graph({"x": tensor}, tensor, lambda graph, t: Node())

    return run


def test_the_fastest_plan_is_kept(search):
    graph, run = search([3.0, 1.0, "cannot be built", 0.5, "needs too much", "fails", 2.0, 4.0, 5.0])
    graph.ran.clear()
    run()
    assert graph.ran == [3]


@pytest.mark.parametrize("plans", [[], ["fails", "cannot be built"], ["needs too much"]])
def test_no_plan_that_runs_declines(search, plans):
    with pytest.raises(NotImplementedError, match="no plan"):
        search(plans)


def test_a_graph_that_cudnn_does_not_know_declines(search):
    with pytest.raises(NotImplementedError, match="no such pattern"):
        search(None)


def test_plans_that_are_not_reached_in_time_are_passed_over(search, monkeypatch):
    monkeypatch.setattr(cudnn_graph, "SEARCH_S", -1.0)
    graph, run = search(["fails", 3.0, 1.0])
    graph.ran.clear()
    run()
    assert graph.ran == [1]
