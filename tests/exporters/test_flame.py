"""Flame graphs: what they add up to, and that their readers take them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from ikp.core.stacks import stacks
from ikp.registry import exporter_for_path
from ikp.trace import Trace
from tests.analysis.example import launch, trace
from tests.strategies import traces_with_totals
from tests.totals import gemm

pytestmark = pytest.mark.any_pins

NESTED = [(0, 1, 10, 30), (0, 1, 40, 50), (0, 0, 0, 60), (1, 0, 0, 100), (2, 2, 5, 5)]


def speedscope(made: Trace, folder: Any) -> Any:
    path = folder / "x.speedscope.json"
    made.save(path, force=True)
    return json.loads(path.read_text(encoding="utf-8"))


def folded(made: Trace, folder: Any) -> list[str]:
    path = folder / "x.folded"
    made.save(path, force=True)
    return path.read_text(encoding="utf-8").splitlines()


def test_a_stack_has_what_lies_in_none_inside_it(tmp_path):
    lines = folded(trace(NESTED), tmp_path)
    assert lines == ["gemm 3840", "gemm;load 130", "gemm;load;dot 30"]


def test_names_are_not_compared_with_one_another() -> None:
    compared = 0

    class Name(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

    names = tuple(Name(f"region {i}") for i in range(300))
    launches = tuple(launch(Name(f"launch {i}")) for i in range(300))
    found = stacks(trace([(0, i, i, i + 1) for i in range(300)], launches=launches, regions=names))
    assert found.names == [each.label for each in launches] + list(names)
    assert compared < 10 * 600


def test_speedscope_has_the_same(tmp_path):
    made = trace(NESTED)
    content = speedscope(made, tmp_path)
    frames = [one["name"] for one in content["shared"]["frames"]]
    (profile,) = content["profiles"]
    shown = [";".join(frames[i] for i in stack) for stack in profile["samples"]]
    pairs = zip(shown, profile["weights"], strict=True)
    assert [f"{stack} {weight}" for stack, weight in pairs] == folded(made, tmp_path)
    assert profile["endValue"] == 4000, "the time that all warps ran"


def test_suffixes_are_told_apart(tmp_path):
    kinds = [type(exporter_for_path(tmp_path / name)).__name__ for name in ("x.json", "x.folded")]
    assert kinds == ["ChromeExporter", "FoldedExporter"]
    assert type(exporter_for_path("x.speedscope.json")).__name__ == "SpeedscopeExporter"


def test_names_part_neither_frames_nor_lines(tmp_path):
    made = trace([(0, 0, 0, 10)], launches=(launch("a;b\n"),), regions=(" \t",))
    assert folded(made, tmp_path) == ["a,b\\n 3990", "a,b\\n;\\t 10"]


def test_totals_lie_side_by_side(tmp_path):
    made = gemm()
    found = dict(line.rsplit(" ", 1) for line in folded(made, tmp_path))
    for row in made.stats():
        if row.kind == "range":
            assert int(found[f"gemm;{row.region}"]) == row.total_ns


@given(made=traces_with_totals())
def test_stacks_hold_all_ranges_once(made, tmp_path_factory):
    tree = stacks(made)
    ranges = int((made.events.kind == 1).sum() + made.totals.count[made.totals.kind == 1].sum())
    labels = len({one.label for one in made.launches})
    assert sum(tree.count[labels:]) == ranges
    top = [i for i, parent in enumerate(tree.parents) if 0 <= parent < labels]
    took = (made.events.end_ns - made.events.start_ns)[made.events.kind == 1]
    own = np.array(tree.own_ns, object)[labels:].sum() if len(tree.names) > labels else 0
    summed = sum(made.totals.total_ns[made.totals.kind == 1].tolist())
    assert own == sum(tree.total_ns[i] for i in top) <= int(took.sum()) + summed


SCHEMA: Mapping[str, Any] = {
    # https://www.speedscope.app/file-format-schema.json, as speedscope 1.25.0 has it: what is
    # required of a file with sampled profiles, and of which type.
    "$schema": "https://www.speedscope.app/file-format-schema.json",
    "name?": str,
    "exporter?": str,
    "activeProfileIndex?": (int, float),
    "shared": {"frames": [{"name": str, "file?": str, "line?": int, "col?": int}]},
    "profiles": [
        {
            "type": "sampled",
            "name": str,
            "unit": {"bytes", "microseconds", "milliseconds", "nanoseconds", "none", "seconds"},
            "startValue": (int, float),
            "endValue": (int, float),
            "samples": [[(int, float)]],
            "weights": [(int, float)],
        }
    ],
}


def check(value: Any, rule: Any, at: str = "file") -> None:
    if isinstance(rule, Mapping):
        required = {name for name in rule if not name.endswith("?")}
        assert required <= value.keys(), f"{at} lacks {required - value.keys()}"
        for name, inner in value.items():
            assert name in rule or f"{name}?" in rule, f"{at}.{name} is unknown"
            check(inner, rule.get(name, rule.get(f"{name}?")), f"{at}.{name}")
    elif isinstance(rule, list):
        assert isinstance(value, Sequence), at
        for inner in value:
            check(inner, rule[0], f"{at}[]")
    elif isinstance(rule, (type, tuple)):
        assert isinstance(value, rule), f"{at} is {value!r}"
    else:
        assert value in rule if isinstance(rule, set) else value == rule, f"{at} is {value!r}"


@given(made=traces_with_totals())
def test_speedscopes_schema_is_kept(made, tmp_path_factory):
    content = speedscope(made, tmp_path_factory.getbasetemp())
    check(content, SCHEMA)
    frames = len(content["shared"]["frames"])
    for profile in content["profiles"]:
        assert len(profile["samples"]) == len(profile["weights"])
        assert all(0 <= each < frames for stack in profile["samples"] for each in stack)
        assert sum(profile["weights"]) == profile["endValue"]
        assert all(weight > 0 for weight in profile["weights"])
