"""GPUs' times on the host's clock: launches lie where the host saw them, within their bound."""

from __future__ import annotations

import time

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import ikp  # noqa: E402
from ikp.core.warps import launch_bounds  # noqa: E402
from ikp.session.clocks import clock_of  # noqa: E402
from tests.gpu import kernels  # noqa: E402

pytestmark = pytest.mark.gpu
BOUND_NS = 5_000


def seen(device: str, count: int, pause_s: float = 0.0) -> tuple[ikp.Trace, list[tuple[int, int]]]:
    """Return the trace of some launches, and when the host launched each and saw its end."""
    out, times = torch.empty(3 * 1024, device=device), []
    with torch.cuda.device(device):
        kernels.counted[(3,)](out, 5, None, PAYLOAD=True, num_warps=2)
        torch.cuda.synchronize()
        with ikp.profile() as prof:
            for number in range(count):
                buffer = prof.buffer(f"k{number}")
                before = time.time_ns()
                kernels.counted[(3,)](out, 5, buffer, PAYLOAD=True, num_warps=2)
                torch.cuda.synchronize()
                times.append((before, time.time_ns()))
                time.sleep(pause_s)
    return prof.trace, times


@pytest.mark.parametrize("pause_s", [0.0, 0.05])
@pytest.mark.parametrize("number", range(min(2, torch.cuda.device_count())))
def test_a_launch_lies_where_the_host_saw_it(number: int, pause_s: float) -> None:
    trace, times = seen(f"cuda:{number}", 20, pause_s)
    first, last = launch_bounds(trace)
    for launch, begin, end, (before, after) in zip(trace.launches, first, last, times, strict=True):
        bound = launch.clock.unix_bound_ns
        assert bound is not None and bound < BOUND_NS
        assert before - bound <= begin <= end <= after + bound
    print([round(each.clock.unix_bound_ns or -1) for each in trace.launches])
    assert "Unix time, at most" in str(trace.stats())


def test_handshakes_go_on_while_a_graph_is_captured() -> None:
    clock = clock_of(torch.device("cuda", 0))
    assert clock is not None
    x, graph = torch.zeros(1 << 10, device="cuda"), torch.cuda.CUDAGraph()
    before = len(clock.handshakes)
    with torch.cuda.graph(graph, capture_error_mode="global"):
        for _ in range(5):
            x.add_(1)
            clock.meet()
    graph.replay()
    torch.cuda.synchronize()
    assert x[0].item() == 5
    # A GPU full of other processes' kernels may refuse some: a handshake waits 50 ms at most.
    assert before < len(clock.handshakes) <= before + 5
