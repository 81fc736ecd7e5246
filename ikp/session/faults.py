"""Kernel faults on a GPU: failed devices, the segments lost with them, and the error to raise.

Such an error stays: from then on, the device's memory can't be read. Segments keep their labels on
the host, in the order in which they were launched, so the lost ones can be named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ikp.errors import FaultError
from ikp.session.harvest import Taken

_GOES_ON = (
    "A warp goes on after a store that fails, and may finish: look at the ranges that ended last, "
    "too, not at open ones alone."
)
_SHOWN = 3
"""Most labels that the error names of launches that may have failed."""


def failures(devices: Collection[Any]) -> dict[Any, str]:
    """Wait for everything queued on GPUs; return the error of each one that has failed."""
    found: dict[Any, str] = {}
    for device in devices:
        import torch

        try:
            torch.cuda.synchronize(device)
        except RuntimeError as error:
            found[device] = next(iter(str(error).splitlines()), type(error).__name__)
    return found


def lost(taken: Sequence[Taken], failed: Mapping[Any, str]) -> list[Taken]:
    """Return the segments whose memory can't be read any more."""
    return [
        each
        for each in taken
        if each.lifted is None
        and each.drain is None  # what it has read is on the host
        and each.segment.data.is_cuda
        and each.segment.data.device in failed
    ]


def streams(taken: Sequence[Taken], failed: Mapping[Any, str]) -> list[str]:
    """Return the labels of streams that had not ended: what was read while they ran is there."""
    return [
        each.segment.label
        for each in taken
        if each.lifted is None and each.drain is not None and each.segment.data.device in failed
    ]


def fault(
    gone: Sequence[Taken],
    launches: int,
    failed: Mapping[Any, str],
    facts: Mapping[str, str],
    running: Sequence[str] = (),
) -> FaultError:
    """Return the error of a failed GPU: what was read back, what is lost, and what to try.

    Args:
        gone: the segments that are lost, in order.
        launches: how many were recorded in all.
        failed: errors, by device.
        facts: of the session: how kernels were recorded.
        running: labels of streams that had not ended.
    """
    errors = "; ".join(f"{device}: {error}" for device, error in failed.items())
    read = launches - len(gone)
    kept = f"{read} of {launches} recorded launches had been read back, and are in the trace"
    if running:
        kept += f" ({running[-1]} as far as it was read while it ran)"
    text = f"a kernel failed on the GPU ({errors}). Before that, {kept}"
    after = f" {_GOES_ON}" if running else ""
    if not gone:
        return FaultError(f"{text}: none is lost.{after}")
    last = gone[-1].segment.label
    how = facts.get(f"marks in {last}", "")
    recorded = f" ({how.splitlines()[-1]})" if how else ""
    return FaultError(
        f"{text}; {len(gone)} {'are' if len(gone) > 1 else 'is'} lost. The last recorded launch "
        f"was {last}{recorded}{_others(gone, last)}. To see whether records are the cause, run "
        "again with --check, or choose other kernels with --kernel; IKP=0 records nothing." + after
    )


def _others(gone: Sequence[Taken], last: str) -> str:
    """Name the other kernels that are not known to have ended, the latest first."""
    counts = Counter(each.segment.label for each in reversed(gone))
    names = [f"{label} ({count})" for label, count in counts.items() if label != last]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"; not known to have ended: {', '.join(names[:_SHOWN])}{more}" if names else ""
