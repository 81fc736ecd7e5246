"""``ikp.capture``: runs again until nothing is lost, and knows when to stop."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import ikp
from ikp.core import abi
from ikp.errors import BufferError, IkpWarning, UsageError
from tests.core.decoding.checks import assert_holds
from tests.host import Host
from tests.segments import Launch, Record, Truth, Warp, nbytes

pytest.importorskip("torch")


class Kernels:
    """Launches one kernel per count, which records so many ranges; counts its runs."""

    def __init__(
        self, host: Host, counts: Sequence[int], finish: int | None = 10**6, **buffer: Any
    ) -> None:
        self.host, self.counts, self.finish, self.buffer = host, counts, finish, buffer
        self.runs = 0
        self.sizes: list[int] = []
        self.truths: list[Truth] = []

    def __call__(self, prof: ikp.profile) -> None:
        self.runs += 1
        self.truths = []
        for i, count in enumerate(self.counts):
            buffer = prof.buffer(f"k{i}", **self.buffer)
            self.sizes.append(buffer.nbytes)
            steps = [Record(10 * j, 10 * j + 5) for j in range(1, count + 1)]
            launch = Launch(
                {(0, 0): Warp(steps, finish=self.finish)}, overflow=buffer.spec.overflow
            )
            self.truths.append(self.host.run(buffer, launch))


def test_a_capture_that_fits_runs_once(host: Host) -> None:
    kernels = Kernels(host, [5, 7])
    trace = ikp.capture(kernels)
    assert kernels.runs == 1
    assert_holds(trace, *kernels.truths)


@pytest.mark.parametrize("overflow", ["stop", "wrap"])
def test_it_grows_at_once_to_what_the_largest_launch_needs(host: Host, overflow: str) -> None:
    kernels = Kernels(host, [3, 1000, 40])
    trace = ikp.capture(kernels, buffer_size=nbytes(1, 4), overflow=overflow)
    assert kernels.runs == 2
    assert trace.dropped == 0
    assert_holds(trace, *kernels.truths)
    assert kernels.sizes[-1] == nbytes(1, 1000 if overflow == "stop" else 1024)


def test_a_buffer_too_small_for_any_record_grows_too(host: Host) -> None:
    def run(prof: ikp.profile) -> None:
        launch = Launch({(b, 0): Warp([Record(10, 20)] * 70) for b in range(9)}, grid=(9, 1, 1))
        host.run(prof.buffer("k"), launch)

    trace = ikp.capture(run, buffer_size=224)
    assert trace.launches[0].kept == 9 * 70


def test_where_the_loss_is_unknown_it_doubles(host: Host) -> None:
    kernels = Kernels(host, [50], finish=None)
    with pytest.warns(IkpWarning, match="never reached finish"):
        trace = ikp.capture(kernels, buffer_size=nbytes(1, 4))
    assert kernels.sizes == [nbytes(1, 4 * 2**i) for i in range(5)]
    assert trace.launches[0].kept == 50


@pytest.mark.parametrize("attempts", [1, 3])
def test_it_gives_up_after_so_many_runs_and_says_what_is_missing(host: Host, attempts: int) -> None:
    kernels = Kernels(host, [1000], finish=None)
    size = nbytes(1, 2 * 2**attempts)
    told = rf"buffers of {nbytes(1, 2**attempts)} bytes after {attempts} runs; {size} bytes would"
    with pytest.raises(BufferError, match=told):
        ikp.capture(kernels, buffer_size=nbytes(1, 2), attempts=attempts)
    assert kernels.runs == attempts


def test_it_gives_up_where_no_buffer_could_be_large_enough(host: Host) -> None:
    records = 2**27
    finished = host.run

    def run(prof: ikp.profile) -> None:
        buffer = prof.buffer("k")
        finished(buffer, Launch({(0, 0): Warp([Record(10, 20)] * 9)}))
        # As if the warp had gone on.
        buffer.data.numpy()[128 + 48 : 128 + 52].view("<u4")[:] = records

    told = (
        f"{records - 4} records were still dropped with buffers of {nbytes(1, 4)} bytes after "
        f"1 runs; {nbytes(1, records)} bytes would be needed, of at most {abi.MAX_SEGMENT_BYTES}. "
        "Record less (fewer iterations or ranges), or keep only the latest with overflow='wrap'."
    )
    with pytest.raises(BufferError, match=re.escape(told)):
        ikp.capture(run, buffer_size=nbytes(1, 4))


def test_a_function_that_chooses_its_own_sizes_is_told_to_leave_that(host: Host) -> None:
    kernels = Kernels(host, [9], size=nbytes(1, 3))
    with pytest.raises(BufferError, match=r"6 records were dropped.*Leave size out"):
        ikp.capture(kernels)
    assert kernels.runs == 1


def test_only_the_complete_trace_is_written(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "k.lines"
    kernels = Kernels(host, [30])

    def run(prof: ikp.profile) -> None:
        assert not path.exists()
        kernels(prof)

    ikp.capture(run, path=path, buffer_size=nbytes(1, 4))
    assert kernels.runs == 2
    assert path.read_text() == "k0 30\n"
    path.unlink()
    with pytest.raises(BufferError):
        ikp.capture(run, path=path, buffer_size=nbytes(1, 4), attempts=1)
    assert not path.exists()


def test_export_off_holds_for_captures(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "k.lines"
    ikp.set_export(False)
    try:
        assert ikp.capture(Kernels(host, [3]), path=path).launches
    finally:
        ikp.set_export(True)
    assert not path.exists()


def test_only_the_last_run_s_warnings_are_told(host: Host) -> None:
    kernels = Kernels(host, [20])

    def run(prof: ikp.profile) -> None:
        kernels(prof)
        warnings.warn("the user's own", RuntimeWarning, stacklevel=1)
        prof.buffer("never used")

    with pytest.warns() as caught:
        ikp.capture(run, buffer_size=nbytes(1, 4))
    told = [(warning.category, str(warning.message)) for warning in caught]
    assert [text for kind, text in told if kind is RuntimeWarning] == ["the user's own"] * 2
    ((text, filename),) = (
        (str(each.message), each.filename) for each in caught if each.category is IkpWarning
    )
    assert text.startswith("nothing was recorded for 'never used'")
    assert filename == __file__


def test_what_the_function_raises_passes_through(host: Host) -> None:
    kernels = Kernels(host, [20])

    def run(prof: ikp.profile) -> None:
        kernels(prof)
        raise ZeroDivisionError("mine")

    with pytest.warns(IkpWarning, match="16 records dropped"):  # noqa: SIM117
        with pytest.raises(ZeroDivisionError, match="mine"):
            ikp.capture(run, buffer_size=nbytes(1, 4))
    assert kernels.runs == 1


@pytest.mark.parametrize("attempts", [0, -1])
def test_no_attempt_at_all_is_refused(host: Host, attempts: int) -> None:
    with pytest.raises(UsageError, match=f"attempts={attempts}: .*at least once"):
        ikp.capture(Kernels(host, [1]), attempts=attempts)


def test_options_are_those_of_a_session(host: Host) -> None:
    specs = []

    def run(prof: ikp.profile) -> None:
        buffer = prof.buffer("k")
        specs.append(buffer.spec)
        host.run(
            buffer,
            Launch(
                {(0, 0): Warp([Record(1, 2)])},
                clock=buffer.spec.clock,
                overflow=buffer.spec.overflow,
            ),
        )

    ikp.capture(run, clock="globaltimer", overflow="wrap", schedule=False)
    assert str(specs[0]).startswith("ikp abi=1 clock=globaltimer overflow=wrap device=cpu sch")
    with pytest.raises(UsageError, match="clock='sundial'"):
        ikp.capture(run, clock="sundial")
    with pytest.raises(TypeError):
        ikp.capture(run, buffersize=5)
