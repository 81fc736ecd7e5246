"""The protocol ``Dsl`` of a language's adapter, with its regions, payloads and error texts.

A region and a payload are resolved once, by the adapter's ``region`` and ``payload``, which accept
numbers of that language. Values known while the code is traced need no adapter.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from ikp.core import abi
from ikp.core.abi import Kind, PayloadType
from ikp.core.regions import checked_id, checked_name, merge, region_id
from ikp.core.segment import Spec
from ikp.errors import KernelError

DslValue: TypeAlias = Any
"""A value of the language that is being traced: a number, or a value of its compiler.

Each language has classes of its own, which the verbs pass on as they are; Python has no type."""


@dataclass(frozen=True, slots=True)
class Region:
    """A region as a verb got it: its ``number`` if that is known at compile time.

    ``runtime`` holds the number if it is known only at run time.
    """

    number: int | None
    name: str = ""
    runtime: DslValue = None

    def fixed_tag(self, kind: Kind, payload: PayloadType) -> int | None:
        """Return the record's tag if it is known at compile time, else None."""
        return None if self.number is None else abi.tag(kind, payload, self.number)


@dataclass(frozen=True, slots=True)
class Payload:
    """A 32-bit value that travels with a record: raw bits, or a value of the DSL."""

    type: PayloadType
    value: DslValue = 0


NO_PAYLOAD = Payload(PayloadType.NONE)


@dataclass(frozen=True, slots=True)
class OpenRange:
    """A range that was started: the verb's arguments, and the start word of the clock.

    A token's ``opened`` says whether there is a range: 1, or 0 where ``no_token`` made it. Ranges
    of a context have None.
    """

    region: object
    start: DslValue
    payload: object
    opened: DslValue = None

    @property
    def parts(self) -> tuple[DslValue, DslValue, DslValue, DslValue]:
        """The fields: in a value constants and run-time values, in a type their types."""
        return self.region, self.start, self.payload, self.opened


@dataclass(frozen=True, slots=True)
class Unrecorded:
    """The placeholder of a run-time value in an open range of a kernel that does not record.

    So the types of ranges differ as they do where the kernel records, without a single value in the
    compiled code.
    """

    type: str


@dataclass(frozen=True, slots=True)
class Place:
    """The condition and index of a record: as the verb got them, or 32-bit values of the DSL."""

    where: DslValue = None  # stored if this is not 0; None: always
    index: DslValue = None  # index in the warp's slot; None: the next


class Dsl(Protocol):
    """One language's adapter, for the code that is being traced, or interpreted, now."""

    def init(self, prof: object) -> None:
        """Set up recording; ``prof`` None turns it off for this kernel."""

    def recording(self, verb: str) -> bool:
        """Return whether this kernel records; raise KernelError if no init came before."""

    def spec(self) -> Spec:
        """Return the spec of this kernel, which records."""

    def region(self, value: object, verb: str) -> Region:
        """Return the region that a verb's argument names; raise KernelError if it names none."""

    def payload(self, value: object, verb: str) -> Payload:
        """Return the payload that a verb's argument gives; raise KernelError if it can't be one."""

    def is_condition(self, value: object) -> bool:
        """Return whether a value is a scalar boolean or integer, known now or not."""

    def is_index(self, value: object) -> bool:
        """Return whether a value is one integer of at most 32 bits, known now or not."""

    def condition(self, value: DslValue) -> DslValue:
        """Return a condition as a 32-bit value, 0 or 1."""

    def index(self, value: DslValue) -> DslValue:
        """Return an index as a 32-bit value."""

    def both(self, one: DslValue, other: DslValue) -> DslValue:
        """Return whether two 32-bit values, 0 or 1, are both 1, as another."""

    def check_source(self, verb: str, ranges: tuple[OpenRange, ...]) -> None:
        """Raise KernelError if compiled code can't have the verb there, with these ranges open."""

    def open(self, region: object, payload: object, given: Payload) -> OpenRange:
        """Read the clock and return an open range, in a form that the language can carry."""

    def token(self, region: object, payload: object, given: Payload, *, opened: bool) -> OpenRange:
        """Return an open range as a token, or the token of no range, of the same type."""

    def unrecorded(self, region: object, payload: object, given: Payload) -> OpenRange:
        """Return an open range of a kernel that does not record."""

    def store_range(self, region: Region, start: DslValue, payload: Payload, place: Place) -> None:
        """Read the clock and store one range record."""

    def store_instant(self, region: Region, payload: Payload, place: Place) -> None:
        """Read the clock and store one instant record."""

    def store_role(self, region: Region) -> None:
        """Write the warp's role, a region known now, to its slot's header."""

    def finish(self) -> None:
        """Write the counts and the second clock anchor."""

    def context(self, ranges: tuple[OpenRange, ...]) -> DslValue:
        """Return the value that the functional verbs pass on."""

    def ranges(self, ctx: object) -> tuple[OpenRange, ...] | None:
        """Return the open ranges of a context; None if it isn't one."""

    def plain(self, value: object) -> DslValue:
        """Return the Python value of a constant that the language wraps; others as they are."""


def placed(kind: Kind, place: Place) -> Kind:
    """Return the kind in a record's tag: PLACED_RANGE for a range with an index, and so on."""
    return kind if place.index is None else abi.PLACED[kind]


def constant_region(value: object) -> Region | None:
    """Return the region that a string or an integer names; None for anything else.

    Raises:
        RegionError: a name or id that can't be used.
    """
    if isinstance(value, str):
        return Region(*intern(value))
    if isinstance(value, int) and not isinstance(value, bool):
        return Region(checked_id(value))
    return None


_lock = threading.Lock()
_names: dict[int, str] = {}
"""Region names seen while kernels were traced in this process, of all DSLs."""


def intern(name: object, shown: str = "") -> tuple[int, str]:
    """Return the id of a region's name, and the name, and remember both.

    Args:
        name: the region's.
        shown: its name in traces, where that differs: the name of a C++ kernel is a symbol.

    Raises:
        RegionError: ``name`` is not a non-empty string, or another name seen before has its id.
    """
    text = checked_name(name)
    number = region_id(text)
    if _names.get(number) != (shown or text):
        with _lock:
            merge([_names, {number: shown or text}])
            _names[number] = shown or text
    return number, text


def known() -> dict[int, str]:
    """Return the names interned so far, by region id."""
    with _lock:
        return dict(_names)


def not_a_region(verb: str, got: str) -> KernelError:
    """Return the error for a value that can't name a region."""
    return KernelError(
        f"ikp.{verb} needs a region: a string known when the kernel is compiled, or a scalar "
        f"integer (then name it on the host: prof.buffer(label, regions={{0: 'load'}})). Got {got}."
    )


def constant_payload(value: object, verb: str) -> Payload | None:
    """Return the payload that None, a bool, an int or a float gives; None for anything else.

    Raises:
        KernelError: an integer that does not fit in 32 bits.
    """
    if value is None:
        return NO_PAYLOAD
    if isinstance(value, float):
        return Payload(PayloadType.F32, struct.unpack("<I", struct.pack("<f", value))[0])
    if not isinstance(value, int):
        return None
    if not -(1 << 31) <= value < 1 << 32:
        raise KernelError(f"the payload {value} of ikp.{verb} does not fit in 32 bits.")
    # What fits in both is signed, as the DSLs' own integers are.
    return Payload(PayloadType.I32 if value < 1 << 31 else PayloadType.U32, value & 0xFFFFFFFF)


def formatted_at_run_time(verb: str, name: str) -> KernelError:
    """Return the error for a name that is an f-string of a run-time value."""
    return KernelError(
        f"ikp.{verb} is given the name {name!r}, an f-string of a value that a compiled kernel "
        "learns only at run time. Give a name that is known when the kernel is compiled, and the "
        "value as payload; or a scalar integer, named on the host: "
        "prof.buffer(label, regions={0: 'load'})."
    )


def not_a_payload(verb: str, got: str, remedy: str) -> KernelError:
    """Return the error for a value that can't be a payload."""
    return KernelError(
        f"the payload of ikp.{verb} must be one number (int or float, at most 32 bits), not {got}. "
        f"{remedy}"
    )


def describe_context(ranges: Sequence[OpenRange]) -> str:
    """Return a context in words, for messages about one that a loop or a branch changes."""
    names = ", ".join(repr(r.region) if isinstance(r.region, (str, int)) else "?" for r in ranges)
    return (
        f"an ikp context with {f'the open ranges {names}' if names else 'no open range'} (an "
        "iteration or a branch must close every range it opens; use start_async for one that "
        "crosses)"
    )


def never_closed(region: str, place: str) -> str:
    """Return the message on a range that is opened and never closed."""
    at = f" at {place}" if place else ""
    return (
        f"the range {region} is opened{at} and never closed: nothing records it. Close it with "
        "ikp.end(ctx, name), or ikp.end_async(ctx, token) if ikp.start_async opened it, and keep "
        "what each verb returns."
    )


def no_init(verb: str) -> KernelError:
    """Return the error for a verb before ``init``."""
    return KernelError(
        f"ikp.{verb} comes before ikp.init. Call ikp.init(prof) once at the top of the kernel, "
        f"before any other verb and before any helper that uses one."
    )


def init_twice() -> KernelError:
    """Return the error for a second ``init`` in one kernel."""
    return KernelError(
        "ikp.init is called twice in one kernel. Call it once, at the top of the kernel itself, "
        "not in a helper that is called more than once."
    )


def not_a_buffer(got: str) -> KernelError:
    """Return the error for a ``prof`` that is no buffer of a session."""
    return KernelError(
        "ikp.init takes what prof.buffer(label) returned, or None. Pass that object to the kernel "
        f"as it is; this kernel got {got}."
    )


def signed(word: int) -> int:
    """Return a 32-bit word as the signed integer with the same bits."""
    return word - (1 << 32) if word >= 1 << 31 else word
