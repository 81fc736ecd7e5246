"""The JSON Schema of a verdict, generated from its dataclasses."""

from __future__ import annotations

import types
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from ikp.analysis.explain.verdict import SCHEMA, Verdict

_PLAIN: Final = {
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    type(None): {"type": "null"},
}


def json_schema() -> dict[str, Any]:
    """Return the schema (draft 2020-12)."""
    found = _of_class(Verdict)
    found["properties"]["schema"] = {"const": SCHEMA}
    found["required"] = ["schema", "launch", "findings", "unknown", "left_out"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"A verdict of ikp explain, version {SCHEMA}",
        **found,
    }


def _of_class(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    required = [
        one.name
        for one in fields(kind)
        if one.default is MISSING and one.default_factory is MISSING
    ]
    return {
        "type": "object",
        "properties": {one.name: _of(hints[one.name]) for one in fields(kind)},
        "required": required,
    }


def _of(kind: Any) -> dict[str, Any]:
    if kind in _PLAIN:
        return dict(_PLAIN[kind])
    if is_dataclass(kind) and isinstance(kind, type):
        return _of_class(kind)
    origin, given = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return {"anyOf": [_of(each) for each in given]}
    if origin is dict:
        return {"type": "object", "additionalProperties": _of(given[1])}
    if given[-1] is Ellipsis:
        return {"type": "array", "items": _of(given[0])}
    return {
        "type": "array",
        "prefixItems": [_of(each) for each in given],
        "minItems": len(given),
        "maxItems": len(given),
    }
