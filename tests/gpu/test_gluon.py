"""Gluon kernels on a GPU: every warp of every partition records in its own slot."""

from collections import Counter

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import ikp  # noqa: E402
from tests.gpu import gluon_kernels  # noqa: E402

pytestmark = pytest.mark.gpu


def test_every_partition_records() -> None:
    blocks, n = 50, 9
    out = torch.zeros(blocks * 1024, dtype=torch.int32, device="cuda")
    with ikp.profile() as prof:
        gluon_kernels.specialised[(blocks,)](out, n, prof.buffer("ws"), num_warps=4)
    trace = prof.trace
    (launch,) = trace.launches
    assert launch.dropped == 0
    assert trace.slots.finished.all()
    frame = trace.to_pandas()
    found = Counter(zip(frame.block, frame.warp, frame.region, strict=True))
    expected = {
        (block, warp, name): n + more
        for block in range(blocks)
        for warp, name, more in (
            *((w, "default", 0) for w in range(4)),
            *((w, "two", 2) for w in (4, 5)),
            (6, "one", 1),
        )
    }
    assert found == expected
    roles = {4: "two", 5: "two", 6: "one"}
    assert all(frame.role == [roles.get(warp, "default") for warp in frame.warp])
    plain = torch.zeros_like(out)
    gluon_kernels.specialised[(blocks,)](plain, n, None, num_warps=4)
    assert torch.equal(out, plain)
