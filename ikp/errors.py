"""The exception classes of ``ikp``, one per kind of mistake, and its warning class.

A message says what happened, where, why, and what to do about it. All errors derive from
:class:`IkpError`, so ``except ikp.IkpError`` catches each of them.
"""

from __future__ import annotations

from ikp.terminal import message


class _Readable:
    """A mixin that prints a message with control characters escaped and long names cut."""

    def __str__(self) -> str:
        return message(super().__str__())


class IkpError(_Readable, Exception):
    """Base of every error raised by ``ikp``."""


class UsageError(IkpError):
    """A call that can't mean anything: wrong type, wrong order, unknown option."""


class KernelError(UsageError):
    """A verb used wrongly inside a kernel; raised while the kernel is traced or interpreted."""


class RegionError(UsageError):
    """A region name or id that is invalid, or two names that share one id."""


class BufferError(IkpError):
    """A buffer that can't be allocated, is too small, or lies on the wrong device."""


class DecodeError(IkpError):
    """Bytes that are not a segment written by this version of ``ikp``."""


class ExportError(IkpError):
    """A trace that can't be written or read at the given path."""


class InspectError(IkpError):
    """Machine code that can't be read, or that holds no records."""


class PatchError(IkpError):
    """Machine code, PTX or a chip that is not known well enough to insert probes."""


class CheckError(IkpError):
    """A kernel fails with records, and not without; see ``ikp.instrument``."""


class FaultError(IkpError):
    """A kernel failed on the GPU: the trace holds what was read back before, and no more."""


class WorkerError(IkpError):
    """A process that died while it worked on a file."""


class PluginError(IkpError):
    """A backend or exporter that is missing, broken, or written for another interface."""


class IkpWarning(_Readable, UserWarning):
    """Something was lost or estimated; the trace says how much."""
