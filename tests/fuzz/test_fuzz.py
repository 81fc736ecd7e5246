"""A small, always equal part of the fuzzers; the rest is ``python -m tests.fuzz``."""

from __future__ import annotations

import time
from collections import Counter
from random import Random

import numpy as np
import pytest

from ikp.core import abi
from ikp.core.decoding.decode import decode
from tests.fuzz import consumers, files, limits, segments
from tests.fuzz.__main__ import one, run
from tests.segments import SLOT

pytestmark = pytest.mark.any_pins


@pytest.mark.parametrize(("kind", "count"), [("segments", 1000), ("files", 100)])
def test_mutations_are_refused_told_or_harmless(kind: str, count: int) -> None:
    found = run(kind, seed=1, numbers=range(count))
    assert set(found) <= {"refused", "same", "told", "untellable", "forged"}
    assert found["refused"] and found["same"]


def test_what_consumes_a_mutated_trace_takes_it_or_says_why() -> None:
    found = run("consumers", seed=1, numbers=range(30))
    assert not {"error", "silent"} & set(found)
    assert {"stats", "explain", "report", "diff", "edit", ".pftrace"} & set(found)


@pytest.mark.compiled
def test_mutated_machine_code_is_refused_or_patched() -> None:
    pytest.importorskip("triton")
    found = run("machine code", seed=1, numbers=range(25))
    assert set(found) == {"refused", "patched"}


def test_an_attempt_that_takes_too_long_or_too_much_is_a_fault(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(limits, "SECONDS", 0.2)

    def slow(*_: object) -> None:
        while True:
            time.sleep(0.01)

    def large(*_: object) -> None:
        np.zeros(limits.BYTES, np.uint8)

    consumers._take_up()
    for wrong in (slow, large):
        monkeypatch.setattr(consumers, "load", wrong)
        assert run("consumers", 0, range(1))["error"]
    assert "error: --kind 'consumers' --seed 0 --only 0" in capfd.readouterr().err


def test_subjects_are_whole() -> None:
    assert {one.source.label for one in segments.subjects()} >= {"chosen", "placed", "used twice"}
    assert all(one.trace.launches[0].kept for one in segments.subjects())
    assert {bool(one.trace.args) for one in files.subjects()} == {False, True}
    assert {bool(len(one.trace.totals)) for one in files.subjects()} == {False, True}


def test_a_decoder_that_tells_nothing_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "ikp.core.decoding._records.is_empty", lambda records: np.ones(records.shape, bool)
    )
    outcomes: Counter[str] = Counter()
    monkeypatch.setattr(segments, "mutated", _fewer)
    outcomes.update(one("segments", 0, number) for number in range(50))
    assert outcomes["silent"] > 20


def _fewer(random: Random) -> tuple[segments.Subject, bytes]:
    """Return a segment of which one warp claims to have one record less."""
    subject = random.choice([one for one in segments.subjects() if "0 unfin" in one.name])
    data = bytearray(subject.source.data.tobytes())
    size = int.from_bytes(data[36:40], "little")
    at = abi.LAUNCH_HEADER_BYTES + random.randrange(4) * size + SLOT["attempted"]
    data[at] -= 1
    return subject, bytes(data)


def test_a_fault_of_the_reader_is_found_out(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def wrong(*_: object) -> None:
        raise OverflowError("wrong")

    monkeypatch.setattr("ikp.exporters.perfetto.column_file.check_slots", wrong)
    assert run("files", 0, range(40))["error"]
    assert "error: --kind 'files' --seed 0 --only" in capfd.readouterr().err


def test_attempts_can_be_repeated() -> None:
    assert segments.mutated(Random("x"))[1] == segments.mutated(Random("x"))[1]
    subject = files.subjects()[0]
    for make in files.KINDS:
        assert make(subject, Random("x")) == make(subject, Random("x"))
    source = segments.subjects()[0].source
    assert np.array_equal(decode([source]).slots.kept, segments.subjects()[0].trace.slots.kept)


def test_an_overwritten_choice_that_fits_where_the_session_s_does_not_is_refused() -> None:
    """Once a ValueError: more slots than the segment holds."""
    assert segments.attempt(Random("segments 103 283051")) == "refused"
