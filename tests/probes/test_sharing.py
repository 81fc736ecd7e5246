"""Records of one block that find out once who stores them, and where."""

from __future__ import annotations

from functools import cache

import pytest

from ikp.probes.made_patch import Patch
from ikp.probes.patch import patch
from ikp.probes.placement import record_batches
from tests.probes.test_loop_exits import HEAD
from tests.sass.assembled import cubin
from tests.sass.hazards import hazards
from tests.sass.readback import code_of
from tests.sass.whole import run

pytestmark = pytest.mark.any_pins

TURNS = 5
STORES = f""".file 1 "k.py"
{HEAD}
L:
 .pragma "nounroll";
 .loc 1 5 0
 st.volatile.global.u32 [a], i;
 .loc 1 6 0
 add.u32 j, i, 3;
 .loc 1 7 0
 st.volatile.global.u32 [a+4], j;
 .loc 1 8 0
 add.u32 j, i, 7;
 .loc 1 9 0
 st.volatile.global.u32 [a+8], j;
 .loc 1 10 0
 add.u32 i, i, 1; setp.lt.u32 P, i, rq; @P bra L;
 ret;
}}
"""


@cache
def plain() -> bytes:
    return cubin(STORES, "sm_90a")


@cache
def made(*, near: bool) -> Patch:
    """Return it with addresses in uniform registers or, as one that heeds choices, in others.

    In the former, records are made as where few could be stored at once.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(record_batches, "MOST_GATHERED", 0)
        return patch(plain(), "k", detail="ops", select=not near)


def ran(near: bool, records: int | None = None) -> tuple[list[list[str]], int]:
    """Return what each of two warps recorded, and how many records were dropped."""
    told: list[int] = []
    ranges, _ = run(made(near=near), "k", 2, (0, 0, 0, TURNS), records=records, dropped=told)
    return ranges, told[0]


@pytest.mark.parametrize("near", [True, False])
def test_one_election_stands_for_several_records(near: bool) -> None:
    assert made(near=near).cell_counts_records == near
    code = code_of(made(near=near).cubin, "k")
    elected = [each for each in code.flow.code.instructions if each.op == "ELECT"]
    stores = [
        each for each in code.flow.code.instructions if each.opcode == "STG.E.128" and each.guard
    ]
    assert made(near=near).margin >= 2
    assert len(stores) >= len(elected) + 2
    assert hazards(code) == hazards(code_of(plain(), "k"))


@pytest.mark.parametrize("near", [True, False])
def test_a_full_slot_keeps_the_first_records_and_counts_the_rest(near: bool) -> None:
    """However many fit, of a batch too: no warp writes into another's."""
    whole, dropped = ran(near)
    assert not dropped
    every = [[name for name in each if name != "k"] for each in whole]
    assert [len(each) for each in every] == [1 + TURNS * 4] * 2
    margin = made(near=near).margin
    for records in range(1, 1 + TURNS * 4):
        kept, dropped = ran(near, records + margin)
        found = [[name for name in each if name != "k"] for each in kept]
        assert found == [each[:records] for each in every]
        assert dropped == sum(map(len, every)) - 2 * records
