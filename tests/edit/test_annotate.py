from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import parquet

import ikp
from ikp.core.trace import Trace
from ikp.errors import UsageError
from tests.edit.test_select import example
from tests.exporters.perfetto.examples import assert_same


def test_one_value_per_event_of_any_type() -> None:
    trace = ikp.edit.add_args(
        example(),
        step=range(5),
        cost=np.array([0.5, np.nan, 2, 3, 4], np.float32),
        late=[True, None, False, None, True],
        note=np.array(["a", "", "c", "d", "e"]),
        mixed=[1, 2.5, None, 4, 5],
    )
    found = {name: column.tolist() for name, column in trace.args.items()}
    assert found == {
        "step": [0, 1, 2, 3, 4],
        "cost": [0.5, None, 2.0, 3.0, 4.0],
        "late": [True, None, False, None, True],
        "note": ["a", "", "c", "d", "e"],
        "mixed": [1.0, 2.5, None, 4.0, 5.0],
    }
    first, second = list(trace.ranges())[:2]
    assert first.args == {"step": 0, "cost": 0.5, "late": True, "note": "a", "mixed": 1.0}
    assert second.args["step"] == 2
    assert next(trace.instants()).args == {"step": 1, "note": "", "mixed": 2.5}


def test_a_function_of_each_event() -> None:
    def slow(one: Any) -> bool | None:
        return one.duration_ns > 3 if hasattr(one, "duration_ns") else None

    trace = ikp.edit.add_args(example(), slow=slow)
    assert trace.args["slow"].tolist() == [True, None, True, False, False]


def test_arguments_follow_their_events() -> None:
    trace = ikp.edit.add_args(example(), step=range(5))
    assert ikp.edit.select(trace, region="d*").args["step"].tolist() == [1, 3]
    assert [one.args["step"] for one in ikp.edit.group_by(trace, "region").ranges()] == [0, 2, 3, 4]
    again = ikp.edit.add_args(trace, step=[9] * 5)
    assert again.args["step"].tolist() == [9] * 5
    assert trace.args["step"].tolist() == [0, 1, 2, 3, 4]


def test_they_are_in_every_file(tmp_path: Path) -> None:
    trace = ikp.edit.add_args(example(), step=range(5), note=["a", None, "c", "d", "e"])
    for suffix in (".pftrace", ".json", ".csv", ".parquet"):
        trace.save(tmp_path / f"t{suffix}")
    assert_same(ikp.load(tmp_path / "t.pftrace"), trace)
    assert '"step":3' in (tmp_path / "t.json").read_text()
    assert (tmp_path / "t.csv").read_text().splitlines()[0].endswith(",payload,step,note")
    assert parquet.read_table(tmp_path / "t.parquet")["note"].to_pylist() == [*"a", None, *"cde"]
    assert trace.to_pandas()["step"].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"step": [1, 2]}, "has 2 values, the trace 5 events"),
        ({"step": [1, "a", 3, 4, 5]}, "values of type int, str"),
        ({"step": [[1]] * 5}, "values of type list"),
        ({"step": np.zeros(5, complex)}, "values of type complex128"),
        ({"step": np.full(5, 1 << 63, np.uint64)}, "64 bits, signed"),
        ({"step": [1 << 63] * 5}, "64 bits, signed"),
        ({"step": np.zeros((5, 1))}, "5 values|single"),
        ({"payload": range(5)}, "can't be named 'payload'"),
        ({"cycles": range(5)}, "can't be named 'cycles'"),
    ],
    ids=str,
)
def test_values_that_cannot_be_are_told(args: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ikp.edit.add_args(example(), **args)


def test_none_of_an_empty_trace() -> None:
    empty: Trace = ikp.edit.select(example(), where=np.zeros(5, bool))
    assert ikp.edit.add_args(empty, step=[]).args["step"].tolist() == []
