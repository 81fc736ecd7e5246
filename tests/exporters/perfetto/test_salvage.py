"""What is sound in a damaged file is still readable, where the user asks for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest
from click.testing import CliRunner

import ikp
from ikp.cli.main import cli
from ikp.core.trace import Trace, faults
from ikp.errors import ExportError
from ikp.exporters.perfetto import PerfettoExporter, _writer
from ikp.exporters.perfetto.reader import salvage
from tests.exporters.perfetto.examples import START, assert_same, warps
from tests.exporters.perfetto.taken_apart import Section, put_together, take_apart
from tests.fuzz import files
from tests.others import without_records
from tests.totals import gemm

TRACE = warps([[(0, 4), (2, 6), 7], [(1, 3)], [], [(100, 130)]], names=["load", "dot"])


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file of three chunks of events and two of slots."""
    monkeypatch.setattr(_writer, "EVENTS_AT_ONCE", 1)
    monkeypatch.setattr(_writer, "ROWS_AT_ONCE", 3)
    path = tmp_path / "trace.pftrace"
    PerfettoExporter().write(TRACE, path)
    return path


def only(path: Path) -> tuple[Trace, list[str]]:
    ((trace, lost),) = salvage(path)
    assert not faults(trace)
    return trace, lost


def test_of_a_whole_file_nothing_is_lost(path: Path) -> None:
    trace, lost = only(path)
    assert_same(trace, TRACE)
    assert lost == []


def test_a_file_cut_short_keeps_what_is_in_front_of_the_cut(path: Path) -> None:
    content, kept = path.read_bytes(), set()
    for length in range(1, len(content), 23):
        path.write_bytes(content[:length])
        try:
            trace, lost = only(path)
        except ExportError:  # not even the first event is there
            assert not kept
            continue
        kept.add(len(trace.events))
        assert f"{5 - len(trace.events)} of 5 events" in lost
        np.testing.assert_array_equal(
            trace.events.start_ns, TRACE.events.start_ns[: len(trace.events)]
        )
        assert "salvaged" in trace.provenance
    assert kept == {3, 4}


def test_so_are_warps_that_left_no_records(path: Path) -> None:
    trace = without_records(TRACE, {(0, 0), (0, 2)})
    PerfettoExporter().write(trace, path, force=True)
    found, lost = only(path)
    assert_same(found, trace)
    assert lost == []
    sections = take_apart(path.read_bytes())
    damaged(sections, "others", 0)
    path.write_bytes(put_together(sections))
    found, lost = only(path)
    assert len(found.others) == 0 and len(found.slots) == len(trace.slots)
    assert f"{len(trace.others)} of {len(trace.others)} warps without records" in lost


def damaged(sections: list[Section], kind: str, which: int) -> None:
    """Flip a bit in a column of a chunk."""
    section = [one for one in sections if one.kind == kind][which]
    name, (piece, content) = next(
        (name, packed) for name, packed in section.pieces.items() if packed[1]
    )
    section.pieces[name] = (piece, bytes([content[0] ^ 1]) + content[1:])


LOSSES: dict[str, tuple[Callable[[list[Section]], None], list[int], str]] = {
    "events": (lambda s: damaged(s, "events", 0), [1, 100], "3 of 5 events"),
    "slots": (lambda s: damaged(s, "slots", 0), [100], "3 of 4 slots"),
    "twice": (lambda s: s.append(s[-1]), [0, 2, 7, 1, 100], "is there twice"),
    "in disorder": (lambda s: s.insert(3, s.pop()), [100], "is there twice"),
}


@pytest.mark.parametrize("what", LOSSES)
def test_what_is_damaged_is_left_out_and_told(what: str, path: Path) -> None:
    change, starts, words = LOSSES[what]
    sections = take_apart(path.read_bytes())
    change(sections)
    path.write_bytes(put_together(sections))
    with pytest.raises(ExportError, match="`ikp convert --salvage` reads what is sound"):
        PerfettoExporter().read(path)
    trace, lost = only(path)
    assert sorted(trace.events.start_ns - START) == sorted(starts)
    assert words in "; ".join(lost)


def test_other_packets_are_no_loss(path: Path) -> None:
    sections = take_apart(path.read_bytes())
    for one in sections:
        one.packets = b""
    path.write_bytes(put_together(sections))
    trace, lost = only(path)
    assert_same(trace, TRACE)
    assert lost == []


def test_files_that_were_joined_are_taken_apart(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.pftrace"
    PerfettoExporter().write(gemm(2), other)
    path.write_bytes(b"\x0a\x02\x08\x01" + path.read_bytes() + other.read_bytes())
    one, two = salvage(path)
    assert_same(one[0], TRACE)
    assert_same(two[0], gemm(2))


@pytest.mark.parametrize("content", [b"no trace", b"\x0a\x02\x08\x01"])
def test_what_has_no_columns_is_told(content: bytes, path: Path) -> None:
    path.write_bytes(content)
    with pytest.raises(ExportError, match="holds nothing that can be salvaged"):
        salvage(path)


def test_any_damage_leaves_a_trace_that_holds(tmp_path: Path) -> None:
    path = tmp_path / "any.pftrace"
    for number in range(300):
        random = Random(f"salvage {number}")
        make = random.choice(files.KINDS)
        path.write_bytes(make(random.choice(files.subjects()), random))
        try:
            found = salvage(path)
        except ExportError:
            continue
        for trace, _ in found:
            assert not faults(trace), number


def test_the_command_says_what_is_lost(path: Path, tmp_path: Path) -> None:
    sections = take_apart(path.read_bytes())
    damaged(sections, "events", 0)
    path.write_bytes(put_together(sections))
    target = tmp_path / "sound.pftrace"
    ran = CliRunner().invoke(cli, ["convert", "--salvage", str(path), str(target)])
    assert ran.exit_code == 0, ran.output
    assert "lost: 3 of 5 events" in ran.stderr
    assert "the checksum of the column" in ran.stderr
    assert len(ikp.load(target).events) == 2


def test_the_command_joins_what_was_joined(path: Path, tmp_path: Path) -> None:
    path.write_bytes(path.read_bytes() * 2)
    target = tmp_path / "sound.pftrace"
    ran = CliRunner().invoke(cli, ["convert", "--salvage", str(path), str(target)])
    assert ran.exit_code == 0, ran.output
    assert "lost: trace 2 of 2: nothing" in ran.stderr
    assert len(ikp.load(target).events) == 10


def test_the_command_refuses_other_formats(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a\n")
    ran = CliRunner().invoke(cli, ["convert", "--salvage", str(path), str(tmp_path / "y.json")])
    assert ran.exit_code == 1
    assert "can't be salvaged" in ran.stderr


def test_where_every_event_is_lost_nothing_replaces_a_good_file(path: Path, tmp_path: Path) -> None:
    sections = take_apart(path.read_bytes())
    sections = [one for one in sections if one.kind != "events"]
    path.write_bytes(put_together(sections))
    with pytest.raises(ExportError, match=r"nothing that can be salvaged.*5 of 5 events"):
        salvage(path)
    good = tmp_path / "good.pftrace"
    good.write_bytes(b"precious")
    done = CliRunner().invoke(cli, ["convert", "--salvage", "--force", str(path), str(good)])
    assert done.exit_code == 1 and "5 of 5 events" in done.stderr
    assert good.read_bytes() == b"precious"
