"""The model of the driver in this process: ``Launches`` decides, and what was launched is read."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from ikp.backends import loaded, patched
from ikp.backends.driver import _launch_recorder, _seen_code, launches
from ikp.backends.driver._hook import Hook
from ikp.backends.driver._seen_kernels import KernelMemory
from ikp.core.segment import EVERYTHING
from ikp.driver import cuda
from ikp.probes.made_patch import Patch
from tests.backends.driver.model.building import Built
from tests.backends.driver.program import Launcher
from tests.launch_config import Config

Handle = ctypes.c_void_p
SIZE = 128


class Ran(ctypes.Structure):
    """The last launch of this thread, as ``driver.h`` has it."""

    _fields_ = (
        ("times", ctypes.c_uint64),
        ("code", ctypes.c_int),
        ("patched", ctypes.c_int),
        ("function", Handle),
        ("name", ctypes.c_char * 8),
        ("shared", ctypes.c_uint),
        ("attributes", ctypes.c_uint),
        ("stream", Handle),
    )


class Thing(ctypes.Structure):
    """What a handle of the model stands for."""

    _fields_ = (
        ("kind", ctypes.c_int),
        *((name, Handle) for name in ("of", "context", "inner")),
        ("number", ctypes.c_uint64),
        *((name, ctypes.c_int) for name in ("code", "patched", "cache", "banks")),
        ("attributes", ctypes.c_int * 16),
        ("name", ctypes.c_char * 8),
    )


def image(code: int, *, records: bool = False) -> bytes:
    """Return a file that stands for machine code."""
    made = bytearray(SIZE)
    made[:4], made[32] = b"\x7fELF", SIZE
    made[64:68] = code.to_bytes(4, "little")
    if records:
        made[80:90] = b"ikp_buffer"
    return bytes(made)


class Counting(Launcher):
    """Records the first launches of each kernel, as the launcher of a whole program does."""

    def __init__(self, most: int = 1 << 30) -> None:
        super().__init__()
        self.most, self.seen = most, Counter[str]()
        self.during: Any = lambda: None  # called while a launch is decided

    def chosen(self, kernel: Any, capture: int | None = None) -> Any:
        self.during()
        self.seen[kernel.full_name] += 1
        if self.seen[kernel.full_name] > self.most:
            self.count_plain(kernel, "over")
            return None
        return super().chosen(kernel, capture)

    def over(self, kernel: Any) -> str | None:
        return "over" if self.seen[kernel.full_name] >= self.most else None


def patched_form(code: bytes) -> Any:
    """Return a patch of such a file."""
    number = int.from_bytes(code[64:68], "little")
    return SimpleNamespace(
        registers=(0, 0),
        cubin=image(number, records=True),
        argument=None,
        notes=(),
        kept="",
        fewer_blocks=False,
        warps=1,
        most=1,
        sample=EVERYTHING,
        select=False,
        messages=(),
        fits=lambda _: True,
        size_for_cell=int,
    )


class Driven:
    """A program on the model, through the library before it."""

    def __init__(self, built: Built, launcher: Launcher) -> None:
        self.library: Any = ctypes.CDLL(str(built.hook))
        self.model: Any = ctypes.CDLL(str(built.driver))
        self.model.model_ran.restype = ctypes.POINTER(Ran)
        self.model.model_current.restype = Handle
        self.library.cuLaunchKernel.argtypes = [Handle, *[ctypes.c_uint] * 7, *[Handle] * 3]
        self.hook, self.launcher = Hook(self.library), launcher
        self.launches = launches.Launches(self.hook, launcher)
        context = Handle()
        self.library.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
        self.library.cuCtxSetCurrent(context)

    def call(self, name: str, *arguments: Any) -> int:
        """Call a function that gives out a handle; return that, or 0 where it fails."""
        made = Handle()
        passed = [Handle(each) if isinstance(each, int) else each for each in arguments]
        if getattr(self.library, name)(ctypes.byref(made), *passed):
            return 0
        return made.value or 0

    def load(self, code: int) -> int:
        """Load a module."""
        return self.call("cuModuleLoadData", image(code))

    def load_library(self, code: int) -> int:
        """Load a library."""
        return self.call("cuLibraryLoadData", image(code), None, None, 0, None, None, 0)

    def thing(self, handle: int) -> Thing:
        """Return what a handle stands for."""
        return Thing.from_address(handle)

    def launch(self, function: int) -> tuple[int, str, bool]:
        """Launch; return which code ran, by which name, and whether with records."""
        code = self.library.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, None, None, None)
        assert code == 0
        ran = self.model.model_ran().contents
        return ran.code, ran.name.decode(), bool(ran.patched)

    def launch_with(
        self, function: int, attributes: Sequence[int], shared: int = 0, stream: int = 0
    ) -> Ran:
        """Launch with attributes that are set; return what ran."""
        words = [word for each in attributes for word in (each, 0, 1, *[0] * 15)]
        passed = (ctypes.c_uint * len(words))(*words)
        three = ctypes.c_uint * 3
        address = ctypes.addressof(passed)
        config = Config(three(1, 1, 1), three(32, 1, 1), shared, stream, address, len(attributes))
        params = (Handle * 1)()
        code = self.library.cuLaunchKernelEx(
            ctypes.byref(config), Handle(function), params, Handle(None)
        )
        assert code == 0
        ran: Ran = self.model.model_ran().contents
        return ran

    def times(self) -> int:
        """Return how many launches this thread has made."""
        return int(self.model.model_ran().contents.times)


@contextmanager
def driven(built: Built, launcher: Launcher) -> Iterator[Driven]:
    """Have a launcher asked of launches on the model, until that is left."""
    with pytest.MonkeyPatch.context() as patch:
        made = Driven(built, launcher)
        patch.setattr(cuda, "driver", lambda: made.library)
        patch.setattr(cuda, "driver_at_once", lambda: made.library)
        patch.setattr(_seen_code, "cubin", lambda code, *_: code)
        patch.setattr(_launch_recorder, "shared", lambda code, *_: code)
        patch.setattr(KernelMemory, "of", lambda *_: KernelMemory([], [], []))
        patch.setattr(patched, "made", _made)
        patch.setattr(loaded, "modules", loaded.Modules())
        made.hook.ask(made.launches.asked)
        try:
            yield made
        finally:
            made.hook.ask(None)
            made.launches.count()
            made.library.cuDevicePrimaryCtxReset_v2(0)


def _made(code: bytes, *_: object, **__: object) -> Patch:
    made: Patch = patched_form(code)
    return made
