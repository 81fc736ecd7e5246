"""What is copied out of a segment is all that the decoder looks at."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from ikp.core import abi
from ikp.core.decoding.decode import decode
from ikp.core.decoding.launch_header import Excerpt, SegmentSource
from ikp.core.segment import Segment, Selection, Spec
from ikp.errors import DecodeError
from ikp.session import readback
from ikp.session.readback import read_back, waited
from tests import segments as model
from tests.core.decoding.checks import assert_same
from tests.core.decoding.test_dense import densely
from tests.fuzz.segments import mutated, subjects
from tests.others import SEVENTH, chosen_blocks

torch = pytest.importorskip("torch")


def on_device(source: SegmentSource) -> Segment:
    """Return a segment as a session holds it."""
    assert isinstance(source.data, np.ndarray)
    assert source.clock is not None and source.overflow is not None
    chosen = source.selection is not None
    return Segment(
        label=source.label,
        data=torch.from_numpy(source.data.copy()),
        spec=Spec(source.clock, source.overflow, select=chosen),
        backend=source.backend,
        device_name=source.device,
        clock_rate_hz=source.clock_rate_hz,
        regions=source.regions or {},
        selection=source.selection or Selection(),
    )


def outcome(source: SegmentSource) -> Any:
    try:
        return decode([replace(source, selected=source.selection is not None)])
    except DecodeError as error:
        return str(error)


@pytest.fixture(params=["many at once", "a few bytes at a time"])
def staged(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param != "many at once":
        monkeypatch.setattr(readback, "STAGED_BYTES", 200)
        monkeypatch.setattr(readback, "_FEW", 0)


@pytest.mark.usefixtures("staged")
def test_an_excerpt_decodes_as_the_whole_segment_does() -> None:
    wholes = [one.source for one in subjects()]
    random = Random(3)
    for _ in range(150):
        subject, data = mutated(random)
        if len(data) >= abi.MIN_SEGMENT_BYTES:  # no buffer is smaller
            wholes.append(replace(subject.source, data=np.frombuffer(data, np.uint8)))
    excerpts = waited(read_back([on_device(whole) for whole in wholes]))
    refused = 0
    for whole, excerpt in zip(wholes, excerpts, strict=True):
        assert isinstance(excerpt.data, Excerpt)
        expected, found = outcome(whole), outcome(excerpt)
        if isinstance(expected, str):
            assert found == expected
            refused += 1
        else:
            assert_same(expected, found)
    assert 10 < refused < 140


class OnDevice(torch.Tensor):  # type: ignore[misc]  # torch is Any here
    """What says that it lies on a GPU: torch picks from it, not numpy."""

    __torch_function__ = torch._C._disabled_torch_function_impl
    is_cuda = True


@pytest.mark.usefixtures("staged")
@pytest.mark.parametrize("kind", [torch.Tensor, OnDevice])
@pytest.mark.parametrize("together", [1, 2, 4])
def test_so_does_one_of_records_in_rows(together: int, kind: Any) -> None:
    work = [model.Record(10 * i, 10 * i + 5) for i in range(9)]
    warps = {(b, w): model.Warp(work[: 3 * b + w]) for b in range(3) for w in range(4)}
    for at in ((0, 1), (2, 3)):
        warps[at] = replace(warps[at], finish=None)
    del warps[1, 2]
    launch = model.Launch(warps, (3, 1, 1), (128, 1, 1))
    segment = model.Segment(model.nbytes(launch.slots, 7))
    segment.run(launch)
    whole = densely(segment, launch, 7, together)
    whole = replace(whole, clock=launch.clock, overflow=launch.overflow)
    there = on_device(whole)
    there.data = there.data.as_subclass(kind)
    (excerpt,) = waited(read_back([there]))
    assert isinstance(excerpt.data, Excerpt)
    assert excerpt.data.records.any()
    assert_same(outcome(whole), outcome(excerpt))


@pytest.mark.usefixtures("staged")
@pytest.mark.parametrize("kind", [torch.Tensor, OnDevice])
@pytest.mark.parametrize("late", [None, (1, 1), (7, 0)])
def test_so_does_one_with_headers_of_others(kind: Any, late: tuple[int, int] | None) -> None:
    work = [model.Record(10 * i, 10 * i + 5) for i in range(9)]
    warps = {(b, w): model.Warp(work[: b + w]) for b in range(9) for w in range(2)}
    if late is not None:
        warps[late] = replace(warps[late], finish=None)
    launch = model.Launch(warps, (9, 1, 1), (64, 1, 1))
    whole = chosen_blocks(launch, SEVENTH, 9, model.Device())
    whole = replace(whole, clock=launch.clock, overflow=launch.overflow)
    there = on_device(whole)
    there.data = there.data.as_subclass(kind)
    (excerpt,) = waited(read_back([there]))
    trace = outcome(excerpt)
    assert_same(outcome(whole), trace)
    assert (len(trace.slots), len(trace.others)) == (4, 14)


@pytest.mark.usefixtures("staged")
def test_what_nobody_wrote_to_is_not_copied() -> None:
    work = [model.Record(10 * i, 10 * i + 5) for i in range(50)]
    warps = {(b, 0): model.Warp(work[: 1 + 49 * (b == 2)]) for b in range(4)}
    warps[3, 0] = replace(warps[3, 0], finish=None)
    segment = model.Segment(model.nbytes(4, 10_000))
    truth = segment.run(model.Launch(warps, grid=(4, 1, 1)))
    source = replace(segment.source(), clock=truth.launch.clock, overflow=truth.launch.overflow)
    (excerpt,) = waited(read_back([on_device(source)]))
    assert isinstance(excerpt.data, Excerpt)
    assert excerpt.data.records.nbytes <= 4 * 51 * abi.RECORD_BYTES
    assert excerpt.nbytes == len(segment.data)
    assert_same(outcome(source), outcome(excerpt))


def test_a_segment_that_no_kernel_wrote_to_has_no_launch() -> None:
    empty = Segment("k", torch.zeros(4096, dtype=torch.uint8), Spec(), "b", "cpu", 0.0)
    (source,) = waited(read_back([empty]))
    assert decode([source]).launches == ()
    assert waited(read_back([])) == []
