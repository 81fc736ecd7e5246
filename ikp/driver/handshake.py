"""``Dialogue``: handshakes with a GPU, which bound the offset of its timer from the host's clocks.

One thread of a kernel of its own waits for a word in the host's pinned memory, and answers with
``%globaltimer``. The kernel ends by itself: after the last answer, or where the host is silent. It
is launched on a stream of its own with high priority, and uses neither shared memory nor the
program's streams.
"""

from __future__ import annotations

import ctypes
import math
import time
from typing import Final

from ikp.core.host_clock import STEP_NS, Handshake
from ikp.driver.cuda import call, under_way, use_primary_context

ROUNDS: Final = 8
"""Questions of one handshake; the narrowest answer counts."""
PATIENCE_NS: Final = 400_000
"""The time after which the kernel ends in any case."""
_SPINS: Final = 4000
"""Reads of an answer's word, some 40 ns each, before the host gives up."""
_STARTING: Final = 1000
_WORDS: Final = 2 + ROUNDS
_NON_BLOCKING: Final = 1
_PORTABLE_MAPPED: Final = 1 | 2
"""Flags, as ``cuda.h`` counts them."""

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
        use_primary_context(ordinal)
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        load = "load the kernel of handshakes"
        call("cuModuleLoadData", ctypes.byref(module), _CODE.encode(), to=load)
        call("cuModuleGetFunction", ctypes.byref(function), module, b"ikp_handshake", to=load)
        self._function, self._stream = function, _urgent_stream()
        host, there = ctypes.c_void_p(), ctypes.c_uint64()
        size = ctypes.c_size_t(8 * _WORDS)
        call("cuMemHostAlloc", ctypes.byref(host), size, _PORTABLE_MAPPED, to="pin memory")
        call("cuMemHostGetDevicePointer_v2", ctypes.byref(there), host, 0, to="map pinned memory")
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
        if under_way(self._stream.value or 0):
            return False
        ctypes.memset(self._held, 0, ctypes.sizeof(self._held))
        call(
            "cuLaunchKernel",
            *(self._function, 1, 1, 1, 1, 1, 1, 0, self._stream, self._parameters, None),
            to="launch the kernel of handshakes",
        )
        return True

    @property
    def started(self) -> bool:
        """Whether the kernel runs, or ran; waits a few microseconds for it."""
        words = self._words
        return any(words[1] for _ in range(_STARTING))

    def exchange(self) -> Handshake | None:
        """Return the narrowest handshake; None where the kernel or the host was late.

        Python's lock is held meanwhile: some 2 us a round.
        """
        words, read, realtime = self._words, time.clock_gettime_ns, time.CLOCK_REALTIME
        ahead, spins, found = _ahead(), range(_SPINS), []
        for number in range(1, ROUNDS + 1):
            answer = number + 1
            before = read(realtime)
            words[0] = number
            for _ in spins:
                if words[answer]:
                    break
            else:
                break
            found.append((read(realtime) - before, before, words[answer]))
        if not found or abs(_ahead() - ahead) >= STEP_NS:
            return None
        wide, before, there = min(found)
        tick = math.gcd(*(each[2] - found[0][2] for each in found))
        return Handshake(there, before, before + wide, before - ahead, tick)


def _urgent_stream() -> ctypes.c_void_p:
    least, greatest, stream = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p()
    ask = "read the priorities of streams"
    call("cuCtxGetStreamPriorityRange", ctypes.byref(least), ctypes.byref(greatest), to=ask)
    call(
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
