"""Marked kernels in Triton's CPU interpreter, from the launch to the trace."""

from __future__ import annotations

import inspect
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import ikp
from ikp.backends.triton.unedited import _launching as launching
from ikp.session.memory import MOST_BYTES
from tests.kernels import control, unedited
from tests.trace_processor import check_trace

pytestmark = pytest.mark.interp

GRID = (5,)  # one more than there are tiles


def matmul(kernel: Any, **options: Any) -> float:
    """Launch it and return how far off its result is."""
    import torch

    torch.manual_seed(0)
    a, b = torch.randn(32, 40).half(), torch.randn(40, 32).half()
    c = torch.zeros(32, 32).half()
    kernel[GRID](a, b, c, 32, 32, 40, BM=16, BN=16, BK=16, **options)
    scale = 2 if options.get("TWICE") else 1
    return float((c.float() - scale * (a.float() @ b.float())).abs().max())


def counts(trace: ikp.Trace) -> Counter[str]:
    """Return how often each range was recorded, without files and lines."""
    names = (trace.regions[region].name for region in trace.events.region)
    return Counter(name.partition(" @")[0] for name in names)


@pytest.mark.parametrize(
    ("detail", "expected"),
    [
        ("kernel", {"matmul": 5}),
        (
            "loops",
            {"matmul": 5, "for k": 4, "for k iteration": 12, "for i": 4, "for i iteration": 4},
        ),
        (
            "ops",
            {
                "matmul": 5,
                "for k": 4,
                "for k iteration": 12,
                "tl.load": 24,
                "tl.dot": 12,
                "tl.store": 4,
                "doubled": 4,
                "for i": 4,
                "for i iteration": 4,
            },
        ),
    ],
)
def test_everything_marked_is_recorded_and_the_result_is_right(
    detail: str, expected: dict[str, int], tmp_path: Path
) -> None:
    path = tmp_path / "out.pftrace"
    with ikp.profile(path) as prof:
        assert matmul(ikp.instrument(unedited.matmul, detail=detail), TWICE=True) < 0.1
    assert counts(prof.trace) == expected
    assert ikp.load(path).provenance["marks in matmul"] == f"level=source detail={detail}"


@pytest.mark.tp
def test_the_trace_loads_in_the_trace_processor(tmp_path: Path) -> None:
    path = tmp_path / "out.pftrace"
    with ikp.profile(path) as prof:
        matmul(ikp.instrument(unedited.matmul, detail="ops"))
    check_trace(path, prof.trace)


def test_iterations_carry_the_loops_variable() -> None:
    with ikp.profile() as prof:
        matmul(ikp.instrument(unedited.matmul))
    frame = prof.trace.to_pandas()
    rows = frame[frame.region.str.contains("iteration") & (frame.block == 0)]
    assert rows.payload.tolist() == [0, 1, 2]


def test_chosen_lines() -> None:
    source, first = inspect.getsourcelines(unedited.matmul.fn)
    (load,) = [first + i for i, line in enumerate(source) if "a = tl.load" in line]
    with ikp.profile() as prof:
        matmul(ikp.instrument(unedited.matmul, lines=f"unedited.py:{load}-{load + 2}"))
    assert counts(prof.trace)[f"unedited.py:{load}-{load + 2}"] == 12


def test_without_a_session_the_kernel_runs_as_it_is() -> None:
    assert matmul(ikp.instrument(unedited.matmul)) < 0.1
    with ikp.profile(enabled=False) as prof:
        assert matmul(ikp.instrument(unedited.matmul)) < 0.1
    assert len(prof.trace.events) == 0


def test_the_kernel_itself_stays_plain() -> None:
    ikp.instrument(unedited.matmul, detail="ops")
    with ikp.profile() as prof:
        assert matmul(unedited.matmul) < 0.1
    assert len(prof.trace.launches) == 0


def test_the_innermost_session_records_and_a_given_one_goes_before() -> None:
    marked = ikp.instrument(unedited.matmul)
    with ikp.profile() as outer, ikp.profile() as inner:
        matmul(marked)
        matmul(ikp.instrument(unedited.matmul, prof=outer))
    assert [len(session.trace.launches) for session in (outer, inner)] == [1, 1]


def test_options_of_the_buffer_go_before_what_the_launch_tells() -> None:
    marked = ikp.instrument(unedited.matmul, grid=(1 << 15,), num_warps=2)
    with ikp.profile() as prof:
        matmul(marked)
    (launch,) = prof.trace.launches
    assert launch.segment_bytes == MOST_BYTES


def test_chosen_launches() -> None:
    marked = ikp.instrument(unedited.matmul, launches="1:3")
    with ikp.profile() as prof:
        for _ in range(4):
            assert matmul(marked) < 0.1
    assert len(prof.trace.launches) == 2


@pytest.mark.parametrize("text", ["", "x", "3:2", "2:2", "-1", "1:2:3"])
def test_launches_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ikp.UsageError, match=r"names no launches\. Launches of a kernel count"):
        ikp.instrument(unedited.matmul, launches=text or "a")


def test_whiles_branches_and_helpers() -> None:
    import torch

    x, out = torch.ones(4 * 64), torch.zeros(1)
    with ikp.profile() as prof:
        ikp.instrument(unedited.several, detail="ops")[(1,)](x, out, 4, BLOCK=64)
    assert out.item() == 64 * (2 * 4 + 3) + 1
    found = counts(prof.trace)
    assert found["for i iteration"] == 4
    assert found["while rounds < 3 iteration"] == 3
    assert found["tl.load"] == 8
    assert (found["plus_one"], found["tl.debug_barrier"]) == (1, 1)


def test_heuristics() -> None:
    import torch

    x = torch.ones(64)
    with ikp.profile() as prof:
        ikp.instrument(unedited.scaled, detail="ops")[(2,)](x, 64, BLOCK=32)
    assert x.tolist() == [5.0] * 64
    assert counts(prof.trace) == {
        "scaled": 2,
        "for i": 2,
        "for i iteration": 4,
        "tl.load": 4,
        "tl.store": 4,
    }


def test_an_autotuner_tries_plain_kernels_and_then_launches_the_marked_one() -> None:
    import torch

    unedited.TRIALS.clear()
    x = torch.ones(64)
    marked = ikp.instrument(unedited.autotuned)
    with ikp.profile() as prof:
        marked[lambda meta: (64 // meta["BLOCK"],)](x, 64)
    assert len(unedited.TRIALS) == 2
    assert x.tolist() == [5.0] * 64
    assert len(prof.trace.launches) == 1


def test_a_hook_before_launches_sees_the_launch_that_the_user_wrote() -> None:
    seen: list[tuple[int, set[str]]] = []
    hook = lambda *args, **kwargs: seen.append((len(args), set(kwargs)))  # noqa: E731
    unedited.matmul.add_pre_run_hook(hook)
    try:
        matmul(unedited.matmul)
        with ikp.profile():
            matmul(ikp.instrument(unedited.matmul))
    finally:
        unedited.matmul.pre_run_hooks.remove(hook)
    assert len(seen) == 2
    assert seen[0] == seen[1]


def test_an_error_in_the_kernel_is_the_kernels_own() -> None:
    with pytest.raises(Exception, match="missing 1 required positional argument: 'n'"):  # noqa: SIM117
        with ikp.profile():
            ikp.instrument(unedited.several)[(1,)](None, None, BLOCK=64)


def test_kernels_that_record_themselves_are_refused() -> None:
    with pytest.raises(ikp.KernelError, match=r"calls ikp\.init itself: it records without being"):
        ikp.instrument(control.nested)


def test_what_is_no_kernel_is_refused() -> None:
    with pytest.raises(ikp.UsageError, match="is a plain Python function"):
        ikp.instrument(matmul)
    with pytest.raises(
        ikp.UsageError, match=r"takes a kernel marked @triton\.jit .*, not builtins"
    ):
        ikp.instrument(3)
    marked = ikp.instrument(unedited.matmul)
    with pytest.raises(ikp.UsageError, match="is marked already"):
        ikp.instrument(marked)


def test_a_sample_beside_chosen_blocks_is_refused() -> None:
    ikp.instrument(unedited.matmul, sample=7, blocks=None)
    with pytest.raises(ikp.UsageError, match="sample=7 and chosen blocks don't go together"):
        ikp.instrument(unedited.matmul, sample=7, blocks=range(8))


def test_a_kernel_that_a_graph_captures_runs_plain_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(launching, "is_capturing", lambda: True)
    marked = ikp.instrument(unedited.matmul)
    with ikp.profile() as prof:
        with pytest.warns(ikp.IkpWarning, match="matmul is captured in a CUDA graph and runs"):
            assert matmul(marked) < 0.1
        assert matmul(marked) < 0.1  # told once
    assert len(prof.trace.launches) == 0


def test_the_interpreter_takes_no_records_by_hand(tmp_path: Path) -> None:
    marked = ikp.instrument(unedited.matmul, ttgir=tmp_path / "matmul.ttgir")
    with ikp.profile(), pytest.raises(ikp.KernelError, match="the interpreter compiles nothing"):
        matmul(marked)


def test_a_cute_kernel_is_refused() -> None:
    cute = pytest.importorskip("cutlass.cute")

    @cute.kernel
    def kernel() -> None: ...

    with pytest.raises(ikp.UsageError, match="CuTe DSL kernels can't be marked from outside"):
        ikp.instrument(kernel)
