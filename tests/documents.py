"""JSON of ``ikp``, held against its JSON Schema: no field more, and none less."""

from __future__ import annotations

import json
from typing import Any

from ikp.cli._schema import text_of

_KINDS: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}
_KNOWN = {
    *("$schema", "title", "type", "const", "anyOf", "properties", "required", "items"),
    *("additionalProperties", "prefixItems", "minItems", "maxItems"),
}


def schema(name: str) -> dict[str, Any]:
    """Return a published schema."""
    found: dict[str, Any] = json.loads(text_of(name))
    return found


def check_document(value: Any, name: str) -> None:
    """Hold a document against the schema that its head names."""
    assert list(value)[:2] == ["schema", "version"] and value["schema"] == f"ikp/{name}"
    check(value, schema(name), name)


def check(value: Any, wanted: dict[str, Any], where: str) -> None:
    assert wanted.keys() <= _KNOWN, where
    if "anyOf" in wanted:
        _check_any(value, wanted["anyOf"], where)
    elif "const" in wanted:
        assert value == wanted["const"], where
    else:
        kind = wanted["type"]
        right = isinstance(value, _KINDS[kind]) and (
            kind == "boolean" or not isinstance(value, bool)
        )
        assert right, f"{where}: {value!r} is no {kind}"
        if kind == "object":
            _check_object(value, wanted, where)
        if kind == "array":
            parts = wanted.get("prefixItems") or [wanted["items"]] * len(value)
            assert len(parts) == len(value), where
            for i, (each, part) in enumerate(zip(value, parts, strict=True)):
                check(each, part, f"{where}[{i}]")


def _check_any(value: Any, forms: list[dict[str, Any]], where: str) -> None:
    failures = []
    for each in forms:
        try:
            return check(value, each, where)
        except AssertionError as error:
            failures.append(str(error))
    raise AssertionError(f"{where}: {failures}")


def _check_object(value: dict[str, Any], wanted: dict[str, Any], where: str) -> None:
    if "properties" not in wanted:
        for name, each in value.items():
            check(each, wanted["additionalProperties"], f"{where}.{name}")
        return
    assert wanted["additionalProperties"] is False, where
    assert value.keys() == set(wanted["required"]) == wanted["properties"].keys(), where
    for name, each in value.items():
        check(each, wanted["properties"][name], f"{where}.{name}")
