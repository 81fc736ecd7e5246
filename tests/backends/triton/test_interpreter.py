"""Kernels in Triton's CPU interpreter, from the launch to the file."""

from __future__ import annotations

import time
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ikp
from ikp.core import abi
from ikp.core.abi import Kind, PayloadType
from tests.extended import check, extend
from tests.kernels import control, interpreted, wrapped
from tests.kernels.expected import KERNELS, PAYLOADS, Record
from tests.trace_processor import check_trace

pytestmark = pytest.mark.interp

GRIDS = pytest.mark.parametrize("grid", [(3,), (2, 3), (2, 1, 3)], ids=str)
HOST_NAMES = {0: "zero", 1: "one", 2: "two", 5: "five"}


def zeros(n: int) -> Any:
    import torch

    return torch.zeros(n, dtype=torch.int32)


def run(name: str, grid: tuple[int, ...], n: int, **options: Any) -> ikp.Trace:
    """Launch a kernel of ``control`` in a session of its own."""
    with ikp.profile(**options) as prof:
        out = zeros(int(np.prod(grid)))
        getattr(control, name)[grid](out, n, prof.buffer(name, regions=HOST_NAMES))
    return prof.trace


def records(trace: ikp.Trace) -> list[list[Record]]:
    """Return what each program recorded: name and payload."""
    found: list[list[Record]] = [[] for _ in range(len(trace.slots))]
    events = trace.events
    for slot, region, payload in zip(events.slot, events.region, trace.payload, strict=True):
        name = trace.regions[region].name
        found[slot].append((name, None if np.isnan(payload) else float(payload)))
    return found


def expected(name: str, pid: int, n: int) -> list[Record]:
    return [
        (HOST_NAMES[what] if isinstance(what, int) else what, payload)
        for what, payload in KERNELS[name](pid, n)
    ]


@GRIDS
@pytest.mark.parametrize("mode", ["stop", "wrap"])
@pytest.mark.parametrize("name", KERNELS)
def test_every_program_records_what_the_kernel_says(
    name: str, mode: str, grid: tuple[int, ...]
) -> None:
    trace = run(name, grid, 4, overflow=mode)
    blocks = int(np.prod(grid))
    (launch,) = trace.launches
    assert launch.grid == (*grid, 1, 1)[:3]
    assert (launch.block, launch.warps_per_block) == ((1, 1, 1), 1)
    assert launch.dropped == 0
    assert launch.notes == ()
    assert trace.slots.block.tolist() == list(range(blocks))
    assert trace.slots.finished.all()
    assert records(trace) == [expected(name, pid, 4) for pid in range(blocks)]


@pytest.mark.parametrize("mode", ["stop", "wrap"])
@pytest.mark.parametrize("clock", ["cycles64", "globaltimer64"])
@pytest.mark.parametrize("name", KERNELS)
def test_records_of_64_bits_say_the_same(name: str, clock: str, mode: str) -> None:
    before = time.perf_counter_ns()
    trace = run(name, (3,), 4, overflow=mode, clock=clock)
    took = time.perf_counter_ns() - before
    (launch,) = trace.launches
    assert (launch.clock.kind, launch.clock.bits) == ("host", 64)
    assert launch.capacity == run(name, (3,), 4, overflow=mode).launches[0].capacity // 2
    assert (launch.dropped, launch.notes) == (0, ())
    assert records(trace) == [expected(name, pid, 4) for pid in range(3)]
    assert (trace.events.ticks == trace.events.end_ns - trace.events.start_ns).all()
    assert trace.events.ticks.max() < took


def test_a_range_of_64_bits_may_take_longer_than_32_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, hour = iter(range(7, 10**18, 3600 * 10**9)), 3600 * 10**9
    monkeypatch.setattr(time, "perf_counter_ns", lambda: next(clock))
    trace = run("nested", (1,), 2, clock="cycles64")
    ticks = trace.events.ticks[trace.events.kind == Kind.RANGE]
    assert len(ticks) and ticks.min() >= hour
    assert (ticks % hour == 0).all()


@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize("name", KERNELS)
def test_loops_that_run_never_or_once(name: str, n: int) -> None:
    wanted = [expected(name, pid, n) for pid in range(2)]
    told = nullcontext() if any(wanted) else pytest.warns(ikp.IkpWarning, match="no records: 2")
    with told:
        assert records(run(name, (2,), n)) == wanted


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_computes_the_same_with_and_without_recording(name: str) -> None:
    kernel = getattr(control, name)
    on, off, disabled = (zeros(3) for _ in range(3))
    with ikp.profile() as prof:
        kernel[(3,)](on, 5, prof.buffer("on"))
        kernel[(3,)](off, 5, None)
        kernel[(3,)](disabled, 5, prof.buffer("disabled", enabled=False))
    assert on.tolist() == off.tolist() == disabled.tolist()
    assert on.any()
    assert [launch.label for launch in prof.trace.launches] == ["on"]


def test_each_payload_has_the_type_and_value_it_was_given() -> None:
    import torch

    with ikp.profile() as prof:
        control.payloads[(1,)](
            torch.tensor([-5], dtype=torch.int32), torch.tensor([1.25]), prof.buffer("payloads")
        )
    trace = prof.trace
    found = {
        trace.regions[region].name: (None if np.isnan(value) else value, PayloadType(kind).name)
        for region, value, kind in zip(
            trace.events.region, trace.payload, trace.events.payload_type, strict=True
        )
    }
    assert found == PAYLOADS


def test_times_lie_within_the_launch_and_nest() -> None:
    before = time.time_ns()
    trace = run("nested", (4,), 3)
    after = time.time_ns()
    events, slots = trace.events, trace.slots
    assert before <= slots.start_ns.min()
    assert slots.end_ns.max() <= after
    assert (events.start_ns >= slots.start_ns[events.slot]).all()
    assert (events.end_ns <= slots.end_ns[events.slot]).all()
    assert (slots.start_ns[1:] >= slots.end_ns[:-1]).all()  # one program after another
    names = np.array([trace.regions[i].name for i in events.region])
    for slot in range(4):
        outer = (events.slot == slot) & (names == "for")
        inner = (events.slot == slot) & np.isin(names, ["step", "odd", "even"])
        assert (events.start_ns[inner] >= events.start_ns[outer]).all()
        assert (events.end_ns[inner] <= events.end_ns[outer]).all()
    assert (events.ticks[events.kind == Kind.INSTANT] == 0).all()
    assert (events.ticks[events.kind == Kind.RANGE] > 0).all()


def test_tokens_overlap() -> None:
    events = run("overlapping", (1,), 3).events
    first, *flights, second = zip(events.start_ns, events.end_ns, strict=True)
    assert first[0] < second[0] < first[1] < second[1]
    for flight, following in pairwise(flights):
        assert flight[0] < following[0] < flight[1] < following[1]


@pytest.mark.parametrize("mode", ["stop", "wrap"])
def test_a_full_slot_keeps_its_part_and_counts_the_rest(mode: str) -> None:
    n, room = 20, 4
    everything = expected("functional", 0, n)
    size = abi.segment_bytes(1, room)
    with pytest.warns(ikp.IkpWarning, match=f"{len(everything) - room} records dropped"):
        trace = run("functional", (1,), n, overflow=mode, buffer_size=size)
    kept = everything[:room] if mode == "stop" else everything[-room:]
    assert records(trace) == [kept]
    (launch,) = trace.launches
    assert (launch.attempted, launch.kept, launch.capacity) == (len(everything), room, room)
    assert records(run("functional", (1,), n, buffer_size=launch.needed_bytes)) == [everything]


def test_a_buffer_too_small_for_the_grid_is_told() -> None:
    with pytest.warns(ikp.IkpWarning, match="512 bytes are too small for 8 warps"):
        trace = run("nested", (8,), 2, buffer_size=512)
    assert len(trace.events) == 0


def test_capture_grows_the_buffer_until_nothing_is_lost() -> None:
    runs = []

    def launch(prof: ikp.profile) -> None:
        runs.append(prof)
        control.nested[(3,)](zeros(3), 9, prof.buffer("nested"))

    trace = ikp.capture(launch, buffer_size=512)
    assert len(runs) > 1
    assert trace.dropped == 0
    assert records(trace) == [expected("nested", pid, 9) for pid in range(3)]


@pytest.mark.filterwarnings("ignore::ikp.IkpWarning")
def test_a_second_launch_into_a_buffer_replaces_the_first() -> None:
    with ikp.profile() as prof:
        buffer = prof.buffer("twice")
        control.nested[(6,)](zeros(6), 9, buffer)
        control.early_return[(3,)](zeros(3), 1, buffer)
    (launch,) = prof.trace.launches
    assert launch.relaunches == 1
    assert records(prof.trace) == [expected("early_return", pid, 1) for pid in range(3)]


@pytest.mark.tp
@pytest.mark.filterwarnings("ignore::ikp.IkpWarning")
def test_an_error_in_a_range_keeps_what_was_recorded(tmp_path: Path) -> None:
    path = tmp_path / "failed.pftrace"
    prof = ikp.profile(path)
    with pytest.raises(Exception, match="the second program gives up"), prof:
        interpreted.failing[(4,)](zeros(4), prof.buffer("failing"))
    assert records(prof.trace) == [
        [("before", 0), ("while it fails", 0), ("open when it fails", None)],
        [("before", 1), ("while it fails", 1)],
    ]
    assert "2 warps never reached init" in prof.trace.launches[0].notes[0]
    check_trace(path, prof.trace)


def test_after_an_error_the_next_launch_records_as_ever() -> None:
    with ikp.profile() as prof:
        with pytest.raises(Exception, match="gives up"):
            interpreted.failing[(2,)](zeros(2), None)
        control.early_return[(1,)](zeros(1), 1, prof.buffer("after"))
    assert records(prof.trace) == [expected("early_return", 0, 1)]


@pytest.mark.parametrize("n", [256, 250])
def test_a_kernel_with_heuristics(n: int) -> None:
    x = zeros(256)
    with ikp.profile() as prof:
        wrapped.heuristic[(4,)](x, n, prof.buffer("k"), BLOCK=64, NAME="by heuristics")
    assert x.sum() == n
    assert records(prof.trace) == [[("by heuristics", pid)] for pid in range(4)]


def test_an_autotuned_kernel_of_one_configuration() -> None:
    x = zeros(256)
    with ikp.profile() as prof:
        wrapped.one_config[lambda meta: (256 // meta["BLOCK"],)](
            x, 256, prof.buffer("k"), NAME="tuned"
        )
    assert records(prof.trace) == [[("tuned", pid)] for pid in range(4)]


def test_an_autotuned_kernel_records_its_launch_and_not_the_trials() -> None:
    x = zeros(256)
    with ikp.profile() as prof:
        wrapped.tuned_here[lambda meta: (256 // meta["BLOCK"],)](
            x, 256, prof.buffer("k"), NAME="tuned"
        )
    assert x.tolist() == [3] * 256
    assert records(prof.trace) == [[("tuned", pid)] for pid in range(8)]


@pytest.mark.tp
@pytest.mark.parametrize("name", KERNELS)
def test_the_file_says_what_the_trace_says(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.pftrace"
    trace = run(name, (2, 2), 4, path=path)
    check_trace(path, trace)
    assert len(trace.events) == sum(len(expected(name, pid, 4)) for pid in range(4))


@pytest.mark.tp
def test_the_file_of_several_launches(tmp_path: Path) -> None:
    import torch

    path = tmp_path / "several.pftrace"
    with ikp.profile(path) as prof:
        for _ in range(2):
            control.nested[(3,)](zeros(3), 2, prof.buffer("nested"))
        control.overlapping[(2,)](zeros(2), 3, prof.buffer("overlapping"))
        ints, floats = torch.tensor([-5], dtype=torch.int32), torch.tensor([1.25])
        control.payloads[(1,)](ints, floats, prof.buffer("payloads"))
    assert [launch.label for launch in prof.trace.launches] == [
        "nested", "nested", "overlapping", "payloads"
    ]  # fmt: skip
    check_trace(path, prof.trace)


@pytest.mark.tp
def test_the_file_of_a_capture(tmp_path: Path) -> None:
    path = tmp_path / "capture.pftrace"
    trace = ikp.capture(
        lambda prof: control.nested[(2,)](zeros(2), 30, prof.buffer("nested")),
        path=path,
        buffer_size=1024,
    )
    check_trace(path, trace)


def test_two_sessions_at_once_keep_their_launches_apart() -> None:
    with ikp.profile() as outer:
        first = outer.buffer("outer")
        with ikp.profile() as inner:
            control.nested[(2,)](zeros(2), 3, inner.buffer("inner", regions=HOST_NAMES))
            control.nested[(1,)](zeros(1), 2, first)
    assert [launch.label for launch in inner.trace.launches] == ["inner"]
    assert [launch.label for launch in outer.trace.launches] == ["outer"]
    assert (len(inner.trace.slots), len(outer.trace.slots)) == (2, 1)


def test_a_session_whose_buffer_another_one_s_kernel_did_not_use_says_so() -> None:
    with ikp.profile() as other:
        theirs = other.buffer("theirs")
        told = pytest.warns(ikp.IkpWarning, match="nothing was recorded for 'mine'")
        with told, ikp.profile() as session:
            session.buffer("mine")
            control.nested[(1,)](zeros(1), 2, theirs)
    assert len(session.trace.launches) == 0
    assert [launch.label for launch in other.trace.launches] == ["theirs"]


def test_verbs_on_the_host_are_told_so_before_and_after_a_launch() -> None:
    outside = r"ikp.range is called outside a kernel"
    with pytest.raises(ikp.KernelError, match=outside):
        ikp.range("host")
    trace = run(next(iter(KERNELS)), (2, 2), 4)
    with pytest.raises(ikp.KernelError, match=outside):
        ikp.range("host")  # not the last program's, which has ended
    assert trace.launches


def test_a_launch_after_the_session_ended_is_told() -> None:
    x = zeros(256)
    grid, options = (4,), {"BLOCK": 64, "NAME": "late"}
    with ikp.profile() as prof:
        buffer = prof.buffer("k")
        wrapped.heuristic[grid](x, 256, buffer, **options)
    kept = records(prof.trace)
    with pytest.warns(ikp.IkpWarning, match="buffer 'k' after its session ended"):
        wrapped.heuristic[grid](x, 256, buffer, **options)
    assert x.tolist() == [2] * 256
    assert records(prof.trace) == kept


def test_separate_steps_record_the_launch_between_them(tmp_path: Path) -> None:
    """As other profilers have it: allocate, reset, launch, export."""
    x = zeros(256)
    prof = ikp.profile().start()
    buffer = prof.buffer("copy")
    prof.reset()
    wrapped.heuristic[(4,)](x, 256, buffer, BLOCK=64, NAME="step")
    prof.trace.save(tmp_path / "copy.pftrace")
    prof.reset()
    wrapped.heuristic[(4,)](x, 256, buffer, BLOCK=64, NAME="next step")
    assert records(prof.stop()) == [[("next step", pid)] for pid in range(4)]
    assert records(ikp.load(tmp_path / "copy.pftrace")) == [[("step", pid)] for pid in range(4)]


def test_a_range_left_open_is_a_line_where_warnings_are_errors(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Python drops what is raised as it drops a variable, and would print a traceback."""
    with pytest.raises(ikp.IkpWarning, match="no records"), ikp.profile() as prof:
        interpreted.left_open[(1,)](prof.buffer("k"))
    told = capsys.readouterr().err
    assert told.startswith("ikp: warning: the range 'open' is opened at")
    assert "Traceback" not in told


def test_a_new_field_of_the_launch_header_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    extend(monkeypatch)
    with ikp.profile() as prof:
        given = prof.buffer("k")
        control.nested[(2, 3)](zeros(6), 2, given)
        check(given[0].numpy())
        monkeypatch.undo()
