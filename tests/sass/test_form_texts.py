"""Texts of instructions' forms, kept from one process to the next."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from ikp.sass.disassembly.form_texts import FormText, _facts, _read

pytestmark = pytest.mark.any_pins


def test_kept_texts_are_read_as_they_were() -> None:
    field: Any = "first"
    fields: Any = {0x1A: [field], 0xFFF: []}
    texts = {
        0x9801A: FormText("MOV {}, {}", ((1, False), (0, True)), (field,)),
        0x10FFF: FormText("NOP", (), ()),
    }
    forms: Any = SimpleNamespace(fields=fields)
    assert _read(forms, json.loads(json.dumps(_facts(texts)))) == texts
