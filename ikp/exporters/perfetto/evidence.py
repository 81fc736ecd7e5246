"""What a trace says about itself, as arguments of events: readable in the viewer, and by us.

Python values become Perfetto's debug annotations and back: dicts and lists nest, integers, floats,
booleans and strings keep their type.
"""

from __future__ import annotations

from dataclasses import asdict
from numbers import Integral
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

from ikp.core.trace import ClockFit, Launch, Region, Trace
from ikp.exporters.perfetto.args import described
from ikp.exporters.perfetto.schema import FORMAT
from ikp.exporters.protobuf.split import DamagedError

if TYPE_CHECKING:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import DebugAnnotation, TrackEvent


def of_launch(launch: Launch, provenance: dict[str, str]) -> dict[str, Any]:
    """Return everything known of a launch, and where the trace comes from."""
    clock = {name: value for name, value in asdict(launch.clock).items() if value is not None}
    if launch.clock.residual_max_ns is None and launch.clock.rate != "exact":
        clock["residual"] = "unknown: no spare anchors"
    known = {**asdict(launch), "clock": clock}
    return {**known, "dropped": launch.dropped, "provenance": provenance}


def to_launch(facts: dict[str, Any]) -> Launch:
    """Rebuild a launch from what :func:`of_launch` returned.

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


def of_trace(trace: Trace) -> dict[str, Any]:
    """Return what concerns the file as a whole, and how much it must hold."""
    return {
        "format": FORMAT,
        "launches": len(trace.launches),
        "slots": len(trace.slots),
        "events": len(trace.events),
        "totals": len(trace.totals) or None,
        "regions": [{"id": region.id, "name": region.name} for region in trace.regions],
        "roles": list(trace.roles[1:]),
        "args": described(trace.args),
        "provenance": trace.provenance,
    }


def to_args(facts: dict[str, Any]) -> list[dict[str, str]]:
    """Return names and types of the arguments that :func:`of_trace` told of.

    Raises:
        DamagedError: something else stands there.
    """
    args = facts.get("args", [])
    if not _are(args, dict) or not all(set(one) == {"name", "type"} for one in args):
        raise DamagedError("the table of arguments is incomplete")
    if not _are([text for one in args for text in one.values()], str):
        raise DamagedError("the table of arguments is incomplete")
    return list(args)


def to_roles(facts: dict[str, Any]) -> tuple[str, ...]:
    """Rebuild the names of roles from what :func:`of_trace` returned.

    Raises:
        DamagedError: something else stands there.
    """
    roles = facts.get("roles", [])
    if not _are(roles, str):
        raise DamagedError("the table of roles is damaged")
    return ("", *roles)


def to_provenance(facts: dict[str, Any]) -> dict[str, str]:
    """Return where the trace comes from.

    Raises:
        DamagedError: something else stands there.
    """
    provenance = facts.get("provenance", {})
    if not isinstance(provenance, dict) or not _are(list(provenance.values()), str):
        raise DamagedError("the provenance is damaged")
    return provenance


def to_regions(facts: dict[str, Any]) -> tuple[Region, ...]:
    """Rebuild the regions from what :func:`of_trace` returned.

    Raises:
        DamagedError: something is missing.
    """
    try:
        return tuple(Region(**_known(Region, dict(one))) for one in facts.get("regions", ()))
    except (TypeError, ValueError) as error:
        raise DamagedError("the table of regions is incomplete") from error


def _are(values: Any, kind: type) -> bool:
    return isinstance(values, list) and all(isinstance(one, kind) for one in values)


def size(facts: dict[str, Any], name: str) -> int:
    """Return how many launches, slots, events or totals :func:`of_trace` counted.

    Raises:
        DamagedError: it is missing.
    """
    value = facts.get(name, 0 if name == "totals" else None)
    if not isinstance(value, int) or value < 0:
        raise DamagedError(f"its summary doesn't say how many {name} it holds")
    return value


def _known(kind: type[Launch | ClockFit | Region], facts: dict[str, Any]) -> dict[str, Any]:
    """Return the facts that ``kind`` has a field for, each of that field's type."""
    types = get_type_hints(kind)
    known = {name: value for name, value in facts.items() if name in types}
    for name, value in known.items():
        if not _fits(value, types[name]):
            raise TypeError(f"{name} is {value!r}")
    return known


def _fits(value: Any, kind: Any) -> bool:
    """Tell whether a value is of a field's type: a class, a union, or a tuple."""
    inner = get_args(kind)
    if get_origin(kind) is tuple and not isinstance(value, tuple):
        return False
    if get_origin(kind) is tuple:
        wanted = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        return len(value) == len(wanted) and all(map(_fits, value, wanted))
    if inner:
        return any(_fits(value, one) for one in inner)
    return isinstance(value, (int, float) if kind is float else kind)


def annotate(event: TrackEvent, facts: dict[str, Any]) -> None:
    """Give an event one argument for each fact; None and empty lists and dicts are left out."""
    for name, value in facts.items():
        if value is not None and value not in ({}, [], ()):
            _set(event.debug_annotations.add(name=name), value)


def facts(event: TrackEvent) -> dict[str, Any]:
    """Return the arguments of an event that have names of their own, as Python values."""
    return {one.name: _get(one) for one in event.debug_annotations}


def _set(annotation: DebugAnnotation, value: Any) -> None:
    if isinstance(value, dict):
        for name, item in value.items():
            _set(annotation.dict_entries.add(name=name), item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _set(annotation.array_values.add(), item)
    elif isinstance(value, str):
        annotation.string_value = value
    elif isinstance(value, bool):
        annotation.bool_value = value
    elif isinstance(value, Integral):
        annotation.int_value = int(value)
    else:
        annotation.double_value = float(value)


def _get(annotation: DebugAnnotation) -> Any:
    field = annotation.WhichOneof("value")
    if field is not None:
        return getattr(annotation, field)
    if annotation.dict_entries:
        return {one.name: _get(one) for one in annotation.dict_entries}
    return [_get(one) for one in annotation.array_values]
