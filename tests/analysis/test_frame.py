import sys

import numpy as np
import pytest

from ikp.errors import UsageError
from tests.analysis.example import START, launch, trace

EVENTS = [(0, 0, 0, 100), (3, 1, 100, 400), (4, 2, 500, 500)]


def two_launches():
    return trace(
        EVENTS,
        launches=(launch("a", grid=(2, 2, 2), rank=7), launch("b", grid=(3, 1, 1))),
        slots=[(0, 0), (0, 1), (0, 2), (0, 7), (1, 2)],
        payload={1: 2.5},
    )


def test_one_row_per_event_with_every_column():
    frame = two_launches().to_pandas()
    assert list(frame)[:3] == ["launch", "label", "rank"]
    rank = frame.pop("rank")
    assert rank.dtype == "Int32"
    assert rank.fillna(-1).tolist() == [7, 7, -1]
    assert frame.to_dict("list") == {
        "launch": [0, 0, 1],
        "label": ["a", "a", "b"],
        "block": [0, 7, 2],
        "block_x": [0, 1, 2],
        "block_y": [0, 1, 0],
        "block_z": [0, 1, 0],
        "warp": [0, 0, 0],
        "sm": [0, 3, 4],
        "role": ["", "", ""],
        "region": ["load", "dot", "tile done"],
        "kind": ["range", "range", "instant"],
        "start_ns": [START, START + 100, START + 500],
        "end_ns": [START + 100, START + 400, START + 500],
        "dur_ns": [100, 300, 0],
        "ticks": [200, 600, 0],
        "clock": ["cycles", "cycles", "cycles"],
        "payload": [pytest.approx(np.nan, nan_ok=True), 2.5, pytest.approx(np.nan, nan_ok=True)],
    }
    assert (frame.dtypes[["label", "region", "kind"]] == "category").all()
    assert frame.start_ns.dtype == np.int64


def test_names_given_twice_are_one_category():
    made = trace([(0, 0, 0, 10), (0, 1, 10, 20)], regions=("load", "load"))
    assert made.to_pandas().region.cat.categories.tolist() == ["load"]


def test_an_empty_trace_has_the_same_columns():
    assert list(trace([]).to_pandas()) == list(two_launches().to_pandas())


def test_without_pandas_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError, match=r"pip install 'ikp\[pandas\]'"):
        two_launches().to_pandas()
