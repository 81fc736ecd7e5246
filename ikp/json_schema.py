"""JSON of ``ikp``: the head that each document has, and JSON Schema made from Python's types."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final, Union, get_args, get_origin, get_type_hints, is_typeddict

_PLAIN: Final = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    type(None): {"type": "null"},
}
_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"


def headed(name: str, version: int, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document with its head: ``{"schema": "ikp/NAME", "version": N, ...}``."""
    return {"schema": f"ikp/{name}", "version": version, **content}


def schema_of(name: str, version: int, kind: Any) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a document with its head.

    Args:
        name: of the document, behind ``ikp/``.
        version: of the document.
        kind: a dataclass or a TypedDict. All its fields are required, and no other is allowed.
    """
    found = _of(kind)
    head = {"schema": {"const": f"ikp/{name}"}, "version": {"const": version}}
    properties = {**head, **{k: v for k, v in found["properties"].items() if k not in head}}
    return {
        "$schema": _DRAFT,
        "title": f"ikp/{name}, version {version}",
        **found,
        "properties": properties,
        "required": list(properties),
    }


def _of_class(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    names = [one.name for one in fields(kind)] if is_dataclass(kind) else list(hints)
    return {
        "type": "object",
        "properties": {name: _of(hints[name]) for name in names},
        "required": names,
        "additionalProperties": False,
    }


def _of(kind: Any) -> dict[str, Any]:
    if kind in _PLAIN:
        return dict(_PLAIN[kind])
    if is_typeddict(kind) or (is_dataclass(kind) and isinstance(kind, type)):
        return _of_class(kind)
    origin, given = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return {"anyOf": [_of(each) for each in given]}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": _of(given[1])}
    return _of_array(origin, given)


def _of_array(origin: Any, given: tuple[Any, ...]) -> dict[str, Any]:
    if origin is list or given[-1] is Ellipsis:
        return {"type": "array", "items": _of(given[0])}
    return {
        "type": "array",
        "prefixItems": [_of(each) for each in given],
        "minItems": len(given),
        "maxItems": len(given),
    }
