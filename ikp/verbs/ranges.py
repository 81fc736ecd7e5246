"""``ikp.init`` and ``ikp.range``, and every verb's lookup of its language, region and place.

The backends of all languages that the program has imported are asked in turn whether their code
calls a verb: ``import ikp`` serves a kernel of any language, so a verb has to find its own by how
it is called. Each backend knows the sign of its language (docs/decisions/0008, 0026). No package
that the program has not imported is loaded for that.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from types import TracebackType
from typing import Any, TypeVar

from ikp import registry
from ikp.core.segment import Spec
from ikp.errors import KernelError
from ikp.verbs.dsl import NO_PAYLOAD, Dsl, DslValue, OpenRange, Place, Region, Unrecorded
from ikp.verbs.off import Off


def tracing(semantic: Any, verb: str) -> Dsl:
    """Return the adapter of the language whose code calls a verb.

    Args:
        semantic: the verb's ``_semantic``, which Triton and Gluon pass beside its arguments.
        verb: its name.

    Raises:
        KernelError: no language's code calls it.
    """
    guess: Dsl | None = None
    for backend in registry.imported():
        # A backend without a language, as the one at the CUDA driver, has no code with verbs.
        found: Dsl | None = backend.adapter(semantic, verb) if backend.languages else None
        if found is not None and not isinstance(found, Off):
            return found
        guess = guess or found  # an Off: the code can't be recorded, or is of another language
    if guess is None:
        raise _outside(verb)
    return guess


def _outside(verb: str) -> KernelError:
    *most, last = dict.fromkeys(each.mark for each in registry.languages() if each.mark)
    broken = "".join(f" Not loaded: {text}" for text in registry.broken())
    return KernelError(
        f"ikp.{verb} is called outside a kernel. Call it in a function marked {', '.join(most)} or "
        f"{last}, while that kernel is launched.{broken}"
    )


def find_region(dsl: Dsl, value: object, verb: str) -> Region:
    """Return the region that a verb's argument names.

    Raises:
        KernelError: it names none; or its number is known only at run time, and totals are kept.
    """
    region = dsl.region(value, verb)
    if region.runtime is not None and dsl.recording(verb) and dsl.spec().totals:
        raise KernelError(
            f"ikp.{verb} gives a region's number that is known only at run time, but the session "
            "keeps totals (mode='totals'): those are summed up in registers, which code names when "
            "it is compiled. Use a name or a constant, or record a timeline."
        )
    return region


def find_place(dsl: Dsl, where: object, index: object, verb: str) -> Place | None:
    """Return a verb's condition and index, as they were given; None if it never records.

    Raises:
        KernelError: an argument can't be used, the slot is a ring, or totals are kept.
    """
    if where is None and index is None:
        return Place()
    where, index = dsl.plain(where), dsl.plain(index)
    _check_place(dsl, where, index, verb)
    if isinstance(where, (bool, int)):
        return Place(None, index) if where else None
    return Place(where, index)


def _check_place(dsl: Dsl, where: object, index: object, verb: str) -> None:
    """Refuse a condition or an index that a record can't have."""
    if where is not None and not dsl.is_condition(where):
        raise KernelError(
            f"the where of ikp.{verb} must be one boolean or integer, not {where!r}. Reduce a "
            "block to a scalar first."
        )
    if index is not None and not dsl.is_index(index):
        raise KernelError(
            f"the index of ikp.{verb} must be one integer of at most 32 bits, 0 or more, not "
            f"{index!r}."
        )
    if index is not None and dsl.recording(verb):
        _check_takes_index(dsl.spec(), verb)


def _check_takes_index(spec: Spec, verb: str) -> None:
    if spec.totals:
        raise KernelError(
            f"ikp.{verb} gives an index, but the session keeps totals (mode='totals'): there is no "
            "record to put anywhere. Leave the index out, or record a timeline."
        )
    if spec.overflow.wraps:
        raise KernelError(
            f"ikp.{verb} gives an index, but the session keeps each warp's latest records in a "
            "ring, where an index means nothing. Use overflow='stop', or leave the index out."
        )


def stored_at(dsl: Dsl, place: Place | None, opened: DslValue = None) -> Place:
    """Return a place as 32-bit values; a token's ``opened`` is one more condition.

    A range that is never stored has the condition 0: so its end is in the code, as its start is.
    """
    if place is None:
        return Place(0)
    where = None if place.where is None else dsl.condition(place.where)
    if opened is not None:
        where = opened if where is None else dsl.both(where, opened)
    return Place(where, None if place.index is None else dsl.index(place.index))


def open_ranges(dsl: Dsl, ctx: Any, verb: str) -> tuple[OpenRange, ...]:
    """Return the open ranges of the context that a verb is given.

    Raises:
        KernelError: it is no context.
    """
    ranges = dsl.ranges(ctx)
    if ranges is None or any(each.opened is not None for each in ranges):
        raise KernelError(
            f"the first argument of ikp.{verb} is the context that ikp.init returned. For one line "
            f"with no context, use: with ikp.range(name): ..."
        )
    return ranges


def open_range(dsl: Dsl, region: Any, payload: Any, verb: str, *, never: bool = False) -> OpenRange:
    """Return a range that begins at this call; ``never`` says that it is not to be recorded.

    Raises:
        KernelError: an argument can't be used.
    """
    find_region(dsl, region, verb)  # checks arguments where the range opens, not where it closes
    given = NO_PAYLOAD if payload is None else dsl.payload(payload, verb)
    if dsl.recording(verb) and not never:
        return dsl.open(region, payload, given)
    return dsl.unrecorded(region, payload, given)


def make_token(dsl: Dsl, ctx: Any, region: Any, payload: Any, verb: str) -> Any:
    """Return the token of a range that begins at this call, or of none for ``no_token``.

    Raises:
        KernelError: an argument can't be used.
    """
    open_ranges(dsl, ctx, verb)
    find_region(dsl, region, verb)
    given = dsl.payload(payload, verb)
    if dsl.recording(verb):
        opened = dsl.token(region, payload, given, opened=verb == "start_async")
    else:
        opened = replace(dsl.unrecorded(region, payload, given), opened=Unrecorded("token"))
    return dsl.context((opened,))


def close_range(dsl: Dsl, opened: OpenRange, payload: Any, place: Place | None, verb: str) -> None:
    """Record a range that ends at this call, at the place that ``find_place`` returned.

    Raises:
        KernelError: an argument can't be used.
    """
    replaced = dsl.plain(payload) is not None
    given = dsl.payload(payload, verb) if replaced else None
    if not dsl.recording(verb):
        return
    if given is None:
        begun = opened.payload
        given = NO_PAYLOAD if begun is None else dsl.payload(begun, verb)
    at = stored_at(dsl, place, opened.opened)
    dsl.store_range(dsl.region(opened.region, verb), opened.start, given, at)


def opened_region(dsl: Dsl, opened: OpenRange, verb: str) -> Region:
    """Return the region of an open range, as far as it is known at compile time."""
    if isinstance(opened.region, Unrecorded):
        return Region(None)
    return dsl.region(opened.region, verb)


def same_region(opened: Region, closed: Region) -> bool:
    """Return whether a range may be closed with one region that was opened with another."""
    known = opened.number is not None and closed.number is not None
    return opened.number == closed.number if known else True  # the rest is known only at run time


def shown(dsl: Dsl, region: Any) -> str:
    """Return a region as messages show it."""
    return repr(dsl.plain(region))


_Verb = TypeVar("_Verb", bound=Callable[..., Any])


def builtin(verb: _Verb) -> _Verb:
    """Mark a verb as one that Triton calls while it compiles."""
    verb.__triton_builtin__ = True  # type: ignore[attr-defined]
    return verb


@builtin
def init(prof: Any, _semantic: Any = None) -> Any:
    """Start recording in this kernel: call once, at its top.

    Args:
        prof: the result of ``prof.buffer(label)``; None compiles every verb to nothing.

    Returns:
        The context that the functional verbs take and return.

    Raises:
        KernelError: called twice, outside a kernel, or with something else.
    """
    dsl = tracing(_semantic, "init")
    dsl.init(prof)
    return dsl.context(())


class range:
    """A range as a context manager: ``with ikp.range("load", k): ...``.

    Args:
        region: name known at compile time, or a scalar integer named on the host.
        payload: one number of at most 32 bits, read when the range opens.
        where: record only where this scalar is true, such as ``k % 8 == 0``; left out, always.
        index: where in the warp's slot to put the record, as an integer; left out, after the last.
            Two records with one index overwrite each other.

    Raises:
        KernelError: no ``init`` came before, or an argument can't be used.
    """

    __triton_builtin__ = True

    def __init__(
        self,
        region: Any,
        payload: Any = None,
        *,
        where: Any = None,
        index: Any = None,
        _semantic: Any = None,
    ) -> None:
        self._dsl = tracing(_semantic, "range")
        self._region, self._payload, self._where, self._index = region, payload, where, index
        self._opened: OpenRange | None = None
        self._place: Place | None = None

    def __enter__(self) -> None:
        # A range that is never recorded is not opened either, but its arguments are checked.
        place = self._place = find_place(self._dsl, self._where, self._index, "range")
        opened = open_range(self._dsl, self._region, self._payload, "range", never=place is None)
        self._dsl.check_source("range", ())
        self._opened = None if place is None else opened

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._opened is None:
            return
        # The kernel's own error matters more than one from closing its range.
        with suppress(KernelError) if error is not None else nullcontext():
            close_range(self._dsl, self._opened, None, self._place, "range")
