"""``run_once``: a further run of a launch's kernel on copied memory, one for each loaded module."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, TypeVar

from ikp.backends.checked import Launched, wait_for_earlier
from ikp.backends.refusing import in_words
from ikp.checking.comparison import Buffer
from ikp.driver import cuda
from ikp.errors import IkpError, PatchError

if TYPE_CHECKING:
    from ikp.backends.loaded import Module

_Found = TypeVar("_Found")
_WINDOW: Final = 1 << 32
"""Probes keep the upper half of an address: the buffer lies inside one such window."""
_TRIES: Final = 4


def run_once(
    module: Module,
    what: str,
    stream: int,
    shown: str,
    launched: Callable[[], Launched],
    run: Callable[[Launched], _Found],
) -> _Found | str | None:
    """Make a further run of a launch's kernel, if it is the module's first one of its kind.

    Args:
        module: the patched kernel that is launched.
        what: the kind of run.
        stream: the driver's handle.
        shown: the kernel's name in traces, where that is not its symbol.
        launched: returns the launch of the plain kernel.
        run: makes the run, and returns what it found.

    Returns:
        What was found; why nothing was; None where an earlier launch had such a run.
    """
    if what in module.further:
        return None
    if cuda.capturing(stream):
        return "a CUDA graph captures its launch."
    module.further.add(what)
    try:
        wait_for_earlier()
        launch = launched()
        with in_words(launch.name, shown):
            return run(launch)
    except IkpError as error:
        return str(error)


@contextmanager
def zeros(nbytes: int) -> Iterator[Buffer]:
    """Lend memory of the device, zeroed, inside one window of addresses.

    Raises:
        PatchError: there is not so much.
    """
    taken = list[int]()
    try:
        for _ in range(_TRIES):
            taken.append(address := cuda.allocate(nbytes))
            if address // _WINDOW == (address + nbytes - 1) // _WINDOW:
                break
        else:
            raise PatchError(f"no {nbytes:,} bytes lie in one window of addresses.")
        size = ctypes.c_size_t(nbytes)
        cuda.call("cuMemsetD8_v2", ctypes.c_uint64(address), 0, size, to="clear memory")
        cuda.wait()
        yield Buffer("addresses", address, nbytes)
    finally:
        for each in taken:
            with suppress(PatchError):
                cuda.free(each)
