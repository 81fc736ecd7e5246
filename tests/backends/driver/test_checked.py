"""Launches through the CUDA driver, compared with the plain kernel's on the same memory."""

import json
from pathlib import Path

import pytest

from tests.backends.driver.driving import drive
from tests.machine.assembled import cubin

pytestmark = [pytest.mark.any_pins, pytest.mark.compiled]

_COUNT = 40
"""So many values are held at once that records need no more registers than there are."""
PTX = f"""
.global .align 4 .b32 counter;
.visible .entry adds(.param .align 8 .b8 s[32], .param .u32 n, .param .u64 p)
{{
 .reg .u64 a, b; .reg .u32 t, v<{_COUNT}>;
 ld.param.u64 a, [p]; ld.param.u64 b, [s+8];
 {" ".join(f"ld.volatile.global.u32 v{n}, [b+{4 * n}];" for n in range(_COUNT))}
 {" ".join(f"st.volatile.global.u32 [a+{4 * n}], v{n};" for n in range(_COUNT))}
 mov.u64 a, counter; atom.global.add.u32 t, [a], 1; ret;
}}
"""
EQUAL = (
    "4 buffers, 5,636 bytes, equal bit for bit; what other memory leads to was not compared"
)
PLAIN, RECORDED = "launch 4 12x64 on 0", "copy 10112 24 to stream 0"


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """What the program printed."""
    return json.loads(
        drive(tmp_path_factory.mktemp("driver"), "checking", cubin(PTX, "sm_90a"), "adds")
    )


def test_x(said: dict) -> None:
    print(json.dumps(said, indent=1))
    assert 0
