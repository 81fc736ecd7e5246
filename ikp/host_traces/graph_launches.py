"""Replays of CUDA graphs as slices of their own, each from its first kernel to its last."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import Final

from ikp.core.host_trace import REPLAY, HostSlice, HostTrace, HostTrack
from ikp.core.trace import Launch

_CALL: Final = re.compile(r"cu(da)?GraphLaunch(_ptsz)?$")
_ON_GPU: Final = ("kernel", "gpu_memcpy", "gpu_memset")
_UNNAMED: Final = "CUDA graph"
_TRACK: Final = "replays of CUDA graphs"
_Replay = tuple[str, int | None]
"""A GPU's group of tracks, and the correlation id of the call that replays."""


def _spans(host: HostTrace, calls: Container[int | None]) -> dict[_Replay, tuple[int, int]]:
    """Return when what each call starts on each GPU began and ended."""
    spans: dict[_Replay, tuple[int, int]] = {}
    for each in host.slices:
        if each.correlation in calls and each.category in _ON_GPU:
            key = host.tracks[each.track].group, each.correlation
            start, end = spans.get(key, (each.start_ns, each.end_ns))
            spans[key] = min(start, each.start_ns), max(end, each.end_ns)
    return spans


def _names(
    host: HostTrace, launches: Sequence[Launch], record: Mapping[int, int]
) -> dict[int | None, str]:
    """Return what the graph is called that a call replays, where a launch of it was recorded."""
    return {
        host.slices[index].correlation: launches[launch].replay.rpartition(", ")[0]
        for launch, index in record.items()
        if launches[launch].replay
    }


def with_replays(
    host: HostTrace, launches: Sequence[Launch], record: Mapping[int, int]
) -> HostTrace:
    """Return a trace with a slice for each replay of a graph, on one more track of its GPU.

    All that a call of ``cudaGraphLaunch`` starts has the call's correlation id. A replay of which a
    launch was recorded has the number of its graph, and its own.

    Args:
        host: its slices keep their indices; it may have replays already.
        launches: of ikp's trace.
        record: by launch, the index of its record among the slices.
    """
    calls = {each.correlation for each in host.slices if _CALL.match(each.name)} - {None}
    if not calls or any(each.category == REPLAY for each in host.slices):
        return host
    names = _names(host, launches, record)
    spans = _spans(host, calls)
    gpus = list(dict.fromkeys(group for group, _ in spans))
    tracks = (*host.tracks, *(HostTrack(group, _TRACK) for group in gpus))
    at = {group: number for number, group in enumerate(gpus, len(host.tracks))}
    replays = tuple(
        HostSlice(at[group], names.get(call, _UNNAMED), REPLAY, start, end, call)
        for (group, call), (start, end) in sorted(spans.items(), key=lambda item: item[1])
    )
    return replace(host, tracks=tracks, slices=host.slices + replays)
