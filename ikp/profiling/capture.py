"""``ikp.capture``: runs a function again with larger buffers while records are dropped."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from os import PathLike
from typing import Any

from ikp.core import abi
from ikp.core.host_trace import HostTrace
from ikp.errors import BufferError, IkpWarning, UsageError
from ikp.profiling.profile import profile
from ikp.session.memory import DEFAULT_BYTES
from ikp.trace import Trace


def capture(
    function: Callable[[profile], Any],
    *,
    path: str | PathLike[str] | None = None,
    force: bool = False,
    attempts: int = 5,
    **options: Any,
) -> Trace:
    """Run ``function(prof)`` until its buffers hold every record, and return the trace.

    Each buffer that dropped records is made as large as it needed (or twice as large, where that is
    unknown) and everything runs again. So ``function`` must be safe to run more than once.

    Args:
        function: launches kernels with ``prof.buffer(label)`` and no size of its own.
        path: where to write the final trace.
        force: overwrite an existing file.
        attempts: how many runs at most.
        options: as for ``ikp.profile``.

    Raises:
        BufferError: records were still dropped after the last run; says how many.
        ExportError: the trace can't be written.
    """
    if attempts < 1:
        raise UsageError(f"attempts={attempts}: ikp.capture runs the function at least once.")
    default = DEFAULT_BYTES.get(options.get("mode", "timeline"), 0)
    size = int(options.pop("buffer_size", None) or default)
    runs, needed, dropped = 0, size, 0
    while runs < attempts and size <= needed <= abi.MAX_SEGMENT_BYTES:
        size, runs = needed, runs + 1
        with _Attempt(path, force=force, buffer_size=size, **options) as prof:
            function(prof)
        needed, dropped = _needed(prof.trace), prof.trace.dropped
        if not needed:
            for text in prof.texts:
                warnings.warn(text, IkpWarning, stacklevel=2)
            return prof.trace
    if needed <= size:
        raise BufferError(
            f"{dropped} records were dropped in buffers smaller than {size} bytes. Leave size out "
            "of prof.buffer in what ikp.capture runs: it finds the size."
        )
    raise BufferError(
        f"{dropped} records were still dropped with buffers of {size} bytes after {runs} runs; "
        f"{needed} bytes would be needed, of at most {abi.MAX_SEGMENT_BYTES}. Record less (fewer "
        "iterations or ranges), or keep only the latest with overflow='wrap'."
    )


class _Attempt(profile):
    """A session that writes its trace only if nothing was lost, and keeps its warnings."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.texts: list[str] = []

    def _save(self, trace: Trace, *, failed: bool, host: HostTrace | None = None) -> str:
        return "" if _needed(trace) else super()._save(trace, failed=failed, host=host)

    def _tell(self, text: str, error: BaseException | None) -> None:
        if error is None:
            self.texts.append(text)
        else:
            super()._tell(text, error)


def _needed(trace: Trace) -> int:
    """Return the size that a buffer must have to lose nothing; 0 if all were large enough."""
    return max((launch.needed_bytes for launch in trace.launches), default=0)
