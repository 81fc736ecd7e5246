"""``StreamEvent``: a moment in a stream, to which the stream has come or not."""

from __future__ import annotations

import ctypes

from ikp.driver import cuda


class StreamEvent:
    """An event behind all that is in a stream now, in the current context.

    Args:
        stream: the driver's handle.

    Raises:
        PatchError: the driver refuses, or a kernel has failed.
    """

    __slots__ = ("_event",)

    def __init__(self, stream: int) -> None:
        self._event = 0
        self._event = cuda.event(timed=False)
        record = ctypes.c_void_p(self._event), ctypes.c_void_p(stream)
        cuda.call("cuEventRecord", *record, to="record an event")

    def query(self) -> bool:
        """Return whether the stream has come to it.

        Raises:
            PatchError: work before it failed.
        """
        if self._event and cuda.has_passed(self._event):
            self._destroy()  # now: a reset of the GPU destroys it, too
        return not self._event

    def _destroy(self) -> None:
        event, self._event = self._event, 0
        cuda.destroy_event(event)

    def __del__(self) -> None:
        if self._event:
            self._destroy()
