"""The table of the launch header's fields: one more field, and each emitter writes it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ikp.core import abi, launch_fields
from ikp.core.launch_fields import Field, Origin
from tests.extended import check, extend
from tests.machines.ptx_kernel import Kernel
from tests.probes import test_sequences as sass
from tests.ptx.small import TURNS, kernel, marked
from tests.ptx.small import run as run_marked
from tests.targets.test_ptx import run as run_ptx

pytestmark = pytest.mark.any_pins

GRID = (2, 3, 1)


def offsets(stores: list[list[launch_fields.Word]]) -> list[list[int]]:
    return [[word.offset for word in each] for each in stores]


def test_words_are_stored_in_rows_as_wide_as_their_alignment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fields = [Field("a"), Field("b"), Field("c", (Origin.HOST,)), Field("d"), Field("e")]
    fields += [Field("f", (Origin.LAUNCHES,)), Field("g"), Field("h"), Field("i")]
    monkeypatch.setattr(launch_fields, "FIELDS", fields)
    some = launch_fields.written({*"abdeghi", Origin.LAUNCHES})
    assert offsets(launch_fields.rows(some)) == [[0, 4], [12], [16, 20, 24, 28], [32]]
    assert offsets(launch_fields.stores(some)) == [[0, 4], [12], [16, 20, 24, 28], [32]]
    apart = offsets(launch_fields.stores(some, Origin.LAUNCHES))
    assert apart == [[0, 4], [12], [16], [20], [24, 28], [32]]


def test_constants_that_a_kernel_does_not_know_stay_as_they_are() -> None:
    names = [each.name for each in launch_fields.written(["whole", Origin.GRID_ID])]
    assert names == ["magic", "abi", "grid_id", "whole"]


def test_the_verbs_ptx_writes_a_new_field(monkeypatch: pytest.MonkeyPatch) -> None:
    extend(monkeypatch)
    some = Kernel()
    some.init()
    check(run_ptx(some, 4096, GRID, (64, 1, 1)).data)


@pytest.mark.parametrize("block", [(64, 1, 1), (8, 8, 2)])
def test_records_put_into_ptx_write_a_new_field(
    monkeypatch: pytest.MonkeyPatch, block: tuple[int, int, int]
) -> None:
    extend(monkeypatch)
    check(run_marked(marked(kernel(TURNS, block)), 1, GRID, block, 4).data)


@pytest.mark.parametrize("quads", [(8,), (8, 12, 16), (8, 12, 16, 20, 28)])
@pytest.mark.parametrize("near", [False, True])
@pytest.mark.parametrize("margin", [0, 2])
def test_probes_write_a_new_field(
    monkeypatch: pytest.MonkeyPatch, quads: tuple[int, ...], margin: int, *, near: bool
) -> None:
    extend(monkeypatch)
    monkeypatch.setattr(sass, "GROUND", replace(sass.GROUND, quads=quads))
    monkeypatch.setattr(sass, "NEAR_GROUND", replace(sass.NEAR_GROUND, quads=quads))
    monkeypatch.setattr(sass, "MARGIN", margin * near)
    frame = replace(sass.PAIRS if near else sass.FRAME, warps=2)
    slots = 2 * GRID[0] * GRID[1]
    size = abi.LAUNCH_HEADER_BYTES + slots * (abi.DENSE_HEADER_BYTES + 8 * abi.RECORD_BYTES)
    data, slot_bytes, _ = sass.launch(frame, GRID, (64, 1, 1), size, 1)
    check(data)
    header = data[: abi.LAUNCH_HEADER_BYTES].view(abi.LAUNCH_HEADER)[0]
    assert (header["slot_bytes"], header["margin"]) == (slot_bytes, margin * near)
