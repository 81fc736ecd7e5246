"""A launch header with three more fields: what must follow if one is added to the table."""

from __future__ import annotations

from typing import Any

import pytest

from ikp.core import abi, launch_fields
from ikp.core.launch_fields import Field, Origin

FLAVOUR = 0x1234567
MORE = (
    Field("flavour", value=FLAVOUR),
    Field("height", (Origin.GRID_Y,)),
    Field("width", (Origin.BLOCK_X,)),
)


def extend(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the fields to the table; nothing else is changed but the layout made from it."""
    *fields, reserved = launch_fields.FIELDS
    rest = Field(reserved.name, reserved.origins[len(MORE) :])
    monkeypatch.setattr(launch_fields, "FIELDS", (*fields, *MORE, rest))
    monkeypatch.setattr(abi, "LAUNCH_HEADER", launch_fields.layout())


def check(data: Any) -> None:
    """Compare the new fields of a segment with what its launch was."""
    header = data[: abi.LAUNCH_HEADER_BYTES].view(abi.LAUNCH_HEADER)[0]
    assert header["magic"] == abi.MAGIC and header["launches"] == 1
    found = {each.name: int(header[each.name]) for each in MORE}
    grid, block = header["grid"].tolist(), header["block"].tolist()
    assert found == {"flavour": FLAVOUR, "height": grid[1], "width": block[0]}
    assert not header["reserved"].any()
