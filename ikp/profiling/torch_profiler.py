"""torch.profiler around a session: what the host and whole GPUs did, beside the session's trace."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from ikp.core.host_trace import HostTrace
from ikp.errors import UsageError
from ikp.host_traces import kineto


class HostRecording:
    """A recording of torch.profiler. The thread that begins it ends it.

    Raises:
        UsageError: a torch.profiler is active: a second one would end it without a word.
    """

    def __init__(self) -> None:
        import torch

        if torch.autograd._profiler_enabled():  # noqa: SLF001 - a public one there is not
            raise UsageError(
                "host=True begins a torch.profiler, and one is active already, which that would "
                "end. Leave host out, export the active one's trace with export_chrome_trace, and "
                "put both into one file: ikp join KERNEL.pftrace HOST.json."
            )
        self._cuda = torch.cuda
        self._profiler: Any = torch.profiler.profile(acc_events=True)
        self._profiler.start()

    def stop(self) -> HostTrace:
        """End the recording, after all kernels so far, and return it.

        Raises:
            RuntimeError: a kernel has failed, or the program ended it.
            UsageError: torch's file can't be read.
        """
        if self._cuda.is_available():
            self._cuda.synchronize()  # a kernel that has not ended leaves no record
        self._profiler.stop()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "torch.profiler"
            self._profiler.export_chrome_trace(f"{path}.json")
            return replace(kineto.read(f"{path}.json"), source="torch.profiler")
