"""Placed records show the times that unplaced ones show, where a wait stands beside a range."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import ikp  # noqa: E402
from tests.kernels import dependent  # noqa: E402

pytestmark = pytest.mark.gpu

BLOCKS, LAUNCHES, PAGES, STEPS, APART_NS = 64, 20, 1024, 256, 10.0
Launch = Callable[[Any], None]


def looked_up() -> Launch:
    block = dependent.SIZES["looked_up"]["BLOCK"]
    table = torch.randint(PAGES, (STEPS,), dtype=torch.int32, device="cuda")
    keys, out = torch.rand(PAGES * block, device="cuda"), torch.rand(block, device="cuda")
    return lambda buffer: dependent.looked_up[1,](table, keys, out, STEPS, buffer, BLOCK=block)


def hashed(kernel: Any, name: str) -> Launch:
    sizes = dependent.SIZES[name]
    count = BLOCKS * sizes["BLOCK"]
    x = torch.randint(1 << 30, (count,), dtype=torch.int32, device="cuda")
    table = torch.arange(dependent.ENTRIES, dtype=torch.int32, device="cuda")
    out = torch.empty(count, dtype=torch.int32, device="cuda")
    return lambda buffer: kernel[BLOCKS,](x, table, out, buffer, **sizes)


KERNELS: dict[str, Callable[[], Launch]] = {
    "looked_up": looked_up,
    "hash_after": lambda: hashed(dependent.hash_after, "hash_after"),
    "hash_inside": lambda: hashed(dependent.hash_inside, "hash_inside"),
}


def durations(launch: Launch, schedule: bool) -> dict[str, list[float]]:
    """Return the ns of each range of one launch; the launch before it has filled the caches."""
    with ikp.profile(schedule=schedule) as prof:
        launch(prof.buffer("warm up"))
        launch(prof.buffer("measured"))
    frame = prof.trace.to_pandas()
    measured = frame[frame.label == "measured"]
    groups = measured.groupby("region", observed=True)["dur_ns"]
    return {str(name): taken.tolist() for name, taken in groups}


@pytest.mark.parametrize("name", KERNELS)
def test_medians_are_those_of_records_as_written(name: str) -> None:
    launch = KERNELS[name]()
    seen: dict[bool, defaultdict[str, list[float]]] = {
        schedule: defaultdict(list) for schedule in (True, False)
    }
    for _ in range(LAUNCHES):
        for schedule, all_of in seen.items():
            for region, taken in durations(launch, schedule).items():
                all_of[region] += taken
    medians = {s: {r: float(np.median(t)) for r, t in seen[s].items()} for s in seen}
    print(f"{name}: medians in ns, placed {medians[True]}, as written {medians[False]}")
    assert medians[True].keys() == medians[False].keys()
    for region, placed in medians[True].items():
        assert abs(placed - medians[False][region]) <= APART_NS, (region, medians)
