"""A producer and a consumer, from the kernel to the arrows in the viewer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ikp
from tests.edit.warps import joined
from tests.exporters.perfetto.examples import assert_same
from tests.kernels.relay import relay
from tests.trace_processor import check_trace

pytestmark = pytest.mark.interp


def recorded(n: int) -> ikp.Trace:
    import torch

    tiles, out = (torch.zeros(n, dtype=torch.int32) for _ in range(2))
    with ikp.profile() as prof:
        relay[(2,)](tiles, out, n, prof.buffer("relay"))
    assert out.tolist() == [k * k + 1 for k in range(n)]
    return prof.trace


def test_what_one_program_made_the_other_used(tmp_path: Path) -> None:
    trace = ikp.edit.connect(recorded(6), "produce", "consume", within="launch")
    trace = ikp.edit.span(trace, "in flight", "produce", "consume", within="launch")
    assert [row[0] + row[3] for row in joined(trace)] == ["produceconsume"] * 6
    made, used, flights = (
        {one.payload: one for one in trace.ranges() if one.region == name}
        for name in ("produce", "consume", "in flight")
    )
    assert flights.keys() == made.keys() == set(range(6))
    for k, one in flights.items():
        assert (one.start_ns, one.end_ns) == (made[k].start_ns, used[k].end_ns)
        assert (one.block, used[k].block) == (0, 1)
        assert made[k].args["flow_out"] == used[k].args["flow_in"]
    assert np.all(trace.events.end_ns >= trace.events.start_ns)
    trace.save(tmp_path / "t.pftrace")
    assert_same(ikp.load(tmp_path / "t.pftrace"), trace)
    check_trace(tmp_path / "t.pftrace", trace)
