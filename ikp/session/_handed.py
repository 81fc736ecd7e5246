"""The memory that a kernel is handed: a tensor that knows whether its session still reads it.

Every language asks a tensor for its address when it launches, so that is where a launch can be told
that nobody will read what it records.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

from ikp.core.segment import Tensor
from ikp.errors import IkpWarning
from ikp.session.current import Opening

_pinned: dict[int, Tensor] = {}
"""Memory that kernels may write to at any time from now on, by address: never freed."""


def hand_out(data: Tensor, label: str, opening: Opening, *, recording: bool = True) -> Tensor:
    """Return ``data`` as a tensor that notices when a kernel takes its address.

    Args:
        data: the memory of one segment.
        label: what the buffer is called.
        opening: the opening of the session that reads it.
        recording: whether a kernel records into it at all.
    """
    handed = data.as_subclass(_kind())
    handed.ikp_notice = _Notice(data, label, opening) if recording else None
    return handed


class _Notice:
    def __init__(self, data: Tensor, label: str, opening: Opening) -> None:
        self._data, self._label, self._opening = data, label, opening
        self._told = False

    def taken(self) -> None:
        """Take note of a launch: tell if nobody will read it, keep memory that outlives this."""
        over = not (self._opening.lasts and self._opening.here)
        if over or _capturing(self._data):  # a graph launches without asking for the address
            _pinned[self._data.untyped_storage().data_ptr()] = self._data
        if over and not self._told:
            self._told = True
            warnings.warn(self._why(), IkpWarning, stacklevel=4)

    def _why(self) -> str:
        if not self._opening.here:
            return (
                f"a kernel is launched with the buffer {self._label!r} of the process that this "
                "one was forked from, which can't see what is recorded here: it is lost. Open a "
                "session in this process, with a path of its own."
            )
        return (
            f"a kernel is launched with the buffer {self._label!r} after its session ended: what "
            "it records is lost. Take a buffer for each launch, inside the session."
        )


def _capturing(data: Tensor) -> bool:
    import torch

    return bool(data.is_cuda and torch.cuda.is_current_stream_capturing())


@cache
def _kind() -> Any:
    import torch

    class Handed(torch.Tensor):  # type: ignore[misc]  # torch is Any here
        """Like any tensor; what is made of it is a plain one."""

        __torch_function__ = torch._C._disabled_torch_function_impl  # noqa: SLF001 - torch's docs
        ikp_notice: _Notice | None

        def data_ptr(self) -> int:
            """Return the address, as compiled kernels take it."""
            if self.ikp_notice is not None:
                self.ikp_notice.taken()
            return int(super().data_ptr())

        def untyped_storage(self) -> Any:
            """Return the memory, as Triton's interpreter takes it."""
            if self.ikp_notice is not None:
                self.ikp_notice.taken()
            return super().untyped_storage()

    return Handed
