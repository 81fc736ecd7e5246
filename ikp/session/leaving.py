"""The end of a GPU's memory in a program that goes on: a reset, as ``cudaDeviceReset`` makes it, or
the program's last use of the primary context.

Either frees all memory of the device, and all that is pinned for it: segments, the service's
copies, handshakes. So all that is recorded comes to the host before it, and the service's thread
ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Protocol, cast

from ikp.driver import cuda
from ikp.errors import PatchError
from ikp.session import current, replays
from ikp.session.device import Device
from ikp.session.segment_sources import ends_within
from ikp.session.service import DeviceService, services
from ikp.signals import pass_on
from ikp.warning import warn

RESET: Final = (
    "the program has reset the GPU (cudaDeviceReset) or given its context back, and ikp's memory "
    "with it: launches after that are not recorded."
)
_PATIENCE_S: Final = 5.0
"""The longest wait for kernels before a reset, which ends those that run on."""
_left: set[int] = set()
before: list[Callable[[], None]] = []
"""What else is to be done before a reset, while the GPUs are still as they were."""


class _Leaver(Protocol):
    def leave(self, device: Device, *, readable: bool) -> None:
        """Copy to the host all that is recorded on a GPU."""


def leave(ordinal: int) -> bool:
    """Read what is recorded on a GPU that is about to be reset; record nothing on it any more.

    Args:
        ordinal: its number, as the driver counts.

    Returns:
        Whether anything was recorded there; else launches after the reset may be.
    """
    if before:
        _failure(ordinal)
    for each in before:
        try:
            each()
        except Exception as error:  # noqa: BLE001 - the program resets the GPU all the same
            pass_on(error)
    for device, service in services():
        if isinstance(service, DeviceService) and device.index == ordinal and ordinal not in _left:
            _left.add(ordinal)
            _leave(device, service)
    return ordinal in _left


def _leave(device: Device, service: DeviceService) -> None:
    from ikp.session.clocks import clock_of  # not for a program that launches nothing

    lost = _failure(device.index or 0)
    try:
        for each in _recordings():
            try:
                each.leave(device, readable=not lost)
            except Exception as error:  # noqa: BLE001 - the reset comes all the same
                pass_on(error)
                lost = f"{type(error).__name__}: {error}"
                each.leave(device, readable=False)
        replays.forget(device)
        if (clock := clock_of(device)) is not None:
            clock.refused = clock.refused or RESET
    finally:
        service.end(RESET)
    if lost:
        warn(
            f"what was not read back before the program reset the GPU is lost: {lost}", stacklevel=2
        )


def _failure(ordinal: int) -> str:
    """Wait for a GPU's kernels; return why its memory can't be read, if it can't."""
    try:
        return "" if _has_ended(ordinal) else "a kernel runs on"
    except PatchError as error:
        return str(error)


def _recordings() -> Iterator[_Leaver]:
    every = (each.recording for each in current.all_open())
    return (cast("_Leaver", each) for each in every if each is not None)


def _has_ended(ordinal: int) -> bool:
    """Wait for the GPU's kernels; return whether they have ended.

    Raises:
        PatchError: one has failed.
    """

    def wait() -> None:
        cuda.use_primary_context(ordinal)
        cuda.wait()

    try:
        return ends_within(_PATIENCE_S, wait)
    except RuntimeError:  # the program has come to its end, where Python starts no thread (3.12)
        cuda.wait()
        return True
