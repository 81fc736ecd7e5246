"""The C file that decodes plain records says what numpy says, whatever the bytes are."""

from __future__ import annotations

import os
import pkgutil
import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ikp import compiling
from ikp.core import abi, decoding
from ikp.core.decoding import _batch, _plain, _records
from ikp.core.decoding.decode import decode
from ikp.core.decoding.launch_header import SegmentSource
from ikp.core.trace import Trace
from tests.core.decoding.checks import assert_same
from tests.core.decoding.test_properties import CLOCKS, launches
from tests.segments import LAUNCH, Device, Launch, Record, Segment, Sm, Warp, nbytes

ALL, NONE = 0, 1 << 60


def decoded(
    sources: Sequence[SegmentSource], least: int, chunk: int = 1 << 13, worth: int = 1 << 17
) -> Trace:
    """Decode by the C file where there are at least so many records, by a thread for each worth."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_plain, "_WORTH", worth)
        patch.setattr(os, "sched_getaffinity", lambda _: range(4))
        patch.setattr(_batch, "_WORTH_PLAIN", least)
        patch.setattr(_records, "CHUNK_RECORDS", chunk)
        return decode(sources)


@given(
    st.lists(launches(CLOCKS), max_size=3), st.integers(1, 40), st.integers(1, 9), st.integers(0, 3)
)
def test_both_say_the_same(
    made: list[tuple[Device, Launch, int]], chunk: int, worth: int, whole: int
) -> None:
    sources = []
    for device, launch, records in made:
        segment = Segment(nbytes(launch.slots, records), device)
        segment.run(launch)
        sources.append(with_lives(segment.source(), whole))
    assert_same(decoded(sources, NONE), decoded(sources, ALL, chunk))
    assert_same(decoded(sources, NONE), decoded(sources, ALL, chunk, worth))


@settings(max_examples=50)
@given(st.integers(0, 2**32), st.integers(1, 30))
def test_both_say_the_same_of_damaged_records(seed: int, count: int) -> None:
    source, drawn = with_lives(busy(seed).source(), seed % 2), random.Random(seed)
    data = np.array(source.data)
    for _ in range(count):
        data[drawn.randrange(abi.LAUNCH_HEADER_BYTES, len(data))] ^= 1 << drawn.randrange(8)
    sources = [replace(source, data=data)]
    assert_same(decoded(sources, NONE), decoded(sources, ALL, 64))
    assert_same(decoded(sources, NONE), decoded(sources, ALL, 64, 20))


def with_lives(source: SegmentSource, region: int) -> SegmentSource:
    """Return a segment that also tells of each warp's whole life, unless the region is 0."""
    data = np.array(source.data)
    data[LAUNCH["whole"] :][:4] = (region, 0, 0, 0)
    return replace(source, data=data)


def busy(seed: int) -> Segment:
    """Return a segment of warps that ran long enough for clocks to bend, and to turn."""
    drawn = random.Random(seed)
    sms = {sm: Sm(origin=drawn.randrange(1 << 50)) for sm in range(3)}
    segment = Segment(nbytes(24, 40), Device(sms))
    warps = {}
    for number in range(24):
        now = begin = drawn.randrange(10**7)
        records = []
        for _ in range(drawn.randrange(40)):
            start, now = now, now + drawn.randrange(1, 10 ** drawn.randrange(1, 10))
            records.append(Record(start, now, drawn.randrange(5)))
        warps[number, 0] = Warp(records, begin, now + 5, drawn.randrange(3))
    segment.run(Launch(warps, (24, 1, 1)))
    return segment


def test_it_decodes_all_that_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    by_numpy: list[int] = []
    add = _batch._BatchColumns.add
    monkeypatch.setattr(
        _batch._BatchColumns,
        "add",
        lambda work, chunk: by_numpy.append(chunk.row.size) or add(work, chunk),
    )
    source = with_lives(busy(1).source(), 9)
    trace = decoded([source], ALL, 50)
    assert _plain._compiled[0] is not None
    assert len(trace.events) > 300
    assert len(by_numpy) == 1, "the first chunk, of which no region is known"
    assert_same(trace, decoded([source], ALL, 50, 30))
    assert len(by_numpy) == 2


def test_where_nothing_can_be_compiled_numpy_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise compiling.CompileError("no")

    expected = decoded([busy(2).source()], ALL)
    monkeypatch.setattr(_plain, "_compiled", [])
    monkeypatch.setattr(compiling, "kept", refuse)
    assert_same(expected, decoded([busy(2).source()], ALL))
    assert _plain._compiled == [None]


def test_all_that_decodes_can_be_imported_where_python_is_ending() -> None:
    """A trace is written there, and no thread can be started, nor what starts any imported."""
    names = [m.name for m in pkgutil.iter_modules(decoding.__path__, "ikp.core.decoding.")]
    code = "import atexit, importlib, threading\n" + "".join(
        f"atexit.register(lambda: print(importlib.import_module({name!r}).__name__))\n"
        for name in names
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert sorted(done.stdout.split()) == sorted(names), done.stderr
