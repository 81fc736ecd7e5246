"""Totals on a GPU: each warp counts what a timeline of the same kernel shows."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import ikp  # noqa: E402
from tests.gpu import gluon_kernels  # noqa: E402
from tests.kernels import choices, control  # noqa: E402

pytestmark = pytest.mark.gpu
BLOCKS = 64

KERNELS = {
    "nested": control.nested,
    "overlapping": control.overlapping,
    "early_return": control.early_return,
    "conditional": choices.conditional,
    "specialised": gluon_kernels.specialised,
}


def recorded(launch: Callable[[object], None], mode: str) -> ikp.Trace:
    with ikp.profile(mode=mode) as prof:
        launch(prof.buffer("k", regions={5: "five"}))
    torch.cuda.synchronize()
    return prof.trace


def named(trace: ikp.Trace, regions: Any) -> list[str]:
    return [trace.regions[region].name for region in regions]


@pytest.mark.parametrize("n", [0, 1, 7])
@pytest.mark.parametrize("name", KERNELS)
def test_warps_count_what_a_timeline_shows(name: str, n: int) -> None:
    out = torch.zeros(BLOCKS, dtype=torch.int32, device="cuda")

    def launch(prof: object) -> None:
        KERNELS[name][(BLOCKS,)](out, n, prof, num_warps=4)

    timeline, summed = (recorded(launch, mode) for mode in ("timeline", "totals"))
    events, totals = timeline.events, summed.totals
    assert totals is not None
    shown = Counter(zip(events.slot, named(timeline, events.region), strict=True))
    regions = zip(totals.slot, named(summed, totals.region), strict=True)
    counted = dict(zip(regions, totals.count, strict=True))
    assert counted == dict(shown)
    assert summed.slots.finished.all()
    assert summed.launches[0].dropped == 0
    lifetime = (summed.slots.end_ns - summed.slots.start_ns)[totals.slot]
    assert (totals.total_ns >= 0).all()
    if name in ("conditional", "specialised"):  # ranges that neither nest nor overlap
        assert (totals.total_ns <= lifetime * 1.01 + 100).all()
