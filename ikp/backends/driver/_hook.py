"""``Hook``: the Python side of the interposed CUDA driver library, and what its C files lay out."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from ikp.backends.patched import Aside
from ikp.errors import PatchError
from ikp.sass.cubins.extra_argument import ExtraArgument

_OPTIONS = 64
"""Room for options of the driver's compiler, which has fewer."""


class InterposedLaunch(ctypes.Structure):
    """What the library asks Python about, mostly a launch, as ``launch.h`` lays it out."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        ("id", ctypes.c_uint64),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared", ctypes.c_uint32),
        ("cooperative", ctypes.c_uint32),
        ("stream", ctypes.c_void_p),
        ("extensible", ctypes.c_uint32),
        ("overlaps", ctypes.c_uint32),
        ("node", ctypes.c_uint32),
        ("refused", ctypes.c_uint32),
        ("instead", ctypes.c_void_p),
        ("decided", ctypes.c_uint32),
        ("ordinal", ctypes.c_uint32),
        ("offset", ctypes.c_uint32),
        ("bytes", ctypes.c_uint32),
        ("argument", ctypes.c_uint64 * 9),
        ("params", ctypes.POINTER(ctypes.c_void_p)),
        ("extra", ctypes.POINTER(ctypes.c_void_p)),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint32),
        ("otherwise", ctypes.c_uint32),
        ("replaces", ctypes.c_uint32),
    )

    def append(self, argument: ExtraArgument, words: Sequence[int], replaces: int = 0) -> None:
        """Pass one more argument to the launched kernel.

        Args:
            argument: it.
            words: its value.
            replaces: how many of the kernel's own arguments it replaces, of a word each.
        """
        self.replaces = replaces
        self.argument[: len(words)] = words
        self.ordinal, self.offset = argument.ordinal, argument.offset
        self.bytes = argument.size

    def decide(self, slot: int = 0) -> None:
        """Launch this function plain from now on; count its launches in a slot, none in slot 0."""
        self.decided = slot + 1


class StockedLaunches(ctypes.Structure):
    """Buffers for launches that the library makes without asking, as ``stock.h`` lays them out."""

    _fields_ = (
        ("next", ctypes.c_void_p),
        ("function", ctypes.c_void_p),
        ("id", ctypes.c_uint64),
        ("context", ctypes.c_uint64),
        ("thread", ctypes.c_uint64),
        ("stream", ctypes.c_void_p),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("cooperative", ctypes.c_uint32),
        ("extensible", ctypes.c_uint32),
        ("ordinal", ctypes.c_uint32),
        ("offset", ctypes.c_uint32),
        ("bytes", ctypes.c_uint32),
        ("replaces", ctypes.c_uint32),
        ("instead", ctypes.c_void_p),
        ("changes", ctypes.c_uint64),
        ("revoked", ctypes.c_uint64),
        ("until", ctypes.c_uint64),
        ("count", ctypes.c_uint32),
        ("taken", ctypes.c_uint32),
        ("words", ctypes.c_uint64 * 9),
        ("addresses", ctypes.POINTER(ctypes.c_uint64)),
        ("times", ctypes.POINTER(ctypes.c_int64)),
    )


class _About(ctypes.Structure):
    _fields_ = (
        ("id", ctypes.c_uint64),
        ("parent", ctypes.c_void_p),
        ("name", ctypes.c_uint64),
        ("origin", ctypes.c_uint64),
        ("image", ctypes.c_uint64),
        ("kind", ctypes.c_uint32),
    )


class HandleKind(IntEnum):
    """The kinds of objects that the driver gives handles of."""

    UNKNOWN = 0
    MODULE = 1
    LIBRARY = 2
    FUNCTION = 3
    KERNEL = 4  # a function for any context
    CONTEXT = 5
    OTHER = 6  # the driver made it unseen by the library


class NodeKind(IntEnum):
    """What is asked about, where it is no launch, as ``launch.h`` numbers it."""

    NODE = 1  # a program puts a node into a graph itself
    CAPTURE_BEGINS = 2  # of a stream
    CAPTURE_ENDS = 3
    CAPTURE_INTO = 4  # begins, into a graph that the program has made, as bodies of nodes are
    PROFILER_STARTS = 5  # the program calls cudaProfilerStart
    PROFILER_STOPS = 6
    RESET = 7  # of a device, whose number is the grid's first, is about to begin
    EXIT = 8  # the program calls C's exit(), which Python does not see


class _Part(IntEnum):
    """The parts of a handle's entry that are copied."""

    NAME = 0
    ORIGIN = 1
    IMAGE = 2


_FUNCTIONS = (
    *("PyGILState_Ensure", "PyGILState_Release", "PyLong_FromVoidPtr"),
    *("PyObject_CallFunctionObjArgs", "PyErr_Fetch", "PyErr_NormalizeException"),
    *("PyException_SetTraceback", "PyObject_Type", "Py_DecRef", "PyErr_SetObject"),
    *("Py_AddPendingCall", "PyThreadState_SetAsyncExc", "PyThread_get_thread_ident"),
)
"""The functions of Python that the library calls, in the order of ``python.h``."""


@dataclass(frozen=True, slots=True)
class DriverObject:
    """A module, a library or a function, as the library saw the driver make it."""

    handle: int
    id: int  # unique, while the driver may give out the handle again
    parent: int
    name: str
    origin: str  # the file that has the image, or the file of the code that loaded it
    size: int  # bytes of the image
    kind: HandleKind


class Hook:
    """The loaded library."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        path = library._name  # noqa: SLF001 - ctypes' docs
        self._at_once = ctypes.PyDLL(path)  # what returns at once keeps Python's lock
        self._held: object = None
        library.ikp_about.argtypes = (ctypes.c_void_p, ctypes.POINTER(_About))
        library.ikp_copy.argtypes = (
            *(ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t),
        )
        library.ikp_options.argtypes = (
            *(ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint, ctypes.c_void_p),
        )
        counts = ctypes.POINTER(ctypes.c_uint64)()
        self._free = iter(range(1, int(library.ikp_passed(ctypes.byref(counts)))))
        self.audited = ctypes.cast(library.ikp_audited, ctypes.c_void_p)
        self.passed = counts
        """Launches of functions that run plain for good, by the slot in which each is counted."""

    def ask(self, whom: Callable[[InterposedLaunch], None] | None) -> None:
        """Have launches of functions not decided yet go to ``whom``; None ends that.

        An exception of ``whom`` is raised anew in the same thread, once that is back in Python. The
        plain kernel is launched then.
        """
        if whom is None:
            self._library.ikp_ask(None, None)
            return

        def asked(address: int) -> None:
            whom(InterposedLaunch.from_address(address))

        found = [getattr(ctypes.pythonapi, name) for name in _FUNCTIONS]
        main = threading.main_thread().ident or 0
        addresses = [ctypes.cast(each, ctypes.c_void_p).value for each in found]
        functions = (ctypes.c_void_p * (len(found) + 1))(*addresses, main)
        self._library.ikp_ask(ctypes.py_object(asked), functions)
        self._held = asked  # as long as the library may call it

    def about(self, handle: int) -> DriverObject | None:
        """Return the library's entry of a handle; None where it has none."""
        about = _About()
        if self._library.ikp_about(handle, ctypes.byref(about)):
            return None
        name = self._copy(handle, about.id, _Part.NAME, about.name)
        origin = self._copy(handle, about.id, _Part.ORIGIN, about.origin)
        if name is None or origin is None:
            return None  # it has just gone
        return DriverObject(
            handle,
            about.id,
            about.parent or 0,
            name.decode(errors="replace"),
            origin.decode(errors="replace"),
            about.image,
            HandleKind(about.kind),
        )

    def image(self, known: DriverObject) -> bytes:
        """Return the image that was loaded as a module or library.

        Raises:
            PatchError: it is not there any more.
        """
        made = self._copy(known.handle, known.id, _Part.IMAGE, known.size)
        if made is None:
            raise PatchError(
                f"its code was loaded from {known.origin or 'memory'}, which has been unloaded, "
                "changed or deleted since."
            )
        return made

    def options(self, known: DriverObject) -> dict[int, int]:
        """Return the options of the driver's compiler with which a program loaded an image.

        Raises:
            PatchError: it is not there any more.
        """
        made, count = (ctypes.c_uint64 * (2 * _OPTIONS))(), ctypes.c_uint32()
        gone = self._library.ikp_options(
            known.handle, known.id, made, _OPTIONS, ctypes.byref(count)
        )
        if gone or count.value > _OPTIONS:
            raise PatchError("the options with which it was loaded are not known.")
        return {made[2 * each]: made[2 * each + 1] for each in range(count.value)}

    def wake(self) -> None:
        """Take all decisions back: each function's next launch is asked about again."""
        self._library.ikp_wake()

    def revoke(self) -> None:
        """Have the library ask about the next launches, and take no buffer that it has now."""
        self._at_once.ikp_revoke()

    @property
    def revoked(self) -> int:
        """How often ``revoke`` was called, or the environment changed; of use to compare alone."""
        return self._counted(self._at_once.ikp_revoked)

    @property
    def changes(self) -> int:
        """How often settings of functions have changed, or objects have gone."""
        return self._counted(self._at_once.ikp_changes)

    @staticmethod
    def _counted(call: Callable[[Any], int]) -> int:
        count = ctypes.c_uint64()
        call(ctypes.byref(count))
        return count.value

    def stock(self, made: StockedLaunches) -> bool:
        """Have the library take buffers of a stock; return whether what they are for is there.

        The caller holds ``made`` and its arrays until ``end_stock``.
        """
        return not self._at_once.ikp_stock(ctypes.byref(made))

    def end_stock(self, gone: StockedLaunches) -> int:
        """Have the library take no buffer of a stock any more; return how many were taken."""
        return int(self._at_once.ikp_stock_end(ctypes.byref(gone)))

    def aside(self) -> Aside:
        """Return what this thread's launches are kept from stocks by."""
        cell = ctypes.POINTER(Aside)()
        self._at_once.ikp_aside(ctypes.byref(cell))
        return cell.contents

    def watch_exit(self) -> None:
        """Have C's ``exit`` asked about, before destructors of what was made up to now.

        In this thread, before all destructors: call it in each one that launches.
        """
        self._at_once.ikp_watch_exit()

    def slot(self) -> int:
        """Return a slot that is not in use yet; 0 where all are."""
        return next(self._free, 0)

    def dropped(self) -> int:
        """Return how many entries of handles the library has dropped."""
        count = ctypes.c_uint64()
        self._library.ikp_dropped(ctypes.byref(count))
        return count.value

    def lives(self, handle: int, number: int) -> bool:
        """Return whether a handle is still of the object that had this id."""
        about = _About()
        return not self._library.ikp_about(handle, ctypes.byref(about)) and about.id == number

    def _copy(self, handle: int, number: int, part: _Part, size: int) -> bytes | None:
        made = ctypes.create_string_buffer(max(size, 1))
        gone = self._library.ikp_copy(handle, number, part, made, size)
        return None if gone else made.raw[:size]
