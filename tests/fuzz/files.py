"""Trace files that were damaged, or made to do damage: refused, or read as a trace that holds."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from ikp.core.trace import Trace, faults
from ikp.edit import add_args, concat
from ikp.errors import ExportError
from ikp.exporters.columns.packing import JSON
from ikp.exporters.perfetto import PerfettoExporter
from ikp.exporters.protobuf.varints import DamagedError
from tests.exporters.perfetto.examples import warps
from tests.exporters.perfetto.taken_apart import Section, put_together, take_apart
from tests.fuzz import segments
from tests.fuzz.mutations import IN_PLACE, RESIZING, how_many
from tests.totals import gemm

NUMBERS = (-(1 << 63), -(1 << 31), -2, -1, 0, 1, 2, 127, 128, (1 << 31) - 1, 1 << 31, 1 << 32)
_MOST = (1 << 63) - 1
NUMBERS += (10**12, 1 << 62, (1 << 63) - 1)


@dataclass(frozen=True, slots=True)
class Subject:
    """A trace, and its file."""

    trace: Trace
    content: bytes


@cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="ikp-fuzz-"))


@cache
def subjects() -> tuple[Subject, ...]:
    """Return small files with everything that a file can hold."""
    names = ("CYCLES STOP 1 unfinished", "GLOBALTIMER64 WRAP 3 unfinished", "chosen", "placed")
    recorded = [one.trace for one in segments.subjects() if one.name in names]
    overlapping = warps([[(0, 4), (2, 6), 7], [(1, 3)], []], names=["load", "dot"], notes=("n",))
    arguments = add_args(
        recorded[0],
        late=lambda one: one.start_ns % 2 == 0,
        cost=lambda one: one.start_ns / 3,
        word=lambda one: one.region,
    )
    traces = [overlapping, arguments, gemm(2), concat([*recorded, gemm(1)])]
    return tuple(_subject(trace) for trace in traces)


def _subject(trace: Trace) -> Subject:
    path = _folder() / "made.pftrace"
    PerfettoExporter().write(trace, path, force=True)
    return Subject(PerfettoExporter().read(path), path.read_bytes())


def in_the_file(subject: Subject, random: Random) -> bytes:
    """Damage the file as it lies on the disk: its checksums can tell."""
    return _damaged(subject.content, random)


def _damaged(content: bytes, random: Random) -> bytes:
    data = bytearray(content)
    for _ in range(how_many(random)):
        change = random.choice(IN_PLACE * 3 + RESIZING)
        if len(data) > 4:
            change(data, random, random.randrange(len(data)))
    return bytes(data)


def in_the_columns(subject: Subject, random: Random) -> bytes:
    """Damage what the checksums of columns are made of."""
    sections = take_apart(subject.content)
    for _ in range(how_many(random)):
        change = random.choice((_renumber, _renumber, _retell, _retell, _unlist, _reorder))
        with suppress(DamagedError):  # what an earlier change has left can't be read any more
            change(sections, random)
    return put_together(sections)


def in_agreement(subject: Subject, random: Random) -> bytes:
    """Let columns hold something else, and heads tell what columns hold: nothing contradicts it."""
    sections = take_apart(subject.content)
    for _ in range(how_many(random)):
        with suppress(DamagedError):
            _renumber(sections, random)
    for section in sections:
        with suppress(DamagedError, KeyError, ValueError, IndexError, TypeError):
            _agree(section)
    return put_together(sections)


def _agree(section: Section) -> None:
    """Let the head of a chunk of events tell what its columns hold."""
    if section.kind != "events":
        return
    counts, spans = section.numbers("count"), section.numbers("span")
    steps = section.numbers("gap") + spans
    last = np.cumsum(counts)
    first = last - counts
    ends = section.numbers("origin") + np.add.reduceat(steps, first)
    steps[first] += section.numbers("origin")
    steps[first[1:]] -= ends[:-1]
    ends = np.cumsum(steps)
    slots = section.numbers("slot")
    section.about["time"] = [int((ends - spans).min()), int(ends.max())]
    section.about["slots"] = [int(slots[0]), int(slots[-1])]


def _renumber(sections: list[Section], random: Random) -> None:
    """Let a column hold something else."""
    section = random.choice(sections)
    name = random.choice([*section.pieces, "x"])
    if name not in section.pieces or not 0 <= section.pieces[name][0].rows < 10_000:
        return
    if section.pieces[name][0].type == JSON:
        section.put_json(name, _retold(section.json(name), random))
        return
    values = section.numbers(name).astype(np.int64)
    if len(values):
        at = random.randrange(len(values))
        near = int(values[at]) + random.choice((-2, -1, 1, 2, 1000))
        others = (int(random.choice(values)), random.choice(NUMBERS), random.choice(NUMBERS))
        values[at] = max(min(random.choice((near, near, *others)), _MOST), -_MOST)
    section.put(name, values[: random.choice((None, None, -1))])


def _retell(sections: list[Section], random: Random) -> None:
    """Let a chunk's head tell something else."""
    section = random.choice(sections)
    if random.random() < 0.5 or not section.pieces:
        section.about = _retold(section.about, random)
        return
    name = random.choice(list(section.pieces))
    piece, content = section.pieces[name]
    field = random.choice(("rows", "type", "steps", "value", "size", "crc"))
    values = {"type": ("", "u1", "i8", JSON, "f4"), "steps": (True, False)}.get(field, NUMBERS)
    section.pieces[name] = (replace(piece, **{field: random.choice(values)}), content)


def _retold(value: Any, random: Random) -> Any:
    """Return plain values with one of them changed."""
    if isinstance(value, dict) and value:
        key = random.choice(list(value))
        return {**value, key: _retold(value[key], random)}
    if isinstance(value, list) and value and random.random() < 0.9:
        at = random.randrange(len(value))
        return [*value[:at], _retold(value[at], random), *value[at + 1 :]]
    return random.choice((*NUMBERS, -1, 0.5, "", "x", None, True, [], {}, [1, 2]))


def _unlist(sections: list[Section], random: Random) -> None:
    """Take a column away."""
    pieces = random.choice(sections).pieces
    if pieces:
        del pieces[random.choice(list(pieces))]


def _reorder(sections: list[Section], random: Random) -> None:
    """Leave a section out, or put one in once more, or somebody else's."""
    others = take_apart(random.choice(subjects()).content)
    at = random.randrange(len(sections))
    new = random.choice(([], [sections[at]] * 2, [random.choice(others)]))
    if len(sections) + len(new) > 1:
        sections[at : at + 1] = new


KINDS = (in_the_file, in_the_columns, in_the_columns)


def attempt(random: Random) -> str:
    """Read one mutated file; return what came of it.

    ``refused``: told why, and that it is this file. ``same``: as many events, slots, launches and
    totals as before. ``forged``: others, in a file whose checksums and counts agree with what it
    holds. ``silent``: others, in a file whose checksums are those of the old content.

    Raises:
        Exception: the reader's own fault.
    """
    subject, make = random.choice(subjects()), random.choice(KINDS)
    path = _folder() / "mutated.pftrace"
    path.write_bytes(make(subject, random))
    try:
        trace = PerfettoExporter().read(path)
    except ExportError as error:
        return "refused" if str(path) in str(error) else "silent"
    assert not (found := faults(trace)), found
    if _counts(trace) == _counts(subject.trace):
        return "same"
    return "silent" if make is in_the_file else "forged"


def _counts(trace: Trace) -> tuple[int, ...]:
    return len(trace.launches), len(trace.slots), len(trace.events), len(trace.totals)
