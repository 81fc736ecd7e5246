"""A stream's drain: what the host has of a launch, whose kernel goes on between two looks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ikp.core import abi
from ikp.core.abi import Kind, OverflowMode, PayloadType
from ikp.core.decoding.decode import decode
from ikp.core.decoding.stream import until, with_open
from ikp.core.segment import Segment, Tensor
from ikp.errors import PatchError
from ikp.session.lifting import Drain
from ikp.session.service import Here
from ikp.session.storage import HostStorage
from tests import segments as model
from tests.session.test_readback import on_device

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.any_pins

ROOM = 8


def state(count: int, *, finish: int | None = None, grid_id: int = 5) -> model.Segment:
    """Return the memory of a warp that has made so many records."""
    records = [model.Record(10 * i, 10 * i + 5, payload=np.uint32(i)) for i in range(count)]
    made = model.Segment(model.nbytes(1, ROOM))
    warp = model.Warp(records, finish=finish)
    made.run(model.Launch({(0, 0): warp}, overflow=OverflowMode.STREAM, grid_id=grid_id))
    return made


def memory(made: model.Segment) -> Tensor:
    return torch.frombuffer(bytearray(made.data), dtype=torch.uint8)


class Kernel:
    """A segment, and its drain, which looks only when the test says so."""

    def __init__(self, storage: HostStorage | None = None) -> None:
        source = replace(state(0).source(), overflow=OverflowMode.STREAM)
        clock = source.layout.clock if source.layout else None
        self.segment: Segment = on_device(replace(source, clock=clock))
        self.segment.data.zero_()
        self.drain = Drain(Here(storage or HostStorage()), self.segment)

    def goes_on(self, made: model.Segment) -> float | None:
        self.segment.data.copy_(memory(made))
        return self.drain.step()

    def shown(self) -> tuple[list[int], int, int]:
        trace = decode([self.drain.source()])
        (launch,) = trace.launches
        return trace.events.payload.tolist(), launch.attempted, launch.dropped


def test_records_that_the_ring_no_longer_has_were_read_before() -> None:
    kernel = Kernel()
    assert kernel.drain.step() is not None  # nothing has begun
    for count in (2, 7, 13, 19):
        assert kernel.goes_on(state(count)) is not None
    assert kernel.goes_on(state(21, finish=1000)) is None, "nothing is left to wait for"
    assert kernel.shown() == ([*range(21)], 21, 0)


def test_what_was_overwritten_between_two_looks_is_counted() -> None:
    kernel = Kernel()
    kernel.goes_on(state(3))
    kernel.goes_on(state(40))
    kernel.goes_on(state(44, finish=1000))
    assert kernel.shown() == ([0, 1, 2, *range(33, 44)], 44, 30)


def test_of_two_launches_the_last_remains() -> None:
    kernel = Kernel()
    kernel.goes_on(state(6, finish=1000))
    kernel.goes_on(state(4, grid_id=6))
    assert kernel.shown() == ([0, 1, 2, 3], 4, 0)


def test_of_a_kernel_that_runs_on_all_that_was_read_is_kept() -> None:
    """Where the GPU is reset, nothing more comes."""
    kernel = Kernel()
    kernel.goes_on(state(6))
    kept = kernel.drain.so_far()
    kernel.segment.data.zero_()
    trace = decode([kept.source(kernel.segment)])
    assert trace.events.payload.tolist() == [*range(6)]


def test_a_launch_is_lifted_with_all_that_was_read_once_it_has_finished() -> None:
    kernel = Kernel()
    kernel.goes_on(state(6))
    assert kernel.drain.lift() is None
    kernel.goes_on(state(12, finish=1000))
    found = kernel.drain.lift()
    assert found is not None and found[0].most == 12
    trace = decode([found[0].source(kernel.segment)])
    assert trace.events.payload.tolist() == [*range(12)]


class Breaking(HostStorage):
    """Memory that can't be read any more at some time, as that of a GPU whose kernel failed."""

    broken = False

    def read(self, *args: object) -> np.ndarray:
        if self.broken:
            raise PatchError("illegal address")
        return super().read(*args)  # type: ignore[arg-type]


def test_what_was_read_before_a_fault_is_still_there() -> None:
    storage = Breaking()
    kernel = Kernel(storage)
    kernel.goes_on(state(6))
    storage.broken = True
    assert kernel.goes_on(state(9)) is None
    assert kernel.shown() == ([*range(6)], 6, 0)


def test_a_launch_that_never_came_is_no_launch() -> None:
    assert Kernel().drain.source().layout is None


def test_a_range_that_was_open_is_there_where_its_kernel_never_ended() -> None:
    kernel = Kernel()
    made = state(3)
    at = made.slot_at(0)
    made.poke(at + model.SLOT["open"], abi.tag(Kind.RANGE, PayloadType.NONE, 9))
    made.poke(at + model.SLOT["open_start"], model.Device().ticks(0, 100))
    kernel.goes_on(made)
    sources, names, opened = with_open([kernel.drain.source()], {9: "wait"})
    read = until(decode(sources, names), model.EPOCH + 10**6, opened)
    assert [read.regions[number].name for number in read.events.region][-1] == "wait (open)"
    assert read.events.kind[-1] == Kind.RANGE
    assert read.events.end_ns[-1] == read.slots.end_ns[0] == model.EPOCH + 10**6
    assert read.events.start_ns[-1] < read.events.end_ns[-1]
    finished = state(3, finish=1000)
    finished.data[at : at + 64] = finished.data[at : at + 52] + made.data[at + 52 : at + 64]
    kernel.goes_on(finished)
    sources, *_ = with_open([kernel.drain.source()], {9: "wait"})
    assert len(decode(sources).events) == 3, "a warp that finished is in no range"
