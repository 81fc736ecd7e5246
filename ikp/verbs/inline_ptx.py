"""``PtxRecorder``: the base of adapters that emit records as inline PTX, or marks in its form.

It alone defines which operands a record's assembly takes, and in which order. How a language makes
an operand, and a call of the assembly, is its adapter's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from ikp.core import abi
from ikp.core.abi import Kind, OverflowMode, PayloadType
from ikp.core.segment import Spec
from ikp.errors import KernelError
from ikp.targets import ptx, ptx_slot, ptx_totals
from ikp.targets.ptx_totals import Counter
from ikp.verbs.dsl import OpenRange, Payload, Place, Region, placed


def comment(region: Region) -> str:
    """Return the comment in the PTX of a record's store, which names the region."""
    if region.number is None or not region.name:
        return ptx.HOST_NAMED
    return ptx.region_comment(region.number, region.name)


def record(region: Region, kind: Kind, payload: PayloadType, place: Place) -> ptx.RecordCode:
    """Return the record as the PTX generator takes it."""
    tag = region.fixed_tag(placed(kind, place), payload)
    return ptx.RecordCode(tag, comment(region), place.where is not None, place.index is not None)


def counter(region: Region, kind: Kind) -> Counter:
    """Return the counter of the region's ranges or instants, for totals."""
    return Counter(kind, region.number or 0)


class PtxRecorder(ABC):
    """An adapter's base that emits records as inline PTX, by methods that the adapter defines."""

    @abstractmethod
    def _recording(self, verb: str) -> Spec | None:
        """Return the kernel's spec, None if it is off; raise KernelError if no init came before."""

    @abstractmethod
    def _emit(self, asm: ptx.Asm, args: list[Any]) -> Any:
        """Call assembly that the compiler neither drops, merges nor reorders; return its result."""

    @abstractmethod
    def _value(self, value: Any) -> Any:
        """Return a constant integer, or a 32-bit value of the language, as an operand."""

    @abstractmethod
    def _runtime_tag(self, base: int, number: Any) -> Any:
        """Return the tag that is ``base`` (unsigned) with a region's number in its low bits."""

    @abstractmethod
    def _word(self, payload: Payload) -> Any:
        """Return the payload's 32 bits as an operand."""

    def _counters(self) -> tuple[Counter, ...]:
        """Return the counters of totals that the kernel has so far, if its adapter keeps them."""
        return ()

    def _counting(self, counter: Counter) -> None:  # noqa: B027 - most adapters need not know
        """Note that the kernel keeps this total."""

    def recording(self, verb: str) -> bool:
        """Return whether this kernel records."""
        return self._recording(verb) is not None

    def check_source(  # noqa: B027 - the language's own compiler refuses it
        self, verb: str, ranges: tuple[OpenRange, ...]
    ) -> None:
        """Refuse nothing."""

    def spec(self) -> Spec:
        """Return the kernel's spec."""
        spec = self._recording("init")
        if spec is None:
            raise KernelError("this kernel does not record: its prof argument is None.")
        return spec

    def _read_clock(self, region: Region) -> Any:
        """Return the start word of a range that opens now."""
        spec = self.spec()
        if spec.overflow is not OverflowMode.STREAM:
            return self._emit(ptx.start(spec, comment(region)), [])
        tag = region.fixed_tag(Kind.RANGE, PayloadType.NONE)
        operands = self._tag(Kind.RANGE, PayloadType.NONE, region, Place())
        return self._emit(ptx.start(spec, comment(region), tag), operands)

    def store_range(self, region: Region, start: Any, payload: Payload, place: Place) -> None:
        """Read the clock and store one range record, or add the range to its region's total."""
        if self.spec().totals:
            total = counter(region, Kind.RANGE)
            self._counting(total)
            asm = ptx_totals.end(self.spec(), total, comment(region), place.where is not None)
            self._emit(asm, [start, *self._place(place)])
            return
        asm = ptx.end(self.spec(), record(region, Kind.RANGE, payload.type, place))
        tag = self._tag(Kind.RANGE, payload.type, region, place)
        self._emit(asm, [*tag, start, self._word(payload), *self._place(place)])

    def store_instant(self, region: Region, payload: Payload, place: Place) -> None:
        """Read the clock and store one instant record, or add the instant to its region's total."""
        if self.spec().totals:
            total = counter(region, Kind.INSTANT)
            self._counting(total)
            asm = ptx_totals.instant(total, comment(region), place.where is not None)
            self._emit(asm, self._place(place))
            return
        asm = ptx.instant(self.spec(), record(region, Kind.INSTANT, payload.type, place))
        tag = self._tag(Kind.INSTANT, payload.type, region, place)
        self._emit(asm, [*tag, self._word(payload), *self._place(place)])

    def store_role(self, region: Region) -> None:
        """Write the warp's role to its slot's header."""
        self._emit(ptx.role(region.number or 0, comment(region)), [])

    def finish(self) -> None:
        """Write totals, the counts and the second clock anchor."""
        self._emit(ptx_slot.finish(self.spec(), self._counters()), [])

    def _place(self, place: Place) -> list[Any]:
        return [self._value(value) for value in (place.where, place.index) if value is not None]

    def _tag(self, kind: Kind, payload: PayloadType, region: Region, place: Place) -> list[Any]:
        """Return the tag as an operand if it is known only at run time; else nothing."""
        if region.number is not None:
            return []
        return [self._runtime_tag(abi.tag(placed(kind, place), payload, 0), region.runtime)]
