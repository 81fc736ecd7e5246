"""Launches a kernel again and again, and refuses some; prints what came.

Run by ``test_repeated.py`` in a process of its own, in which no driver has been loaded.
"""

import ctypes
import json
import sys
import threading
import weakref
from pathlib import Path
from typing import Any, ClassVar

from ikp.backends.driver._launch_recorder import LaunchRecorder
from ikp.backends.driver._library import install
from ikp.backends.driver.launches import Launches, stepping_in
from ikp.backends.loaded import Module
from ikp.backends.patched import others
from ikp.backends.timed import MOST
from ikp.core.segment import Spec
from ikp.probes.patch import patch
from ikp.sass.cubins.cubin import Cubin
from tests.backends.driver.program import Launcher, Prof, Session, fake_driver

KIB = 1 << 10


class Notice:
    """What is noted of a buffer's launches."""

    def __init__(self, request: Any) -> None:
        self.request, self.asks, self.streams = request, True, list[int]()

    def launched(self, stream: int, *, captured: bool) -> None:
        assert not captured
        self.streams.append(stream)


class Request:
    """A request that is kept, and taken again."""

    def __init__(self, again: Any) -> None:
        self.again = again


class Memory:
    """The memory of a buffer."""

    nbytes = 1 << 20

    def __init__(self, at: int, notice: Notice) -> None:
        self.address, self.ikp_notice = at, notice

    def numel(self) -> int:
        return self.nbytes


class Kept(Session):
    """A session that keeps its requests, and hands out one buffer behind the other."""

    buffers: ClassVar[list[weakref.ref[Memory]]] = []
    streams: ClassVar[list[list[int]]] = []

    def __init__(self) -> None:
        self.request = Request(self.again)

    def buffer(self, label: str, **options: object) -> Any:
        super().buffer(label, **options)
        made = Prof(str(Spec()))
        made.data = self.again(self.request)
        made.address = made.data.address
        return made

    def again(self, request: object) -> Any:
        notice = Notice(request)
        made = Memory((1 << 33) + KIB * len(self.buffers), notice)
        self.buffers.append(weakref.ref(made))
        self.streams.append(notice.streams)
        return made


class Keeping(Launcher):
    """Chooses a session that lasts."""

    session = Kept()

    def chosen(self, kernel: Any, capture: int | None = None) -> Session | None:
        return self.session if self.on else None


handle = ctypes.c_void_p
counts = {"anew": 0, "asked": 0}


def driver() -> ctypes.CDLL:
    """Return the driver; count what it asks, and launches that repeat none."""
    install()
    library = fake_driver()
    answer, real = Launches.asked, LaunchRecorder.recorded

    def asked(self: Launches, about: Any) -> None:
        counts["asked"] += 1
        answer(self, about)

    def recorded(*args: Any) -> int:
        counts["anew"] += 1
        return real(*args)

    Launches.asked, LaunchRecorder.recorded = asked, recorded  # type: ignore[method-assign]
    return library


def main(image: Path, name: str) -> None:
    library = driver()
    module, function = handle(), handle()
    launcher, said = Keeping(), dict[str, Any]()
    known = Cubin.read(image.read_bytes()).kernel(name).parameters
    values = [ctypes.create_string_buffer(each.size) for each in known]
    values.append(ctypes.create_string_buffer(64))  # for ikp's own
    array = (handle * len(values))(*(ctypes.addressof(each) for each in values))

    def launch(part: str, times: int = 1, grid: int = 12, stream: int = 0) -> None:
        library.fake_clear()
        counts["anew"], before = 0, len(Kept.buffers)
        for _ in range(times):
            library.cuLaunchKernel(function, grid, 1, 1, 256, 1, 1, 0, stream, array, None)
        lines = library.fake_log().decode().splitlines()
        said[part] = {
            "anew": counts["anew"],
            "launched": [each.rpartition(" ")[2] for each in lines if each.startswith("launch")],
            "functions": [each.split()[1] for each in lines if each.startswith("launch")],
            "buffers": len(Kept.buffers) - before,
            "counted": dict(launcher.recorded),
            "held": sum(each() is not None for each in Kept.buffers),
            "streams": Kept.streams[before:],
            "events": sum(each.startswith("event ") for each in lines),
        }

    library.fake_have_events(1)
    with stepping_in(launcher):
        library.cuModuleLoadData(ctypes.byref(module), image.read_bytes())
        library.cuModuleGetFunction(ctypes.byref(function), module, name.encode())
        launch("first", 5)
        counts["asked"] = 0
        own = Module.load(patch(image.read_bytes(), name, spare=True), name)  # as Triton has it
        with others():
            for _ in range(3):
                library.cuLaunchKernel(own.function, 12, 1, 1, 256, 1, 1, 0, 0, array, None)
        said["asked of its own"] = counts["asked"]
        launch("other grid", 2, grid=13)
        launch("many", MOST + 3, grid=14)
        launch("other stream", 2, stream=5)
        thread = threading.Thread(target=launch, args=("other thread", 2))
        thread.start()
        thread.join()
        library.fake_capture(1)
        launch("captured")
        library.fake_capture(0)
        library.fake_context(8)
        launch("other context")
        library.fake_context(7)
        launcher.failed.clear()
        library.fake_refuse(1, function)
        launch("refused")
        library.fake_refuse(0, None)
        launcher.failed.clear()
        launcher.session = Kept()
        launch("other session", 3)
        launcher.session.request.again = None
        launcher.on = False
        launch("off")
    print(json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
