"""Clocks of several hosts, compared over a process group as ``ikp.gather`` joins their traces.

One rank asks one rank of each other host for its Unix time, and reads its own before and after: a
handshake, as with a GPU. Hosts that have been compared before, by an earlier ``ikp.gather`` of the
process, have a rate that is known; others' clocks may differ by ``RATE`` since a launch.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.host_clock import BOOT, Handshake, HostClock
from ikp.core.warps import launch_bounds
from ikp.trace import Trace

_ROUNDS: Final = 64
"""Questions of a comparison: 10 ms where an answer takes 150 us."""
_READINGS: Final = 16
_KEPT: Final = 1 << 12
"""The most handshakes with a host that are kept; of more, every second one."""
_handshakes: dict[str, list[Handshake]] = {}
"""Of this process as the one that asks, by the other host's boot."""


def compared(dist: Any, group: Any, boots: Mapping[int, str], asks: int) -> dict[str, HostClock]:
    """Return the clocks of other hosts on the own host's; nothing where this rank does not ask.

    A collective call.

    Args:
        dist: torch.distributed.
        group: the process group.
        boots: by rank of the group, as numbered among all ranks, the boot of its host.
        asks: the rank that asks.

    Returns:
        By boot: what makes times of that host times of the asking rank's.
    """
    rank, found = int(dist.get_rank()), dict[str, HostClock]()
    for boot in dict.fromkeys(boots[each] for each in sorted(boots)):
        if boot == boots[asks]:
            continue
        answers = min(each for each in boots if boots[each] == boot)
        if rank == asks:
            kept = _handshakes.setdefault(boot, [])
            kept += _asked(dist, group, answers)
            if len(kept) > _KEPT:
                del kept[1::2]
            found[boot] = HostClock(kept)
        elif rank == answers:
            _answer(dist, group, asks)
    return found


def _asked(dist: Any, group: Any, answers: int) -> list[Handshake]:
    """Return what came of asking a rank for its time."""
    word, ahead, made = _word(dist, group), _ahead_ns(), list[Handshake]()
    for _ in range(_ROUNDS):
        before = _now_ns()
        dist.send(word, dst=answers, group=group)
        dist.recv(word, src=answers, group=group)
        there = int(word.item())
        made.append(Handshake(there, before, _now_ns(), before - ahead, tick_ns=1))
    return made


def _answer(dist: Any, group: Any, asks: int) -> None:
    word = _word(dist, group)
    for _ in range(_ROUNDS):
        dist.recv(word, src=asks, group=group)
        word.item()  # NCCL only queues what it is to receive
        word.fill_(_now_ns())
        dist.send(word, dst=asks, group=group)


def _word(dist: Any, group: Any) -> Any:
    """Return one integer where the group's messages are: in the host's memory if it can be."""
    import torch

    on_host = "cpu:" in str(dist.get_backend_config(group))
    return torch.zeros(1, dtype=torch.int64, device="cpu" if on_host else "cuda")


def _now_ns() -> int:
    return time.time_ns()


def _ahead_ns() -> int:
    """Return by how much ``CLOCK_REALTIME`` is ahead of ``CLOCK_MONOTONIC``, in ns."""
    every = [(time.monotonic_ns(), _now_ns(), time.monotonic_ns()) for _ in range(_READINGS)]
    first, now, last = min(every, key=lambda each: each[2] - each[0])
    return now - (first + last) // 2


def placed(trace: Trace, clock: HostClock, boot: str) -> tuple[Trace, str]:
    """Return another host's trace with times of the own host, and in words how exact they are.

    Where the clocks may agree, by what was measured, times stay: clocks that are kept in
    step, as by PTP, agree better than messages can show.

    Args:
        trace: its launches.
        clock: of its host.
        boot: the own one.
    """
    now = np.array([clock.last_ns])
    offset, bound = int(clock.offset(now)[0]), float(clock.bound(now)[0])
    agree = abs(offset) <= bound
    first, last = launch_bounds(trace)
    ran = np.flatnonzero(first <= last)
    further = np.zeros(len(first))
    further[ran] = clock.bound_within(first[ran], last[ran]) + (abs(offset) if agree else 0.0)
    launches = tuple(
        replace(each, clock=replace(each.clock, unix_bound_ns=each.clock.unix_bound_ns + more))
        if each.clock.unix_bound_ns is not None
        else each
        for each, more in zip(trace.launches, further.tolist(), strict=True)
    )
    tables: dict[str, Any] = {}
    if not agree:
        for name in ("slots", "others", "events"):
            table = getattr(trace, name)
            times = {each: _moved(clock, getattr(table, each)) for each in ("start_ns", "end_ns")}
            tables[name] = replace(table, **times)
    known = {**trace.provenance, BOOT: boot}
    most = f"within {float(further.max(initial=bound)) / 1e3:,.1f} us"
    apart = f"{abs(offset) / 1e3:,.1f} us {'behind' if offset > 0 else 'ahead'}"
    said = f"agrees {most}" if agree else f"was {apart}, which is put right {most}"
    return replace(trace, launches=launches, provenance=known, **tables), said


def _moved(clock: HostClock, times: NDArray[np.int64]) -> NDArray[np.int64]:
    moved: NDArray[np.int64] = times + clock.offset(times)
    return moved
