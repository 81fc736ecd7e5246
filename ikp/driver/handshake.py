"""``Dialogue``: handshakes with a GPU, which bound the offset of its timer from the host's clocks.

One thread of a kernel of its own waits for a word in the host's pinned memory, and answers with
``%globaltimer``. The kernel ends by itself: after the last answer, or where the host is silent. It
is launched on a stream of its own with high priority, and uses neither shared memory nor the
program's streams.

``handshake.c`` launches and asks without Python's lock, which a program that computes in Python
gives away after 5 ms only, when the kernel has given up. Where it can't be compiled, Python asks.
"""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from ikp.compiling import CFile, CompileError
from ikp.core.host_clock import RATE, STEP_NS, Handshake
from ikp.driver import cuda

ROUNDS: Final = 12
"""Questions of one handshake."""
STAGGER_NS: Final = 100
"""Each question comes so much later behind the answer before it than the last one did.

The GPU reads the host's word once in some 1.1 us, and a question may just have missed a read. The
reads follow the answer before, as the question does: at one distance all questions would miss.
"""
PATIENCE_NS: Final = 400_000
"""The time after which the kernel ends in any case."""
_SPINS: Final = 4000
"""Reads of an answer's word, some 40 ns each, before the host gives up."""
_STARTING: Final = 1000
_ANSWERS_NS: Final = 160_000
"""The longest that ``handshake.c`` waits for the kernel's start, or for an answer."""
_WORDS: Final = 2 + ROUNDS
_NON_BLOCKING: Final = 1
_PORTABLE_MAPPED: Final = 1 | 2
"""Flags, as ``cuda.h`` counts them."""

ASKING: Final = CFile(Path(__file__).with_name("handshake.c"), "libikp-handshake.so")
_LAUNCH: Final = "launch the kernel of handshakes"
_Round = tuple[int, int, int]
"""How long a question took, when it was asked, and the answer."""

# By the first line the hook library knows the module as ikp's own.
# The timer is read behind the branch that ends the wait: before it, the read could be issued while
# the load of the host's word is still under way, and would be too early.
_CODE: Final = """//ikp
.version 7.0
.target sm_70
.address_size 64
.visible .entry ikp_handshake(.param .u64 page, .param .u64 most, .param .u64 limit)
{
.reg .pred p;
.reg .u64 words, answer, rounds, patience, begin, now, asked, n;
ld.param.u64 words, [page];
ld.param.u64 rounds, [most];
ld.param.u64 patience, [limit];
add.u64 answer, words, 16;
mov.u64 n, 0;
mov.u64 begin, %globaltimer;
st.volatile.global.u64 [words+8], begin;
NEXT:
add.u64 n, n, 1;
WAIT:
ld.volatile.global.u64 asked, [words];
setp.ge.u64 p, asked, n;
@p bra ANSWER;
mov.u64 now, %globaltimer;
sub.u64 now, now, begin;
setp.lt.u64 p, now, patience;
@p bra WAIT;
ret;
ANSWER:
mov.u64 now, %globaltimer;
st.volatile.global.u64 [answer], now;
add.u64 answer, answer, 8;
setp.lt.u64 p, n, rounds;
@p bra NEXT;
ret;
}
"""


class Dialogue:
    """Handshakes with one device, in the primary context. One thread makes it and uses it.

    Args:
        ordinal: the device's number, as the driver counts.

    Raises:
        PatchError: the driver refuses.
    """

    def __init__(self, ordinal: int) -> None:
        cuda.use_primary_context(ordinal)
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        load = "load the kernel of handshakes"
        cuda.call("cuModuleLoadData", ctypes.byref(module), _CODE.encode(), to=load)
        cuda.call("cuModuleGetFunction", ctypes.byref(function), module, b"ikp_handshake", to=load)
        self._function, self._stream = function, _urgent_stream()
        self._launch, self._native = cuda.entry_point("cuLaunchKernel"), _native()
        host, there = ctypes.c_void_p(), ctypes.c_uint64()
        size = ctypes.c_size_t(8 * _WORDS)
        cuda.call("cuMemHostAlloc", ctypes.byref(host), size, _PORTABLE_MAPPED, to="pin memory")
        cuda.call(
            "cuMemHostGetDevicePointer_v2", ctypes.byref(there), host, 0, to="map pinned memory"
        )
        self._held = (ctypes.c_uint64 * _WORDS).from_address(host.value or 0)
        self._words = memoryview(self._held).cast("B").cast("Q")
        self._arguments = there, ctypes.c_uint64(ROUNDS), ctypes.c_uint64(PATIENCE_NS)
        self._parameters = (ctypes.c_void_p * 3)(
            *(ctypes.cast(ctypes.byref(each), ctypes.c_void_p) for each in self._arguments)
        )

    def begin(self) -> bool:
        """Launch the kernel; False where the one before has not ended.

        Raises:
            PatchError: the driver refuses, or a kernel of the program's has failed.
        """
        if cuda.under_way(self._stream.value or 0):
            return False
        ctypes.memset(self._held, 0, ctypes.sizeof(self._held))
        self._early = None
        if self._native is not None:
            ahead = _ahead()
            if found := self._ask_natively(self._native, self._launch):
                self._early = ahead, found
            return True
        sizes = 1, 1, 1, 1, 1, 1, 0
        made = self._function, *sizes, self._stream, self._parameters, None
        cuda.call("cuLaunchKernel", *made, to=_LAUNCH)
        return True

    def _ask_natively(self, native: Callable[..., int], launch: int) -> list[_Round]:
        """Ask the kernel, which is launched first unless ``launch`` is 0; none where it is late."""
        times = (ctypes.c_int64 * (2 * ROUNDS))()
        count = native(
            *(self._held, ROUNDS, _ANSWERS_NS, STAGGER_NS, launch),
            *(self._function, self._stream, self._parameters, times),
        )
        cuda.checked(max(0, -1 - count), _LAUNCH)
        rounds = zip(times[0::2], times[1::2], self._words[2:], strict=True)
        found = [(after - before, before, there) for before, after, there in rounds]
        return found[: max(0, count)]

    @property
    def started(self) -> bool:
        """Whether the kernel runs, or ran; waits a few microseconds for it."""
        words = self._words
        return any(words[1] for _ in range(_STARTING))

    def exchange(self) -> Handshake | None:
        """Return a handshake; None where the kernel or the host was late."""
        ahead, found = self._early or (_ahead(), self._ask())
        if not found or abs(_ahead() - ahead) >= STEP_NS:
            return None
        return _together(found, ahead)

    def _ask(self) -> list[_Round]:
        """Ask a kernel that runs: in Python its lock is held meanwhile, some 2 us a round."""
        if self._native is not None:
            return self._ask_natively(self._native, 0)
        words, read, realtime = self._words, time.clock_gettime_ns, time.CLOCK_REALTIME
        spins, found = range(_SPINS), list[_Round]()
        for number in range(1, ROUNDS + 1):
            answer = number + 1
            due = read(realtime) + (number - 1) * STAGGER_NS
            while (before := read(realtime)) < due:
                pass
            words[0] = number
            for _ in spins:
                if words[answer]:
                    break
            else:
                break
            found.append((read(realtime) - before, before, words[answer]))
        return found


def _together(rounds: Sequence[_Round], ahead: int) -> Handshake:
    """Return what rounds say together: the offset is within the bounds of each."""
    gpu = min(rounds)[2]
    least = max(before - there - _drift(there - gpu) for _, before, there in rounds)
    most = min(before + took - there + _drift(there - gpu) for took, before, there in rounds)
    tick = math.gcd(*(there - rounds[0][2] for _, _, there in rounds))
    return Handshake(gpu, gpu + least, gpu + most, gpu + least - ahead, tick)


def _drift(span_ns: int) -> int:
    """Return by how much the offset can change within a span, in ns."""
    return math.ceil(abs(span_ns) * RATE)


@cache
def _native() -> Callable[..., int] | None:
    """Return the function of ``handshake.c``; None where there is no compiler."""
    try:
        function: Any = ctypes.CDLL(str(ASKING.library())).ikp_handshake
    except (OSError, CompileError, RuntimeError):
        return None
    address, number = ctypes.c_void_p, ctypes.c_int64
    function.argtypes = (
        *(address, number, number, number, address),
        *(address, address, address, address),
    )
    function.restype = number
    made: Callable[..., int] = function
    return made


def _urgent_stream() -> ctypes.c_void_p:
    least, greatest, stream = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p()
    ask = "read the priorities of streams"
    cuda.call("cuCtxGetStreamPriorityRange", ctypes.byref(least), ctypes.byref(greatest), to=ask)
    cuda.call(
        "cuStreamCreateWithPriority",
        *(ctypes.byref(stream), _NON_BLOCKING, greatest.value),
        to="make a stream",
    )
    return stream


def _ahead() -> int:
    """Return ``CLOCK_REALTIME`` less ``CLOCK_MONOTONIC``, by the narrowest of some readings."""
    read, realtime, monotonic = time.clock_gettime_ns, time.CLOCK_REALTIME, time.CLOCK_MONOTONIC
    readings = ((read(monotonic), read(realtime), read(monotonic)) for _ in range(4))
    return min((after - before, now - (before + after) // 2) for before, now, after in readings)[1]
