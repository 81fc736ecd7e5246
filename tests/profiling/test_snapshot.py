"""Snapshots: where each warp of a kernel that has not ended is, and what it recorded before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ikp
from ikp.core import abi
from ikp.core.abi import ClockKind, Kind, OverflowMode, PayloadType
from ikp.errors import UsageError
from tests.host import Host
from tests.segments import EPOCH, SLOT, Device, Launch, Record, Segment, Warp, nbytes

pytestmark = pytest.mark.filterwarnings("ignore::ikp.IkpWarning")  # of what did not end

ROOM = 8
TIMER: Any = {"clock": ClockKind.GLOBALTIMER, "overflow": OverflowMode.STREAM}


def write(host: Host, buffer: Any, launch: Launch, opened: dict[int, tuple[int, int]]) -> None:
    """Write what a launch has written so far; ``opened`` has region and start by slot."""
    device = Device()
    model = Segment(buffer.nbytes, device)
    model.run(launch)
    for slot, (region, start) in opened.items():
        at = model.slot_at(slot)
        model.poke(at + SLOT["open"], abi.tag(Kind.RANGE, PayloadType.NONE, region))
        model.poke(at + SLOT["open_start"], device.timer(start))
    torch = pytest.importorskip("torch")
    buffer.data.copy_(torch.frombuffer(model.data, dtype=torch.uint8))


def steps(count: int) -> list[Record]:
    return [Record(1000 * i, 1000 * i + 500, 1 + i % 2, np.uint32(i)) for i in range(count)]


def hanging() -> Launch:
    warps = {
        (0, 0): Warp(steps(5), finish=None),
        (1, 0): Warp(steps(30), finish=None),
        (2, 0): Warp(steps(2), finish=9000),
        (3, 0): Warp((), finish=None),
    }
    return Launch(warps, grid=(4, 1, 1), **TIMER)


def test_each_warp_is_where_it_is(host: Host, tmp_path: Path) -> None:
    host.backend.known = {1: "load", 2: "wait"}
    with ikp.profile(overflow="stream", clock="globaltimer") as prof:
        buffer = prof.buffer("k", size=nbytes(4, ROOM))
        write(host, buffer, hanging(), {0: (2, 6000), 2: (1, 1)})
        found = prof.snapshot()
    places = [(each.block, each.finished, each.open, each.last) for each in found.warps]
    assert places == [
        *((0, False, "wait", "load"), (1, False, "", "wait")),
        *((2, True, "", "wait"), (3, False, "", "")),  # what a finished warp left open is over
    ]
    assert [(each.records, each.dropped) for each in found.warps] == [
        *((5, 0), (30, 23), (2, 0), (0, 0))
    ]
    since = [each.since_ns - EPOCH for each in found.warps]
    assert since == pytest.approx([6000, 29500, 1500, 0], abs=2)
    assert [each.for_ns for each in found.warps] == [
        found.taken_ns - each.since_ns for each in found.warps
    ]
    open_ones = [each for each in found.trace.ranges() if each.region.endswith("(open)")]
    (one,) = open_ones
    assert (one.region, one.block) == ("wait (open)", 0)
    assert one.end_ns == found.taken_ns == found.trace.slots.end_ns[0]
    found.save(tmp_path / "x.pftrace")
    again = ikp.load(tmp_path / "x.pftrace")
    assert len(again.events) == 5 + 7 + 2 + 1
    told = json.loads(found.to_json())
    assert (told["schema"], told["version"]) == ("ikp/snapshot", 1)
    assert told["warps"][0]["open"] == "wait"


def test_it_prints_warps_by_the_range_that_they_are_in(host: Host) -> None:
    host.backend.known = {1: "load", 2: "wait"}
    with ikp.profile(overflow="stream", clock="globaltimer") as prof:
        write(host, prof.buffer("k", size=nbytes(4, ROOM)), hanging(), {0: (2, 6000)})
        first, *lines = str(prof.snapshot()).splitlines()
    assert first == "k: 3 of 4 warps run, 37 records, 23 dropped"
    assert [line.split(":")[0] for line in lines] == [
        "  1 in no range, nothing recorded",
        "  1 in 'wait'",
        "  1 in no range, last in 'wait'",
    ]
    assert lines[1].endswith("longest block 0 warp 0 (SM 0)")


def test_names_that_a_buffer_gives_hold_in_its_snapshot(host: Host) -> None:
    with ikp.profile(overflow="stream", clock="globaltimer") as prof:
        buffer = prof.buffer("k", size=nbytes(4, ROOM), regions={1: "mine", 2: "yours"})
        write(host, buffer, hanging(), {0: (2, 6000)})
        assert prof.snapshot().warps[0].open == "yours"


@pytest.mark.parametrize("range_", [0, 2])
def test_a_region_that_a_program_calls_open_is_not_open_for_that(host: Host, range_: int) -> None:
    """The rule: what is open is known by the warp's state, and never by a name."""
    names = {1: "load (open)", 2: "load"}
    with ikp.profile(overflow="stream", clock="globaltimer") as prof:
        buffer = prof.buffer("k", size=nbytes(4, ROOM), regions=names)
        write(host, buffer, hanging(), {0: (range_, 6000)} if range_ else {})
        found = prof.snapshot()
    assert [each.open for each in found.warps] == ["load" if range_ else "", "", "", ""]
    assert found.warps[0].last == "load (open)"
    assert found.warps[0].records == 5
    own = [each for each in found.trace.ranges() if each.region == "load (open)"]
    assert all(each.end_ns < found.taken_ns for each in own)


def test_before_a_kernel_there_is_nothing(host: Host) -> None:
    assert host.backend
    with ikp.profile(overflow="stream", clock="globaltimer") as prof:
        prof.buffer("k", size=nbytes(4, ROOM))
        found = prof.snapshot()
        assert (found.warps, str(found)) == ((), "no kernel has begun to record")
        assert not len(found.trace.events)


def test_a_later_snapshot_has_what_came_meanwhile(host: Host) -> None:
    counts = []
    with ikp.profile(overflow="stream", clock="globaltimer") as prof:
        buffer = prof.buffer("k", size=nbytes(1, ROOM))
        for count in (3, 9, 14):
            launch = Launch({(0, 0): Warp(steps(count), finish=None)}, **TIMER)
            write(host, buffer, launch, {})
            counts.append(len(prof.snapshot().trace.events))
    assert counts == [3, 9, 14], "no record is shown twice, and none is lost"
    assert prof.trace.events.payload.tolist() == [*range(14)]


def test_other_sessions_have_no_snapshot(host: Host) -> None:
    assert host.backend
    for overflow in ("stop", "wrap"):
        with (
            ikp.profile(overflow=overflow) as prof,
            pytest.raises(UsageError, match=r"ikp\.profile\(overflow='stream'\)"),
        ):
            prof.snapshot()
    with pytest.raises(UsageError, match="outside the session"):
        ikp.profile(overflow="stream").snapshot()


def test_totals_have_no_stream() -> None:
    with pytest.raises(UsageError, match="overflow='stream'"):
        ikp.profile(overflow="stream", mode="totals")
