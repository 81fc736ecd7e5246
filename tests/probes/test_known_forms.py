"""What is put into a kernel is read as the kernel is: without a start of the disassembler."""

from __future__ import annotations

from typing import Any

import pytest

from ikp.core.segment import Selection
from ikp.probes.patch import DETAILS, patch
from ikp.sass.cubins.cubin import Cubin
from ikp.sass.dataflow.reading import composed
from tests.sass.compiled import code

pytestmark = pytest.mark.any_pins

OPTIONS: list[dict[str, Any]] = [
    {},
    {"argue": True, "flat": True, "sure": True},
    {"argue": True, "sure": True, "blocks": Selection(block_step=7, others=True)},
    {"select": True},
]


@pytest.mark.parametrize("detail", [*DETAILS])
@pytest.mark.parametrize("name", ["matmul", "attention"])
def test_the_code_of_probes_is_of_known_forms(name: str, detail: str) -> None:
    """Else the end of each session starts the disassembler for each kernel that it recorded."""
    cubin = code(name).compiled.asm["cubin"]
    for options in OPTIONS:
        made = patch(cubin, name, detail=detail, **options)
        assert composed(Cubin.read(made.cubin), name) is not None, options
