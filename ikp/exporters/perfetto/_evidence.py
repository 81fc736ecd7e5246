"""What a trace says about itself, read back from the arguments of events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from ikp.core.args import ArgColumn
from ikp.core.trace import ClockFit, Launch, Region
from ikp.exporters.perfetto._schema import Facts
from ikp.exporters.protobuf.split import DamagedError

if TYPE_CHECKING:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import DebugAnnotation, TrackEvent


def to_launch(facts: Facts) -> Launch:
    """Rebuild a launch from what its slice tells of it.

    Raises:
        DamagedError: something is missing.
    """
    facts = {"notes": (), **facts}
    try:
        for name in ("grid", "block", "notes"):
            facts[name] = tuple(facts[name]) if isinstance(facts[name], list) else facts[name]
        facts["clock"] = ClockFit(**_known(ClockFit, facts["clock"]))
        return Launch(**_known(Launch, facts))
    except (KeyError, TypeError, AttributeError) as error:
        raise DamagedError("the evidence of a launch is incomplete") from error


def to_args(facts: Facts) -> list[dict[str, str]]:
    """Return names and types of the trace's own arguments, from what the summary tells.

    Raises:
        DamagedError: something else stands there.
    """
    args = facts.get("args", [])
    if not _are(args, dict) or not all(set(one) == {"name", "type"} for one in args):
        raise DamagedError("the table of arguments is incomplete")
    if not _are([text for one in args for text in one.values()], str):
        raise DamagedError("the table of arguments is incomplete")
    return list(args)


def to_roles(facts: Facts) -> tuple[str, ...]:
    """Return the names of roles.

    Raises:
        DamagedError: something else stands there.
    """
    roles = facts.get("roles", [])
    if not _are(roles, str):
        raise DamagedError("the table of roles is damaged")
    return ("", *roles)


def to_provenance(facts: Facts) -> dict[str, str]:
    """Return where the trace comes from.

    Raises:
        DamagedError: something else stands there.
    """
    provenance = facts.get("provenance", {})
    if not isinstance(provenance, dict) or not _are(list(provenance.values()), str):
        raise DamagedError("the provenance is damaged")
    return provenance


def to_regions(facts: Facts) -> tuple[Region, ...]:
    """Return the regions.

    Raises:
        DamagedError: something is missing.
    """
    try:
        return tuple(Region(**_known(Region, dict(one))) for one in facts.get("regions", ()))
    except (TypeError, ValueError) as error:
        raise DamagedError("the table of regions is incomplete") from error


def _are(values: object, kind: type) -> bool:
    return isinstance(values, list) and all(isinstance(one, kind) for one in values)


def size(facts: Facts, name: str, default: int | None = None) -> int:
    """Return how many launches, slots, events, ... there must be.

    Raises:
        DamagedError: it is missing.
    """
    value = facts.get(name, default)
    if not isinstance(value, int) or value < 0:
        raise DamagedError(f"its summary doesn't say how many {name} it holds")
    return value


def _known(kind: type[Launch | ClockFit | Region], facts: Facts) -> Facts:
    """Return the facts that ``kind`` has a field for, each of that field's type."""
    types = get_type_hints(kind)
    known = {name: value for name, value in facts.items() if name in types}
    for name, value in known.items():
        if not _fits(value, types[name]):
            raise TypeError(f"{name} is {value!r}")
    return known


def _fits(value: object, kind: Any) -> bool:
    """Tell whether a value is of a field's type: a class, a union, or a tuple."""
    inner = get_args(kind)
    if get_origin(kind) is tuple:
        if not isinstance(value, tuple):
            return False
        wanted = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        return len(value) == len(wanted) and all(map(_fits, value, wanted))
    if inner:
        return any(_fits(value, one) for one in inner)
    return isinstance(value, (int, float) if kind is float else kind)


def facts(event: TrackEvent) -> Facts:
    """Return the arguments of an event that have names of their own, as Python values."""
    return {one.name: _get(one) for one in event.debug_annotations}


def _get(annotation: DebugAnnotation) -> Any:
    field = annotation.WhichOneof("value")
    if field is not None:
        return getattr(annotation, field)
    if annotation.dict_entries:
        return {one.name: _get(one) for one in annotation.dict_entries}
    return [_get(one) for one in annotation.array_values]


def rebuilt(
    told: list[dict[str, str]],
    found: list[tuple[NDArray[Any], NDArray[Any]]],
    texts: dict[int, str],
) -> dict[str, ArgColumn]:
    """Return arguments from what :func:`to_args` returned, and the words of each event's.

    Raises:
        DamagedError: they don't fit together.
    """
    args = {}
    for one, (words, given) in zip(told, found, strict=True):
        kind = one.get("type")
        if kind == "str":
            values = np.array([texts.get(word, "") for word in words.tolist()], np.str_)
        elif kind == "float":
            values = words.view(np.float64)
        elif kind in {"int", "bool"}:
            values = words.view(np.int64).astype(np.int64 if kind == "int" else np.bool_)
        else:
            raise DamagedError(f"an argument has the type {kind!r}")
        args[one["name"]] = ArgColumn(values, given.astype(np.bool_))
    return args
