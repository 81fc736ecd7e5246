"""Which regions are left out first where a kernel in PTX has no room for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from ikp.core.abi import Language
from ikp.probes.points.probe_points import Level, ProbeRegion
from ikp.ptx.body import Body
from ikp.ptx.marking import Footprint, Thinned, Thinning
from ikp.ptx.record_insertion import PtxInsertion
from ikp.ptx.record_text import BlockShape
from ikp.ptx.spots import Spots
from ikp.sass.assembly.chips import HOPPER
from tests.ptx.small import kernel

pytestmark = pytest.mark.any_pins

WAITS = """\
bar.sync 0;
cp.async.wait_all;
ld.global.b32 %r3, [%rd1];
bar.sync 0;
"""
FOOTPRINT = Footprint(registers=32, stack=0, warps=1, shared=0, chip=HOPPER)


@dataclass(frozen=True)
class Room(Thinning):
    """Has room for so many regions, whichever they are."""

    room: int = 0

    def _tried(self, places: Sequence[ProbeRegion]) -> tuple[Thinned | None, str]:
        if len(places) > self.room:
            return None, "a register spills"
        return Thinned("", b"", tuple(places), self.plain), ""


def kept(room: int) -> tuple[list[str], str]:
    body = Body.read(kernel(WAITS), "k")
    found = Room(
        PtxInsertion(body, BlockShape((32, 1, 1)), Language.TRITON), FOOTPRINT, lambda _: b"", room
    ).most(Spots(body).at(Level.OPS))
    return [place.kind for place in found.places], found.message


def test_barriers_go_before_other_waits_and_operations_before_both() -> None:
    everything, told = kept(9)
    assert (sorted(everything), told) == (["barrier", "barrier", "copy wait", "kernel", "load"], "")
    assert kept(4)[0] == ["kernel", "copy wait", "barrier", "barrier"]
    some, told = kept(2)
    assert some == ["kernel", "copy wait"]
    assert told.startswith("not recorded, since with more records a register spills: barrier")
