"""Sessions: buffers out, records in, and a trace that tells what happened to each of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import numpy as np
import pytest

import ikp
from ikp.core import abi
from ikp.core.abi import ClockKind, OverflowMode
from ikp.core.segment import Segment as Buffer
from ikp.errors import DecodeError, IkpWarning, RegionError, UsageError
from ikp.session import harvest, wishes
from ikp.session.memory import DEFAULT_BYTES
from ikp.session.wishes import Wishes
from tests.core.decoding.checks import assert_holds
from tests.host import Host, work
from tests.segments import Launch, Record, Warp, nbytes

torch = pytest.importorskip("torch")


def session(body: Callable[[ikp.profile], object], **options: Any) -> ikp.profile:
    """Return the session that ran ``body``."""
    with ikp.profile(**options) as prof:
        body(prof)
    return prof


def test_what_kernels_wrote_is_in_the_trace(host: Host) -> None:
    with ikp.profile() as prof:
        truths = [host.run(prof.buffer(label), work(n)) for label, n in (("a", 1), ("b", 7))]
        truths.append(host.run(prof.buffer("a"), work(2)))
    assert_holds(prof.trace, *truths)
    assert [launch.label for launch in prof.trace.launches] == ["a", "b", "a"]
    assert {launch.backend for launch in prof.trace.launches} == {"model"}
    assert {launch.device for launch in prof.trace.launches} == {"CPU"}
    facts = prof.trace.provenance
    assert facts["ikp"] == ikp.__version__
    assert facts["abi"] == str(abi.ABI_VERSION)
    assert facts["torch"] == version("torch")  # without what torch says of its build
    assert {"python", "host", "command", "recorded", "devices"} <= set(facts)


def test_what_finalizing_cost_is_told(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    with ikp.profile() as prof:
        host.run(prof.buffer("a"), work(3))
    facts = prof.trace.provenance
    assert float(facts["copied_out_s"]) >= 0
    assert float(facts["decoded_s"]) >= 0
    prof.print_stats()
    shown = capsys.readouterr().out
    assert shown == f"{prof.trace.stats()}\n"
    line = f"records copied out in {facts['copied_out_s']} s, decoded in {facts['decoded_s']} s."
    assert line in shown


def test_a_session_without_a_launch_has_an_empty_trace(host: Host) -> None:
    with ikp.profile() as prof:
        pass
    assert prof.trace.launches == ()
    assert len(prof.trace.events) == len(prof.trace.slots) == 0
    assert ikp.profile().trace.launches == ()


def test_the_trace_inside_a_session_is_of_this_moment(host: Host) -> None:
    with ikp.profile() as prof:
        first = prof.buffer("first")
        assert prof.trace.launches == ()
        host.run(first, work(2))
        assert len(prof.trace.events) == 3
        host.run(first, work(5))
        assert len(prof.trace.events) == 6
        host.run(prof.buffer("second"), work(1))
        assert [launch.label for launch in prof.trace.launches] == ["first", "second"]
    assert prof.trace is prof.trace, "after the session nothing changes any more"


def test_regions_are_named_per_buffer_and_by_the_backend(host: Host) -> None:
    host.backend.known = {abi.HASHED_REGION | 5: "hashed"}
    with ikp.profile() as prof:
        ids = (1, 2, abi.HASHED_REGION | 5)
        host.run(prof.buffer("a", regions={1: "load", np.int64(2): "dot"}), work(3, ids))
        host.run(prof.buffer("b", regions=["none", "store"]), work(3, ids))  # a list counts from 0
        host.run(prof.buffer("c"), work(1, ids))
    trace = prof.trace
    assert [trace.regions[i].name for i in trace.events.region] == [
        *("load", "dot", "hashed", "load"),
        *("store", "region 2", "hashed", "store"),
        *("region 1", "region 1"),
    ]


def test_a_session_may_be_opened_again_and_starts_anew(host: Host) -> None:
    prof = ikp.profile()
    for label in ("one", "two"):
        with prof:
            host.run(prof.buffer(label), work())
        assert [launch.label for launch in prof.trace.launches] == [label]


def test_a_session_opened_twice_at_once_is_refused(host: Host) -> None:
    with ikp.profile() as prof:
        with pytest.raises(UsageError, match=r"already open.*make a new one"), prof:
            pass
        host.run(prof.buffer("goes on"), work())
    assert len(prof.trace.launches) == 1


def test_buffers_are_zero_apart_and_of_the_size_asked_for(host: Host) -> None:
    with ikp.profile(buffer_size=4096) as prof:
        sizes = (None, 224, 1000, np.int64(2048))
        buffers = [prof.buffer("k", size=size) for size in sizes]
        assert [buffer.nbytes for buffer in buffers] == [4096, 224, 1008, 2048]
        for buffer in buffers:
            assert not buffer.data.any()
            buffer.data.fill_(1)
            buffer.data.zero_()
            host.run(buffer, Launch({(0, 0): Warp([Record(1, 2)])}))
    with ikp.profile() as prof:
        assert prof.buffer("k").nbytes == DEFAULT_BYTES["timeline"]
        prof.reset()
    with ikp.profile(mode="totals") as prof:
        assert prof.buffer("k").nbytes == DEFAULT_BYTES["totals"]
        prof.reset()


@pytest.mark.parametrize("clock", ["cycles", "globaltimer"])
@pytest.mark.parametrize("overflow", ["stop", "wrap"])
@pytest.mark.parametrize("schedule", [True, False])
def test_options_reach_the_kernel(host: Host, clock: str, overflow: str, schedule: bool) -> None:
    with ikp.profile(clock=clock, overflow=overflow, schedule=schedule) as prof:
        spec = prof.buffer("k").spec
        prof.reset()
    assert (spec.clock, spec.overflow) == (ClockKind[clock.upper()], OverflowMode[overflow.upper()])
    assert (spec.schedule, spec.device, spec.abi) == (schedule, "cpu", abi.ABI_VERSION)
    assert spec.revision


def test_a_disabled_session_hands_out_none_and_records_nothing(host: Host) -> None:
    with ikp.profile(enabled=False) as prof:
        assert prof.buffer("k", size=1000) is None
        with pytest.raises(RegionError):
            prof.buffer("")
    assert prof.trace.launches == ()


def test_a_disabled_buffer_records_nothing_and_is_not_missed(host: Host) -> None:
    with ikp.profile() as prof:
        off, on = prof.buffer("off", enabled=False), prof.buffer("on")
        assert (off.enabled, on.enabled) == (False, True)
        assert off.spec == on.spec, "the same compiled kernel"
        host.run(on, work())
    assert [launch.label for launch in prof.trace.launches] == ["on"]


@pytest.mark.parametrize(("enabled", "size"), [(True, 4096 - 128), (False, 0)])
def test_a_kernel_is_told_at_run_time_whether_to_record(
    host: Host, enabled: bool, size: int
) -> None:
    from ikp.backends.argument import argument

    with ikp.profile(buffer_size=4096) as prof:
        made = argument(prof.buffer("k", enabled=enabled))
        assert made.slots_bytes == size
        assert made.spec_text.startswith("ikp abi=1 clock=cycles")
        prof.discard(made)


# What was lost


def test_losses_are_told_where_the_session_ends_with_label_and_size(host: Host) -> None:
    def lose(prof: ikp.profile) -> None:
        host.run(prof.buffer("small", size=nbytes(2, 2)), work(9))
        host.run(prof.buffer("large"), work(9))

    with pytest.warns(IkpWarning) as caught:
        prof = session(lose)
    (warning,) = caught
    needed = prof.trace.launches[0].needed_bytes
    assert str(warning.message) == (
        "small: 7 records dropped (the latest of each full slot); "
        f"prof.buffer('small', size={needed}) would have held all."
    )
    assert warning.filename == __file__
    assert prof.trace.dropped == 7


def test_buffers_that_nobody_wrote_to_are_told(host: Host) -> None:
    def run_some(prof: ikp.profile) -> None:
        for label, runs in (("ran", 1), ("idle", 0), ("both", 1), ("both", 0), ("idle", 0)):
            buffer = prof.buffer(label)
            if runs:
                host.run(buffer, work())
        prof.buffer("off", enabled=False)
        prof.buffer("chosen", warps=[0])  # the host writes to it

    with pytest.warns(IkpWarning) as caught:
        prof = session(run_some)
    (warning,) = caught
    told = "nothing was recorded for 'both', 'chosen', 'idle': the kernel never ran"
    assert str(warning.message).startswith(told)
    assert [launch.label for launch in prof.trace.launches] == ["ran", "both"]


def test_nothing_lost_nothing_told(host: Host) -> None:
    with ikp.profile() as prof:
        buffer = prof.buffer("k")
        assert prof.trace.launches == (), "looking too early is no loss"
        host.run(buffer, work())


def test_one_broken_buffer_takes_no_other_launch_with_it(host: Host) -> None:
    sessions = []

    def overwrite(prof: ikp.profile) -> None:
        sessions.append(prof)
        host.run(prof.buffer("good"), work(4))
        prof.buffer("bad").data.fill_(7)
        host.run(prof.buffer("better"), work(5))
        with pytest.raises(DecodeError, match="'bad'"):
            _ = prof.trace

    with pytest.raises(DecodeError, match=r"'bad'.*not written by ikp"):
        session(overwrite)
    assert [launch.label for launch in sessions[0].trace.launches] == ["good", "better"]


def test_the_memory_of_many_buffers_is_shared(host: Host) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IkpWarning)
        with ikp.profile(buffer_size=1024) as prof:
            buffers: list[Buffer] = [prof.buffer("k") for _ in range(100)]
            bases = {buffer.data.untyped_storage().data_ptr() for buffer in buffers}
    assert len(bases) == 1


@pytest.mark.filterwarnings("ignore:nothing was recorded")
def test_a_request_is_settled_once_as_long_as_it_holds(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled, holds = [], [True]
    settle = Wishes.settle

    def counted(self: Wishes, *args: Any) -> Any:
        settled.append(args)
        return replace(settle(self, *args), holds=lambda: holds[0])

    monkeypatch.setattr(Wishes, "settle", counted)
    monkeypatch.setattr(harvest, "BEGIN_BYTES", 0)  # else all get the default
    names, ids = ["load"], [1]
    with ikp.profile() as prof:
        made = [prof.buffer("a", grid=2, num_warps=1) for _ in range(3)]
        assert len(settled) == 1
        assert len({each.data.data_ptr() for each in made}) == 3
        others = [
            prof.buffer("a", grid=2, num_warps=1, enabled=False),
            prof.buffer("a", grid=2, num_warps=2),
            prof.buffer("a", grid=2, num_warps=1, granularity="block"),
            prof.buffer("b", grid=2, num_warps=1),
        ]
        assert len(settled) == 4, "whether a launch records is no part of it"
        assert [each.enabled for each in others] == [False, True, True, True]
        assert others[1].nbytes > made[0].nbytes
        assert others[2].selection.warps == 1
        chosen = [prof.buffer("c", warps=ids, regions=names) for _ in "ab"]
        ids[0], names[0] = 3, "store"
        chosen += [prof.buffer("c", warps=ids, regions=names)]
        assert [each.selection.warps for each in chosen] == [2, 2, 8]
        assert [each.regions[0] for each in chosen] == ["load", "load", "store"]
        holds[0] = False  # another device is the current one
        count = len(settled)
        prof.buffer("a", grid=2, num_warps=1)
        assert len(settled) == count + 1
        prof.reset()


@pytest.mark.parametrize("raw", [True, False])
def test_settings_hold_on_the_device_that_they_were_made_for(
    monkeypatch: pytest.MonkeyPatch, raw: bool
) -> None:
    number, captures = [1], [False]
    at_once = (lambda _: 0, lambda: captures[0]) if raw else None
    monkeypatch.setattr(wishes.foreign, "current", lambda: at_once)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: number[0])
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: captures[0])
    current = wishes.lasting(torch.device("cuda:1"), given=False)
    named = wishes.lasting(torch.device("cuda:1"), given=True)
    assert current()
    assert named()
    number[0] = 0
    assert not current()
    assert named()
    number[0], captures[0] = 1, True
    assert not current()
    assert not named()
