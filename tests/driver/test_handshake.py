"""Handshakes with a simulated GPU, and the machine code of the kernel that answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ikp.driver import handshake
from ikp.driver.handshake import ROUNDS, Dialogue

LATE = 2_000_000
"""The simulated timer less ``CLOCK_REALTIME``, in ns."""


class Gpu(list[int]):
    """The words that host and GPU share; the GPU answers at once, unless it is silent."""

    def __init__(self, silent_from: int = ROUNDS + 1) -> None:
        super().__init__([0, 1, *[0] * ROUNDS])
        self.silent_from = silent_from

    def __setitem__(self, at: object, value: object) -> None:
        super().__setitem__(at, value)  # type: ignore[call-overload]
        if at == 0 and isinstance(value, int) and value < self.silent_from:
            super().__setitem__(value + 1, (time.time_ns() + LATE) // 32 * 32)


def dialogue(gpu: Gpu) -> Dialogue:
    """Return a dialogue with it; no driver is asked."""
    made = Dialogue.__new__(Dialogue)
    vars(made)["_words"] = gpu
    return made


@pytest.fixture
def set_by(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return what sets ``CLOCK_REALTIME``, once some more readings were made."""

    def setting(readings: int) -> None:
        read, left = time.clock_gettime_ns, [readings]

        def stepped(which: int) -> int:
            left[0] -= 1
            ahead = 5_000_000 if which == time.CLOCK_REALTIME and left[0] < 0 else 0
            return read(which) + ahead

        monkeypatch.setattr(time, "clock_gettime_ns", stepped)

    return setting


def test_the_gpus_time_is_between_the_hosts() -> None:
    made = dialogue(Gpu()).exchange()
    assert made is not None
    assert made.before_ns <= made.gpu_ns - LATE + 32
    assert made.gpu_ns - LATE <= made.after_ns
    assert made.tick_ns % 32 == 0
    assert abs(made.ahead_ns - (time.time_ns() - time.monotonic_ns())) < 1_000_000


@pytest.mark.parametrize("silent", [1, 2, ROUNDS])
def test_what_was_answered_counts_where_the_kernel_ends_early(silent: int) -> None:
    made = dialogue(Gpu(silent)).exchange()
    assert (made is None) == (silent == 1)


def test_a_handshake_in_which_the_host_was_set_is_dropped(set_by: Callable[[int], None]) -> None:
    set_by(20)  # after the first comparison of the host's clocks, and before the second one
    assert dialogue(Gpu()).exchange() is None


@pytest.mark.compiled
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_the_timer_is_read_after_the_hosts_word_came(arch: str, tmp_path: Path) -> None:
    """A read before the branch that waits for the load would be earlier than the answer."""
    from tests.backends.opcodes import texts
    from tests.backends.sass import assemble

    code = texts(assemble(handshake._CODE, tmp_path, arch))
    load = next(at for at, text in enumerate(code) if "LDG" in text)
    answer = max(at for at, text in enumerate(code) if "STG" in text)
    read = max(at for at, text in enumerate(code[:answer]) if "GLOBALTIMER" in text)
    wait = next(at for at in range(load, answer) if "BRA" in code[at])
    assert load < wait < read < answer
    assert not any("GLOBALTIMER" in text for text in code[load:wait])
