"""What a program sees of a captured graph: its own nodes and edges alone."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.backends.driver.model.building import Built
from tests.backends.driver.model.driven import Counting, Driven, Handle, driven

pytestmark = pytest.mark.any_pins

Made = tuple[Driven, dict[str, int | None], int]
KERNEL, MEMSET, MEMORY_OPERATIONS = 0, 2, 12
Size, Data = ctypes.c_size_t, ctypes.c_uint64


@dataclass
class Drawing:
    """Nodes, each with its function and type, and edges with their data."""

    nodes: list[tuple[int | None, int]] = field(default_factory=list)
    edges: list[tuple[int, int, int]] = field(default_factory=list)

    def draw(self, program: Driven) -> None:
        functions = (Handle * len(self.nodes))(*(function for function, _ in self.nodes))
        types = (ctypes.c_int * len(self.nodes))(*(kind for _, kind in self.nodes))
        ends = [(ctypes.c_int * len(self.edges))(*each) for each in zip(*self.edges, strict=True)]
        first, second = ends[:2] if ends else (None, None)
        data = (Data * len(self.edges))(*(each[2] for each in self.edges))
        program.model.model_draw(
            *(Size(len(self.nodes)), functions, types, Size(len(self.edges)), first, second, data)
        )


@dataclass
class Node:
    """A node of the program's: what it is, and what it depends on."""

    kind: str
    before: set[int]


def graphs() -> st.SearchStrategy[list[Node]]:
    """Return graphs of few nodes; each depends on some of those before it."""
    kinds = st.sampled_from(["recorded", "plain", "memset", "operations"])

    def made(kinds: list[str]) -> st.SearchStrategy[list[Node]]:
        before = [
            st.sets(st.sampled_from(range(at))) if at else st.just(set())
            for at in range(len(kinds))
        ]
        return st.tuples(*before).map(
            lambda sets: [Node(kind, each) for kind, each in zip(kinds, sets, strict=True)]
        )

    return st.lists(kinds, min_size=1, max_size=6).flatmap(made)


def captured(
    graph: list[Node], functions: dict[str, int | None], replay: int
) -> tuple[Drawing, list[int]]:
    """Return the graph as ikp has it captured, and where each node of the program's is in it."""
    drawing, places = Drawing(), list[int]()
    types = {"recorded": KERNEL, "plain": KERNEL, "memset": MEMSET, "operations": MEMORY_OPERATIONS}
    for at, node in enumerate(graph):
        before = [(places[each], 10 * at + each + 1) for each in sorted(node.before)]
        if node.kind == "recorded":
            drawing.nodes.append((None, MEMORY_OPERATIONS))
            write = len(drawing.nodes) - 1
            drawing.edges += [(each, write, data) for each, data in before]
            before = [(write, 0)]
        drawing.nodes.append((functions[node.kind], types[node.kind]))
        places.append(len(drawing.nodes) - 1)
        drawing.edges += [(each, places[-1], data) for each, data in before]
    ends = set(range(len(graph))) - {each for node in graph for each in node.before}
    drawing.nodes.append((replay, KERNEL))
    drawing.edges += [(places[each], len(drawing.nodes) - 1, 0) for each in sorted(ends)]
    return drawing, places


@pytest.fixture(scope="module")
def program(built: Built) -> Iterator[Made]:
    """A program, a recorded kernel's launched function and another one, and the replays' kernel."""
    with driven(built, Counting()) as made:
        first, other = made.load(8), made.load(9)
        function = made.call("cuModuleGetFunction", first, b"a")
        assert made.launch(function)[2]
        recorded = made.model.model_ran().contents.function
        plain = made.call("cuModuleGetFunction", other, b"b")
        replay = made.call("cuModuleGetFunction", other, b"ikp_replay")
        made.model.model_node.restype = Handle
        made.model.model_node.argtypes = (Size,)
        kinds = {"recorded": recorded, "plain": plain, "memset": None, "operations": None}
        yield made, kinds, replay


def asked(program: Driven, name: str, of: int, lists: int, *, room: int | None = None) -> list:
    """Ask as programs do: for the count, then for all, or for another number."""
    query, size = getattr(program.library, name), Size()
    assert query(Handle(of), *[None] * lists, ctypes.byref(size)) == 0
    size = Size(size.value if room is None else room)
    asked_for = size.value
    kinds = (Handle, Handle, Data) if lists == 3 else (Handle, Data)[:lists]
    made = [(kind * max(asked_for, 1))() for kind in kinds]
    assert query(Handle(of), *made, ctypes.byref(size)) == 0
    rows = list(zip(*(list(each)[:asked_for] for each in made), strict=True))
    assert all(not any(row) for row in rows[size.value :])
    return [row if lists > 1 else row[0] for row in rows[: size.value]]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(graph=graphs())
def test_a_program_sees_its_own_nodes_and_edges_alone(program: Made, graph: list[Node]) -> None:
    made, functions, replay = program
    drawing, places = captured(graph, functions, replay)
    drawing.draw(made)
    node = [made.model.model_node(each) for each in places]
    edges = {
        (node[each], node[at], 10 * at + each + 1)
        for at, one in enumerate(graph)
        for each in one.before
    }
    assert asked(made, "cuGraphGetNodes", 0, 1) == node
    assert asked(made, "cuGraphGetNodes", 0, 1, room=1) == node[:1]
    assert asked(made, "cuGraphGetNodes", 0, 1, room=50) == node
    assert asked(made, "cuGraphGetRootNodes", 0, 1) == [
        each for each, one in zip(node, graph, strict=True) if not one.before
    ]
    seen = asked(made, "cuGraphGetEdges_v2", 0, 3)
    assert set(seen) == edges and len(seen) == len(edges)
    for each in node:
        before = asked(made, "cuGraphNodeGetDependencies_v2", each, 2)
        behind = asked(made, "cuGraphNodeGetDependentNodes_v2", each, 2)
        assert {(there, data) for there, data in before} == {
            (a, data) for a, b, data in edges if b == each
        }
        assert set(behind) == {(b, data) for a, b, data in edges if a == each}
