"""Loads and launches a kernel as a program does that knows the CUDA driver alone; prints what came.

Run by ``test_hook.py`` in a process of its own, in which no driver has been loaded.
"""

import ctypes
import gc
import json
import re
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

from ikp.backends.ahead import PatchesAhead
from ikp.backends.driver import _chip_cubins, launches
from ikp.backends.driver._library import install
from ikp.backends.driver.launches import stepping_in
from ikp.backends.labels import Labels
from ikp.errors import PatchError
from ikp.probes.patch import patch
from ikp.sass.cubins.cubin import Cubin
from ikp.session import leaving
from ikp.session.known_launch import ask_device
from ikp.unedited.plan import plan
from ikp.verbs.dsl import known


def fake_driver() -> ctypes.CDLL:
    """Return the tests' driver, with the types of what most programs call."""
    library, handle = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p
    library.fake_log.restype = ctypes.c_char_p
    library.cuLaunchKernel.argtypes = [handle, *[ctypes.c_uint] * 7, *[handle] * 3]
    return library


class Prof:
    """A buffer, which is read back once nobody holds it."""

    address, slots_bytes = 1 << 33, (1 << 20) - 128
    data = SimpleNamespace(numel=lambda: 1 << 20)

    def __init__(self, spec_text: str) -> None:
        self.spec_text = spec_text


def no_cupti() -> str:
    raise PatchError("there is no CUPTI.")


_chip_cubins.cupti = no_cupti


class Session:
    """Hands out buffers, as far as a launch asks."""

    facts: ClassVar[dict[str, str]] = {}
    asked: ClassVar[list[dict[str, object]]] = []
    made: ClassVar[list[weakref.ref[Any]]] = []
    threads: ClassVar[list[str]] = []  # that took buffers
    settled: ClassVar[set[str]] = set()  # labels

    def buffer(self, label: str, **options: object) -> Any:
        from ikp.core.segment import Spec

        if label not in self.settled:  # what the device is asked, an earlier launch has asked it
            ask_device()
            self.settled.add(label)
        self.asked.append({"label": label, **options})
        known = {each.ident: each.name for each in threading.enumerate()}
        self.threads.append(known.get(threading.get_ident(), "ikp's"))
        made = Prof(str(Spec()))
        self.made.append(weakref.ref(made))
        return made

    def discard(self, prof: object) -> None:
        self.asked.pop()


class Launcher:
    """Chooses as it is told."""

    def __init__(self) -> None:
        self.launches: Sequence[int] = range(8)
        self.idle, self.wakers = False, list[Callable[[], None]]()
        self.plan = plan("loops", level="machine")
        self.kernels: re.Pattern[str] | None = None
        self.recorded: Counter[str] = Counter()
        self.plain: list[str] = []
        self.failed: dict[str, str] = {}
        self.buffer: dict[str, Any] = {}
        self.aside: set[str] = set()
        self.labels = Labels()
        self.on = True
        self.captures, self.standing = 0, False
        self.ahead: PatchesAhead | None = None  # of kernels that are patched before a window
        self.told: list[str] = []

    def exits(self) -> None:
        print("\nended", flush=True)

    def profiler(self, starts: bool) -> None:
        self.told.append("starts" if starts else "stops")

    def capture_begins(self) -> None:
        self.captures += 1
        self.told.append("begins")

    def capture_ends(self) -> None:
        self.captures -= 1
        self.told.append("ends")

    def chosen(self, kernel: Any, capture: int | None = None) -> Session | None:
        self.told.append(f"capture {capture}")
        return Session() if self.on and kernel.full_name not in self.failed else None

    def count_plain(self, kernel: Any, reason: str, times: int = 1) -> None:
        self.plain += [f"{kernel.__name__}: {reason}"] * times

    def over(self, kernel: Any) -> str | None:
        return None

    def lasts(self, kernel: Any, session: Any) -> bool:
        return False

    def count_more(self, kernel: Any, number: int) -> None:
        self.recorded[kernel.__name__] += number


def passed(library: ctypes.CDLL, function: ctypes.c_void_p, image: bytes, name: str) -> Any:
    """Yield names of ways to launch a kernel with arguments, after each launch, and its code."""
    handle, known = ctypes.c_void_p, Cubin.read(image).kernel(name).parameters
    values = [ctypes.create_string_buffer(bytes([9 + each.ordinal]) * each.size) for each in known]
    array = (handle * len(known))(*(ctypes.addressof(each) for each in values))
    last = known[-1]
    packed = bytearray(last.offset + last.size + 5000)  # longer than any launch
    for each, value in zip(known, values, strict=True):
        packed[each.offset : each.offset + each.size] = value.raw[: each.size]
    buffer = ctypes.create_string_buffer(bytes(packed))
    size = ctypes.c_size_t(len(packed))
    pair = (ctypes.addressof(buffer), 2, ctypes.addressof(size), 0)
    extra, strange = (handle * 5)(1, *pair), (handle * 7)(7, 0, 1, *pair)

    def launch(params: object, more: object) -> int:
        return library.cuLaunchKernel(function, 12, 1, 1, 256, 1, 1, 0, None, params, more)

    config = (ctypes.c_uint32 * 14)(12, 1, 1, 256, 1, 1, 0)
    size.value = last.offset + last.size
    yield "buffer", launch(None, extra)
    yield "array", launch(array, None)
    size.value = len(packed)
    yield "long buffer", launch(None, extra)
    yield "extended", library.cuLaunchKernelEx(config, function, array, None)
    library.fake_capture(1)
    yield "array captured", launch(array, None)
    library.fake_capture(0)
    yield "both", launch(array, extra)
    yield "strange", launch(None, strange)
    dimensions = [ctypes.c_uint(each) for each in (12, 1, 1, 256, 1, 1, 0)]
    yield "together", library.cuLaunchCooperativeKernel(function, *dimensions, None, array)


def main(image: Path, name: str) -> None:  # noqa: PLR0915 - one launch after another
    """Launch a kernel in many ways."""
    install()
    library, handle = fake_driver(), ctypes.c_void_p
    library.fake_memory.restype = ctypes.c_void_p
    said: dict[str, object] = {}
    launcher, ended = Launcher(), list[int]()
    launches.end_capture = ended.append

    def told(part: str) -> None:
        said[part] = library.fake_log().decode().splitlines()
        library.fake_clear()

    def launch(which: ctypes.c_void_p, stream: int = 0, block: int = 256) -> None:
        library.cuLaunchKernel(which, 12, 1, 1, block, 1, 1, 0, stream, None, None)

    def load(code: bytes, symbol: str) -> None:
        """Load a module; have ``found`` be its function."""
        library.cuModuleLoadData(ctypes.byref(module), code)
        library.cuModuleGetFunction(ctypes.byref(found), module, symbol.encode())

    module, function, found = handle(), handle(), handle()
    with stepping_in(launcher):
        data = ctypes.create_string_buffer(image.read_bytes())
        library.cuModuleLoadData(ctypes.byref(module), data)
        library.cuModuleGetFunction(ctypes.byref(function), module, name.encode())
        ctypes.memset(data, 0, len(data))  # the driver has its own copy, and so has ikp
        library.cuFuncSetAttribute(function, 8, 98304)
        told("loaded")
        launch(function)
        told("first")
        gc.disable()
        launch(function)
        told("again")
        said["held"] = sum(each() is not None for each in Session.made)
        gc.enable()
        launch(function, stream=5)
        told("other stream")
        library.cuGetProcAddress_v2(b"cuLaunchKernel", ctypes.byref(found), 12000, 0, None)
        said["threads"] = list(Session.threads)
        said["address"] = found.value == ctypes.cast(library.cuLaunchKernel, handle).value
        library.fake_capture(1)
        launch(function)
        told("captured")
        library.fake_capture(0)
        launcher.on = False
        launcher.told.clear()
        graph, relaxed = handle(), 2
        library.cuStreamBeginCapture_v2(handle(9), relaxed)
        library.fake_capture(41)
        launch(function)
        library.cuStreamEndCapture(handle(9), ctypes.byref(graph))
        library.fake_capture(0)
        launch(function)
        said["captures"], said["ended"] = list(launcher.told), ended
        launcher.told.clear()
        library.fake_clear()
        library.cuGetProcAddress_v2(b"cuProfilerStart", ctypes.byref(found), 12000, 0, None)
        said["profiler"] = [ctypes.CFUNCTYPE(ctypes.c_int)(found.value)(), library.cuProfilerStop()]
        said["profiler"] += [*launcher.told, *library.fake_log().decode().splitlines()]
        library.fake_clear()
        launch(function)
        told("not chosen")
        launcher.on = True
        library.fake_context(8)
        launch(function)
        told("other context")
        launcher.failed.clear()
        library.fake_context(7)
        library.cuModuleUnload(module)
        load(b"// PTX\n.version 8.0\n", "made")
        library.fake_clear()
        launch(found)
        told("PTX")
        ours = patch(image.read_bytes(), name).cubin
        load(ours, name)
        library.fake_clear()
        launch(found)
        told("patched")
        launch(handle(library.fake_memory()))
        told("unseen")
        load(image.read_bytes(), name)
        launch(found, block=1)
        told("tile")
        library.cuModuleGetFunction(ctypes.byref(found), module, name.encode())
        library.fake_clear()
        for part, result in passed(library, found, image.read_bytes(), name):
            told(part)
            said[f"{part}: code"] = result
        for refused, but in (("refused", found), ("wrong", None)):
            library.fake_refuse(1, but)
            plain, counted = len(launcher.plain), launcher.recorded["matmul"]
            asked = len(Session.asked)
            for part, result in passed(library, found, image.read_bytes(), name):
                told(f"{refused} {part}")
                said[f"{refused} {part}: code"] = result
                said[f"{refused} {part}: plain"] = launcher.plain[plain:]
                said[f"{refused} {part}: more"] = [
                    launcher.recorded["matmul"] - counted,
                    len(Session.asked) - asked,
                ]
                del launcher.plain[plain:]
                launcher.failed.clear()
        library.fake_refuse(0, None)
        plain = len(launcher.plain)
        load(b"//ikp\n.version 7.0\n", "own")
        library.fake_clear()
        launch(found)
        told("own PTX")
        said["own PTX: plain"] = launcher.plain[plain:]
        leaving.leave = lambda ordinal: said.update(left=[ordinal, library.fake_log().decode()])
        said["reset"] = [library.cuDevicePrimaryCtxReset_v2(3), library.fake_log().decode()]
        library.fake_clear()
    launch(function)
    told("after")
    said["names"] = list(known().values())
    said |= {"plain": launcher.plain, "recorded": launcher.recorded, "asked": Session.asked}
    print(json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
