"""The verbs in a kernel of Loom's: all values are Python's, so there is little to translate."""

from __future__ import annotations

import time
from typing import Any
from weakref import WeakKeyDictionary

import loom

from ikp.plugins import (
    OpenRange,
    Payload,
    Place,
    Region,
    Spec,
    abi,
    constant_payload,
    constant_region,
    init_twice,
    no_init,
    not_a_buffer,
    not_a_payload,
    not_a_region,
    placed,
)
from ikp_loom import Prof
from ikp_loom.slot import Slot

now = time.perf_counter_ns


class Context(tuple[OpenRange, ...]):
    """The open ranges of the functional verbs, innermost last; a token is a context of one."""

    __slots__ = ()


class Running:
    """The ``Dsl`` of the warp that runs now."""

    def __init__(self) -> None:
        self._slots: WeakKeyDictionary[loom.Warp, Slot] = WeakKeyDictionary()

    def warp(self) -> loom.Warp | None:
        """Return the warp that runs here and now."""
        return loom.current()

    def _slot(self, verb: str) -> Slot:
        slot = self._slots.get(loom.current())  # type: ignore[arg-type]
        if slot is None:
            raise no_init(verb)
        return slot

    # What a kernel records

    def init(self, prof: Any) -> None:
        """Open the slot of this warp; ``prof`` None turns recording off."""
        if prof is not None and not isinstance(prof, Prof):
            raise not_a_buffer(type(prof).__name__)
        warp = loom.current()
        if warp in self._slots:
            raise init_twice()
        self._slots[warp] = Slot(prof and prof.segment, warp)

    def recording(self, verb: str) -> bool:
        """Return whether this warp records."""
        return self._slot(verb).capacity > 0

    def spec(self) -> Spec:
        """Return how it records."""
        return self._slot("init").spec

    def open(self, region: Any, payload: Any, given: Payload) -> OpenRange:  # noqa: ARG002
        """Read the clock."""
        return OpenRange(region, now(), payload)

    def token(self, region: Any, payload: Any, given: Payload, *, opened: bool) -> OpenRange:  # noqa: ARG002
        """Read the clock, which the token of no range does not use."""
        return OpenRange(region, now(), payload, opened=int(opened))

    def unrecorded(self, region: Any, payload: Any, given: Payload) -> OpenRange:  # noqa: ARG002
        """Return a range that nobody will store."""
        return OpenRange(region, 0, payload)

    def store_range(self, region: Region, start: Any, payload: Payload, place: Place) -> None:
        """Store one range record."""
        self._store(abi.Kind.RANGE, region, (start, now()), payload, place)

    def store_instant(self, region: Region, payload: Payload, place: Place) -> None:
        """Store one instant record."""
        at = now()
        self._store(abi.Kind.INSTANT, region, (at, at), payload, place)

    def _store(
        self, kind: abi.Kind, region: Region, times: tuple[int, int], payload: Payload, place: Place
    ) -> None:
        if place.where is None or place.where:
            tag = abi.tag(placed(kind, place), payload.type, region.number)
            self._slot("end").store(tag, times, payload.value, place.index)

    def store_role(self, region: Region) -> None:
        """Name what this warp does."""
        self._slot("role").header["role"] = region.number

    def finish(self) -> None:
        """Write the counts and the second clock anchor."""
        self._slot("finish").finish()

    # What a verb may be given

    def region(self, value: Any, verb: str) -> Region:
        """Accept a name or a number."""
        found = constant_region(value)
        if found is None:
            raise not_a_region(verb, repr(value))
        return found

    def payload(self, value: Any, verb: str) -> Payload:
        """Accept a number of at most 32 bits."""
        found = constant_payload(value, verb)
        if found is None:
            raise not_a_payload(verb, repr(value), "Take one element: x[i].")
        return found

    def is_condition(self, value: Any) -> bool:
        """Accept a boolean or an integer."""
        return isinstance(value, int)

    def is_index(self, value: Any) -> bool:
        """Accept a number of 31 bits."""
        return isinstance(value, int) and 0 <= value < 1 << 31

    def condition(self, value: Any) -> int:
        """Return 0 or 1."""
        return int(bool(value))

    def index(self, value: Any) -> int:
        """Return it as it is."""
        return int(value)

    def both(self, one: int, other: int) -> int:
        """Return 0 or 1."""
        return one & other

    def check_source(self, verb: str, ranges: tuple[OpenRange, ...]) -> None:
        """Refuse nothing: what Python can do, Loom can."""

    def context(self, ranges: tuple[OpenRange, ...]) -> Context:
        """Return what the functional verbs pass on."""
        return Context(ranges)

    def ranges(self, ctx: Any) -> tuple[OpenRange, ...] | None:
        """Return the open ranges of a context; None if it isn't one."""
        return ctx if isinstance(ctx, Context) else None

    def plain(self, value: Any) -> Any:
        """Return it as it is: Loom wraps nothing."""
        return value


RUNNING = Running()
