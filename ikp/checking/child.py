"""Main loop of the process that checks kernels: it has a CUDA context of its own.

It is no child of the program: a program that waits for all its children does not wait for this
process. It shares only staged memory and a connection with the program. It ends when the program
does, and after a kernel has failed: its context can't be used any more.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import sys
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, Final

from ikp.checking.address_space import Reserved, TakenError, mapped
from ikp.checking.comparison import Buffer, CheckResult, NoCopyRoomError
from ikp.checking.messages import (
    STAGED_BYTES,
    Content,
    Failure,
    Last,
    Ready,
    Request,
    RunKernels,
    Stage,
    StagedCopy,
)
from ikp.checking.runner import DeviceMemory, run, time_in_turn
from ikp.driver import cuda, cuda_memory
from ikp.errors import PatchError

_ASK: Final = 0xFFFFFFFF
_FROM_BELOW: Final = 0x0200000
"""``ADDR_COMPAT_LAYOUT``: libraries lie low, where no other process has memory of a device."""


def begin(arguments: list[str]) -> None:
    """Fork to a process of its own, with another layout of addresses, and serve.

    Args:
        arguments: of this process: descriptors of a connection and of shared memory, the identity
            of the device, addresses to keep free, and the command that starts it again.
    """
    connection, shared, device, places, *again = arguments
    if again:
        if os.fork():
            os._exit(0)
        _lay_out([*again, connection, shared, device, places])
    bounds = [int(each) for each in places.split()]
    memory = list(zip(bounds[::2], bounds[1::2], strict=True))
    serve(Connection(int(connection)), int(shared), bytes.fromhex(device), memory)


def _lay_out(again: list[str]) -> None:
    """Start again, with libraries at low addresses, where no device memory is.

    Where the system does not allow that, an address may be taken; another process is tried then.
    """
    personality = ctypes.CDLL(None).personality
    had = personality(ctypes.c_ulong(_ASK))
    if had != -1 and personality(ctypes.c_ulong(had | _FROM_BELOW)) != -1:
        os.execv(sys.executable, again)  # noqa: S606 - the same program


def serve(
    connection: Connection, shared: int, device: bytes, places: Sequence[tuple[int, int]]
) -> None:
    """Check kernels until the program ends.

    Args:
        connection: to the program.
        shared: descriptor of the memory through which copies go.
        device: the device's identity.
        places: ranges of addresses that a context must not take.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    staged = mmap.mmap(shared, STAGED_BYTES)
    try:
        connection.send(Ready(os.getpid()))
        cuda.call("cuInit", 0, to="begin")
        reserved = Reserved(places)
        number = cuda.use_device(device)
        connection.send(Ready(os.getpid()))
        while True:
            _check(connection, connection.recv(), staged, number, reserved)
    except PatchError as error:
        connection.send(Failure(str(error)))
    except (EOFError, OSError):  # the program has ended
        pass


def _check(
    connection: Connection, request: Request, staged: mmap.mmap, device: int, reserved: Reserved
) -> None:
    memory = DeviceMemory()
    try:
        with mapped(request.memory, device, reserved):
            connection.send(Ready(os.getpid()))
            _fill(connection, staged)
            stage: Callable[[bool, float], Any] = lambda *one: connection.send(Stage(*one))  # noqa: E731
            make = time_in_turn if request.rounds else run
            verdict = make(request, memory, stage)
            if not memory.lasts and isinstance(verdict, CheckResult):
                connection.send(Last(verdict))
                os._exit(0)  # in a context that is lost, no memory can be freed
            if (
                request.result is not None
                and isinstance(verdict, CheckResult)
                and not verdict.refused
            ):
                _return(connection, request.result, staged)
    except TakenError as error:
        connection.send(Failure(str(error), error.place))
    except NoCopyRoomError as error:
        connection.send(Failure(f"no room for copies of its buffers: {error}"))
    except PatchError as error:
        connection.send(Failure(str(error)))
    except Exception as error:  # noqa: BLE001 - the program reports it
        connection.send(Failure(f"{type(error).__name__}: {error}"))
    else:
        connection.send(verdict)


def _return(connection: Connection, result: Buffer, staged: mmap.mmap) -> None:
    """Copy a result to the program."""
    held = (ctypes.c_char * STAGED_BYTES).from_buffer(staged)
    cuda_memory.copy_to_host(ctypes.addressof(held), result.address, result.nbytes)
    connection.send(Content(result.nbytes))


def _fill(connection: Connection, staged: mmap.mmap) -> None:
    """Copy the program's memory to this process, piece by piece, until ``RunKernels`` comes."""
    held = (ctypes.c_char * STAGED_BYTES).from_buffer(staged)
    while not isinstance(piece := connection.recv(), RunKernels):
        assert isinstance(piece, StagedCopy)  # noqa: S101 - both ends are ikp's
        cuda_memory.copy_from_host(piece.address, ctypes.addressof(held), piece.nbytes)
        connection.send(Ready(os.getpid()))
