"""What waits that count are for."""

from __future__ import annotations

import pytest

from ikp.sass.dataflow.outstanding import awaited_commits
from tests.sass.texts import sass

pytestmark = pytest.mark.any_pins

COPY, COMMIT = "LDGSTS.E [R2], desc[UR4][R4.64]", "LDGDEPBAR"
PRODUCT, LAST = "HGMMA.64x8x16.F32 R8, gdesc[UR4], R8", "HGMMA.64x8x16.F32 R8, gdesc[UR4], R8, gsb0"


def copies(left: int) -> str:
    return f"DEPBAR.LE SB0, {left:#x}"


def products(left: int) -> str:
    return f"WARPGROUP.DEPBAR.LE gsb0, {left:#x}"


@pytest.mark.parametrize(
    ("lines", "again", "found"),
    [
        ((COPY, COMMIT, COPY, COMMIT, copies(0)), False, {4: (0, 2)}),
        ((COPY, COMMIT, COPY, COMMIT, copies(1), copies(0)), False, {4: (0,), 5: (2,)}),
        ((COPY, COMMIT, copies(1)), False, {}),  # it waits for none of these
        ((copies(1), COPY, COMMIT, COPY, COMMIT), True, {0: (3, 1)}),
        ((copies(2), COPY, COMMIT, copies(2), COPY, COMMIT), True, {0: (4,), 3: (1,)}),
        ((PRODUCT, LAST, products(0)), True, {2: (0, 1)}),
        ((PRODUCT, LAST, products(0), PRODUCT, LAST), True, {2: (3, 4, 0, 1)}),
        ((COPY, products(0)), True, {}),
    ],
)
def test_a_wait_is_for_what_the_one_before_left(
    lines: tuple[str, ...], again: bool, found: dict[int, tuple[int, ...]]
) -> None:
    loop = 0 if again else None
    made = awaited_commits(sass(*lines).instructions, lambda _: loop)
    assert {at: tuple(sorted(each.at for each in of)) for at, of in made.items()} == {
        at: tuple(sorted(of)) for at, of in found.items()
    }


def test_behind_a_loop_it_is_what_the_loop_left_under_way() -> None:
    code = sass(PRODUCT, LAST, products(1), products(0))
    assert awaited_commits(code.instructions, lambda at: 0 if at < 3 else None)[3] == (
        (0, 0),
        (1, 0),
    )


def test_a_pipeline_waits_for_what_was_issued_turns_ago() -> None:
    lines = (copies(2), COPY, COMMIT, COPY, COMMIT, PRODUCT, LAST, products(1))
    made = awaited_commits(sass(*lines).instructions, lambda _: 0)
    assert made[0] == ((1, 2), (3, 2))
    assert made[7] == ((5, 1), (6, 1))
