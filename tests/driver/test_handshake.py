"""Handshakes with a simulated GPU, and the machine code of the kernel that answers."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest

from ikp.compiling import compile_c
from ikp.core.host_clock import Handshake
from ikp.driver import handshake
from ikp.driver.handshake import ROUNDS, Dialogue
from ikp.errors import PatchError

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
    vars(made).update(_words=gpu, _early=None, _native=None)
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


def test_what_all_rounds_say_is_what_a_handshake_says() -> None:
    """One question was seen late, and the answer to another one: the offset is within both."""
    rounds = [(1600, 10_000, 21_100), (1700, 15_000, 25_550), (5000, 20_000, 30_600)]
    made = handshake._together(rounds, 7)
    assert made.gpu_ns == 21_100
    assert made.before_ns - made.gpu_ns == pytest.approx(15_000 - 25_550, abs=1)
    assert made.after_ns - made.gpu_ns == pytest.approx(11_600 - 21_100, abs=1)
    assert (made.ahead_ns, made.tick_ns) == (7, 50)


def test_what_rounds_far_apart_say_is_widened_by_what_a_clock_can_drift() -> None:
    rounds = [(1000, 0, 500), (1000, 999_800, 1_000_700)]
    made = handshake._together(rounds, 0)
    assert (made.gpu_ns, made.before_ns, made.after_ns) == (500, 0, 500 + 100 + 201)


class Polling(Gpu):
    """A GPU that reads the host's word once in a while, counted from its last answer."""

    period_ns = 200_000

    def __init__(self) -> None:
        super().__init__()
        self.last = time.time_ns()

    def __setitem__(self, at: object, value: object) -> None:
        list.__setitem__(self, at, value)  # type: ignore[call-overload]
        if at == 0 and isinstance(value, int):
            reads = (time.time_ns() - self.last) // self.period_ns + 1
            self.last += reads * self.period_ns
            list.__setitem__(self, value + 1, self.last)

    def __getitem__(self, at: Any) -> Any:
        value = super().__getitem__(at)
        return 0 if at > 1 and value > time.time_ns() else value


def test_questions_come_at_several_distances_behind_the_answer_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At one distance, each question would just miss a read of the GPU's."""
    monkeypatch.setattr(handshake, "STAGGER_NS", Polling.period_ns // ROUNDS)
    monkeypatch.setattr(handshake, "_SPINS", 1_000_000)
    made = [dialogue(Polling()).exchange() for _ in range(9)]
    wide = sorted(each.after_ns - each.before_ns for each in made if each is not None)
    assert wide[4] < Polling.period_ns / 2


class Beside:
    """A dialogue with a kernel that is a thread of its own; it waits for the host for 1 s."""

    def __init__(self, library: ctypes.CDLL, *, held: bool = False, poll_ns: int = 0) -> None:
        self._words = (ctypes.c_uint64 * (2 + ROUNDS))()
        self.state = (ctypes.c_uint64 * 4)()
        self.dialogue = Dialogue.__new__(Dialogue)
        vars(self.dialogue).update(
            _held=self._words,
            _words=memoryview(self._words).cast("B").cast("Q"),
            _early=None,
            _native=handshake._native(),
            _launch=ctypes.cast(library.launch, ctypes.c_void_p).value,
            _function=ctypes.c_void_p(held),
            _stream=ctypes.c_void_p(ctypes.addressof(self.state)),
            _parameters=None,
        )
        numbers = (ctypes.c_int64(each) for each in (ROUNDS, 1_000_000_000, poll_ns))
        work = self._words, self.state, *numbers
        self._thread = threading.Thread(target=library.serve, args=work)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.state[1] = 1
        self._thread.join()

    def handshake(self) -> Handshake | None:
        assert self.dialogue.begin()
        return self.dialogue.exchange()


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kernel") / "kernel.so"
    compile_c("-shared", "-fPIC", "-O2", "-o", path, Path(__file__).with_name("kernel.c"))
    return path


@pytest.fixture
def kernel(library: Path, monkeypatch: pytest.MonkeyPatch) -> ctypes.CDLL:
    """The kernel, without a driver; this machine may be slower than a GPU by far."""
    monkeypatch.setattr(handshake.cuda, "under_way", lambda _: False)
    monkeypatch.setattr(handshake, "_ANSWERS_NS", 10_000_000_000)
    return ctypes.CDLL(str(library))


def test_a_handshake_needs_pythons_lock_at_no_time(kernel: ctypes.CDLL, library: Path) -> None:
    """A program that computes in Python holds it for longer than the kernel waits for the host."""
    made = list[Handshake | None]()
    with Beside(kernel, held=True) as gpu:
        service = threading.Thread(target=lambda: made.append(gpu.handshake()))
        service.start()
        hold = ctypes.PyDLL(str(library)).hold  # keeps the lock
        while not gpu.state[3]:  # the service needs the lock until then
            time.sleep(0.001)
        hold(gpu.state, ctypes.c_int64(300_000_000))
        service.join()
    assert made[0] is not None


def test_what_the_compiled_handshake_finds_is_what_the_gpu_says(kernel: ctypes.CDLL) -> None:
    with Beside(kernel) as gpu:
        while (made := gpu.handshake()) is None:
            pass
        assert made.before_ns <= made.gpu_ns <= made.after_ns
        assert made.gpu_ns in gpu.dialogue._words.tolist()[2:]
        assert abs(made.ahead_ns - (time.time_ns() - time.monotonic_ns())) < 1_000_000


def test_the_compiled_handshake_asks_at_several_distances(
    kernel: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "STAGGER_NS", 500_000 // ROUNDS)
    with Beside(kernel, poll_ns=500_000) as gpu:
        until = time.monotonic() + 20  # a busy machine runs host and kernel by turns
        while not (made := gpu.handshake()) or made.after_ns - made.before_ns > 250_000:
            assert time.monotonic() < until


def test_a_kernel_that_starts_late_is_asked_later(
    kernel: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The GPU may be full: the first look finds no kernel, and a later one does."""
    gpu = Beside(kernel)
    monkeypatch.setattr(handshake, "_ANSWERS_NS", 1000)
    assert gpu.handshake() is None
    assert not gpu.dialogue.started
    monkeypatch.setattr(handshake, "_ANSWERS_NS", 10_000_000_000)
    with gpu:
        assert gpu.dialogue.exchange() is not None


def test_a_driver_that_refuses_the_launch_is_told(
    kernel: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ikp.driver.cuda.error_name", "CUDA_ERROR_{}".format)
    gpu = Beside(kernel)
    gpu.state[1] = 1
    with pytest.raises(PatchError, match="launch the kernel of handshakes: CUDA_ERROR_700"):
        gpu.dialogue.begin()


def test_without_a_compiler_python_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: object) -> Path:
        raise OSError

    monkeypatch.setattr("ikp.compiling.CFile.library", refused)
    handshake._native.cache_clear()
    assert handshake._native() is None
    handshake._native.cache_clear()
    assert dialogue(Gpu()).exchange() is not None


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
