"""What a trace without columns says about itself, read back from the arguments of events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ikp.core.args import ArgColumn
from ikp.core.trace import Region
from ikp.exporters.columns.small_tables import known
from ikp.exporters.perfetto._schema import Facts
from ikp.exporters.protobuf.damage import DamagedError

if TYPE_CHECKING:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import DebugAnnotation, TrackEvent


def to_roles(facts: Facts) -> tuple[str, ...]:
    """Return the names of roles.

    Raises:
        DamagedError: something else stands there.
    """
    roles = facts.get("roles", [])
    if not _are(roles, str):
        raise DamagedError("the table of roles is damaged")
    return ("", *roles)


def to_regions(facts: Facts) -> tuple[Region, ...]:
    """Return the regions.

    Raises:
        DamagedError: something is missing.
    """
    try:
        return tuple(Region(**known(Region, dict(one))) for one in facts.get("regions", ()))
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
    """Return arguments from what is told of them, and the words of each event's."""
    args = {}
    for one, (words, given) in zip(told, found, strict=True):
        kind = one["type"]
        if kind == "str":
            values = np.array([texts.get(word, "") for word in words.tolist()], np.object_)
        elif kind == "float":
            values = words.view(np.float64)
        else:
            values = words.view(np.int64).astype(np.int64 if kind == "int" else np.bool_)
        args[one["name"]] = ArgColumn(values, given.astype(np.bool_))
    return args
