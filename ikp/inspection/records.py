"""Find the records in machine code: what stores them, and the clock reads of their ranges."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from ikp.core.abi import KIND_SHIFT, Kind
from ikp.inspection.flow import Flow
from ikp.inspection.trace import Origins, Tracer
from ikp.inspection.values import Origin, words

_STORES = ("STG", "ST", "STS")
_KINDS = frozenset(Kind)


@dataclass(frozen=True, slots=True)
class Span:
    """One pair of clock reads that a record's words can come from, and what lies between."""

    start: int  # index of the clock read; an instant's is its end
    end: int
    contents: tuple[int, ...]  # indices of the instructions on any path from start to end


@dataclass(frozen=True, slots=True)
class Record:
    """One record store in machine code."""

    store: int  # index of the instruction
    tag: int | None  # None: made at run time
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """What there is of ikp in one kernel."""

    records: tuple[Record, ...]
    clocks: tuple[int, ...]  # every 32-bit clock read
    unresolved: tuple[int, ...]  # stores of an end of a range whose start was not found


def find(flow: Flow) -> Found:
    """Return the records of a kernel.

    A record is a 16-byte store of {tag, start, end, payload} whose end word comes from a clock and
    whose tag doesn't: that tells it from what init and finish write. Tag and start tell it from
    any other such store.
    """
    tracer = Tracer(flow)
    records, unresolved = [], []
    for at, instruction in enumerate(flow.code.instructions):
        if instruction.op not in _STORES or "128" not in instruction.opcode.split("."):
            continue
        data = instruction.operands[1] if len(instruction.operands) > 1 else "RZ"
        if data == "RZ":
            continue
        tag, start, end, _ = words(data, 4)
        if not _are_clocks(tracer, tracer.origins(at, (end,))):
            continue
        tags = _tags(tracer, at, tag)
        if not tags:
            continue
        spans = _spans(tracer, tracer.origins(at, (end, start)))
        if spans:
            records.append(Record(at, tags.pop() if len(tags) == 1 else None, spans))
        else:
            unresolved.append(at)
    return Found(tuple(records), _clocks(tracer), tuple(unresolved))


def _are_clocks(tracer: Tracer, origins: Origins) -> bool:
    made = [tracer.defined[at] for (at,) in origins.found if isinstance(at, int)]
    return bool(made) and all(
        any(d.origin is Origin.CLOCK for d in defined.values()) for defined in made
    )


def _tags(tracer: Tracer, at: int, place: str) -> set[int | None]:
    """Return the tags that a word can hold; None is one made at run time; empty: it is no tag."""
    found: set[int | None] = set()
    for (source,) in tracer.origins(at, (place,)).found:
        made = tracer.defined[int(source)].values()
        if any(d.origin is Origin.CLOCK for d in made):
            return set()
        constants = {d.value for d in made if d.origin is Origin.CONSTANT}
        found |= constants or {None}
    known = {tag for tag in found if tag is not None}
    return found if all(tag >> KIND_SHIFT in _KINDS for tag in known) else set()


def _spans(tracer: Tracer, origins: Origins) -> tuple[Span, ...]:
    """Return the pairs of clock reads behind (end, start), with what lies between each."""
    pairs: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
    for places in origins.found:
        end, start = map(int, places)
        clocks = (
            d.origin is Origin.CLOCK for at in (end, start) for d in tracer.defined[at].values()
        )
        if sum(clocks) == 2:
            pairs[start, end] |= _contents(origins, places)
    return tuple(
        Span(start, end, tuple(sorted(contents)))
        for (start, end), contents in sorted(pairs.items())
    )


def _contents(origins: Origins, places: tuple[int | str, ...]) -> set[int]:
    """Return what runs while the start is read and the end is not."""
    return {
        before.at
        for before, after in origins.way(places)
        if isinstance(after.places[0], int) and isinstance(before.places[1], str)
    }


def _clocks(tracer: Tracer) -> tuple[int, ...]:
    return tuple(
        at
        for at, defined in enumerate(tracer.defined)
        if len(defined) == 1 and any(d.origin is Origin.CLOCK for d in defined.values())
    )
