"""What is recorded by choice, on a GPU: in all three languages, each record accounted for."""

from collections import Counter

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import ikp  # noqa: E402
from tests.gpu import gluon_kernels, kernels  # noqa: E402
from tests.kernels import choices  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:nvidia_cutlass_dsl"),
    pytest.mark.filterwarnings("ignore::UserWarning:cutlass"),
]
RECORDS = {"conditional": choices.conditional_records, "placed": choices.placed_records}


def by_slot(trace: ikp.Trace) -> list[list[tuple[str, float | None]]]:
    found: list[list[tuple[str, float | None]]] = [[] for _ in range(len(trace.slots))]
    events = trace.events
    for slot, region, payload in zip(events.slot, events.region, trace.payload, strict=True):
        value = None if np.isnan(payload) else float(payload)
        found[slot].append((trace.regions[region].name, value))
    return found


@pytest.mark.parametrize("warps", [1, 4])
@pytest.mark.parametrize("n", [0, 1, 7])
@pytest.mark.parametrize("name", RECORDS)
def test_warps_record_what_they_choose(name: str, n: int, warps: int) -> None:
    out = torch.zeros(64, dtype=torch.int32, device="cuda")
    with ikp.profile() as prof:
        getattr(choices, name)[(64,)](out, n, prof.buffer(name), num_warps=warps)
    expected = [RECORDS[name](pid, n) for pid in range(64) for _ in range(warps)]
    assert by_slot(prof.trace) == expected
    assert prof.trace.launches[0].dropped == 0
    assert (prof.trace.slots.role != 0).all() == (name == "conditional")


def test_chosen_warps_and_blocks_record_without_another_compilation() -> None:
    out = torch.empty(300 * 1024, device="cuda")
    wanted = [
        ({"warps": [1, 6]}, range(300), (1, 6)),
        ({"blocks": range(7, 300, 13)}, range(7, 300, 13), range(8)),
        ({"granularity": 4}, range(300), (0, 4)),
        ({"granularity": "block", "blocks": range(5)}, range(5), (0,)),
    ]
    kernels.counted.device_caches.clear()  # other tests compile it, too
    with ikp.profile() as prof:
        for options, _, _ in wanted:
            buffer = prof.buffer("k", size=128 + 4096 * 32, **options)
            kernels.counted[(300,)](out, 3, buffer, PAYLOAD=True, num_warps=8)
    caches = kernels.counted.device_caches[torch.cuda.current_device()][0]
    assert sum("select=1" in str(key) for key in caches) == 1
    trace = prof.trace
    for number, (_, blocks, warps) in enumerate(wanted):
        rows = trace.slots.launch == number
        found = zip(trace.slots.block[rows], trace.slots.warp[rows], strict=True)
        assert list(found) == [(b, w) for b in blocks for w in warps]
        slots = len(blocks) * len(warps)
        capacity = ((4096 * 32 // slots & -16) - 64) // 16
        assert trace.launches[number].capacity == capacity


def test_choosing_in_warp_specialised_kernels() -> None:
    out = torch.zeros(50 * 1024, dtype=torch.int32, device="cuda")
    with ikp.profile() as prof:
        buffer = prof.buffer("ws", warps=[0, 4, 6])
        gluon_kernels.specialised[(50,)](out, 9, buffer, num_warps=4)
    frame = prof.trace.to_pandas()
    assert set(zip(frame.warp, frame.role, strict=True)) == {
        (0, "default"), (4, "two"), (6, "one"),
    }  # fmt: skip
    assert len(frame) == 50 * (9 + 11 + 10)


def test_cute_kernels_choose_too() -> None:
    pytest.importorskip("cutlass")
    from cutlass.cute.runtime import from_dlpack

    from tests.backends.cute import kernels as cute_kernels

    n = 9
    out = torch.zeros(1 << 14, device="cuda")
    with ikp.profile() as prof:
        for options in ({}, {"warps": [0, 1]}):
            tensor = from_dlpack(out)
            cute_kernels.launch(cute_kernels.choices, tensor, n, prof.buffer("k", **options))
    trace = prof.trace
    frame = trace.to_pandas()
    found = Counter(zip(frame.launch, frame.warp, frame.region, strict=True))
    always = {"third": 3, "always": 1}
    mine = {0: {**always, "first warp": n}, 1: {**always, "down": n}, 2: always, 3: always}
    expected = {
        (launch, warp, name): 16 * count
        for launch, warps in ((0, range(4)), (1, range(2)))
        for warp in warps
        for name, count in mine[warp].items()
    }
    assert found == expected
    assert [launch.dropped for launch in trace.launches] == [0, 0]


def test_cute_roles() -> None:
    pytest.importorskip("cutlass")
    from cutlass.cute.runtime import from_dlpack

    from tests.backends.cute import kernels as cute_kernels

    out = torch.zeros(1 << 14, device="cuda")
    with ikp.profile() as prof:
        cute_kernels.Roles(2)(from_dlpack(out), 20, prof.buffer("k"))
    frame = prof.trace.to_pandas()
    assert prof.trace.launches[0].dropped == 0
    counts = frame.groupby(["role", "region"], observed=True).size().to_dict()
    assert counts == {
        ("producer", "produce"): 16 * 4 * 20,
        ("consumer", "consume"): 16 * 4 * 20,
        ("consumer", "step"): 16 * 4 * 40,
    }
