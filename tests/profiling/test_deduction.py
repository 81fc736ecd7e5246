"""``ikp.profile(deduct_overhead=...)``: deducted where it is known, told where it is not."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import ikp
from ikp.calibration import calibrate
from ikp.core.overhead import Figure, Overhead
from ikp.edit.deduct import DEDUCTED
from ikp.errors import BufferError, IkpWarning, UsageError
from ikp.profiling import _life as ended
from ikp.session import recorded_segments, recorder, wishes
from ikp.session.service import Here
from ikp.session.storage import HostStorage
from tests.host import Host, work

ONE, TWO = Figure(4, 4, 4), Figure(10, 10, 10)
KNOWN = Overhead("CPU", "cycles", ONE, TWO, TWO, ONE, TWO)


@pytest.fixture
def gpu(host: Host, monkeypatch: pytest.MonkeyPatch) -> Host:
    """Let the tests' memory pass for a GPU's."""
    monkeypatch.setattr(wishes, "checked_device", lambda _: _Gpu())
    monkeypatch.setattr(recorder, "device_facts", lambda _: ("CPU", 0.0))
    monkeypatch.setattr(recorded_segments, "service_of", lambda _: Here(HostStorage()))
    return host


class _Gpu:
    """A device that says that it is one, and whose memory is the host's."""

    type, index = "cuda", 0

    def __str__(self) -> str:
        return "cpu"


def recorded(gpu: Host, **options: Any) -> ikp.Trace:
    with ikp.profile(**options) as prof:
        gpu.run(prof.buffer("k"), work())
    return prof.trace


def test_a_known_overhead_is_deducted(gpu: Host) -> None:
    plain, bare = recorded(gpu), recorded(gpu, deduct_overhead=KNOWN)
    assert DEDUCTED not in plain.provenance
    assert "4.0 cycles in each range" in bare.provenance[DEDUCTED]
    assert (plain.events.ticks - bare.events.ticks).tolist() == [4] * 4
    assert "copied_out_s" in bare.provenance


def test_what_can_not_be_deducted_is_kept_and_told(
    gpu: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Overhead:
        raise BufferError("no GPU today")

    monkeypatch.setattr(calibrate, "of_session", fail)
    monkeypatch.setattr(ended, "gpus_of", lambda _: {"cuda:0"})
    other = Overhead("another", "cycles", ONE, TWO, TWO, ONE, TWO)
    for wish, why in ((other, "it ran on CPU"), (True, "no GPU today")):
        with pytest.warns(IkpWarning, match=f"overhead was not deducted: .*{why}"):
            trace = recorded(gpu, deduct_overhead=wish)
        assert trace.events.ticks.max() == 20
        assert DEDUCTED not in trace.provenance


def test_true_measures_on_each_device_with_the_session_s_options(
    gpu: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, ...]] = []

    def measured(*options: Any) -> Overhead:
        asked.append(options)
        return KNOWN

    monkeypatch.setattr(calibrate, "of_session", measured)
    monkeypatch.setattr(ended, "gpus_of", lambda _: {"cuda:0"})
    trace = recorded(gpu, deduct_overhead=True, schedule=False)
    assert asked == [("cuda:0", "cycles", "stop", False)]
    assert DEDUCTED in trace.provenance


@pytest.mark.parametrize("wish", [True, KNOWN])
def test_a_buffer_on_the_cpu_is_refused(wish: Any) -> None:
    with (
        ikp.profile(deduct_overhead=wish, device="cpu") as prof,
        pytest.raises(UsageError, match="the buffer is on the CPU"),
    ):
        prof.buffer("k")


def test_totals_and_other_wishes_are_refused() -> None:
    with pytest.raises(UsageError, match="has no timeline"):
        ikp.profile(mode="totals", deduct_overhead=True)
    with pytest.raises(UsageError, match="deduct_overhead=3 is unknown"):
        ikp.profile(deduct_overhead=3)  # type: ignore[arg-type]
