"""Launches with buffers that were taken ahead; prints what came.

Run by ``test_stocked.py`` in a process of its own, in which no driver has been loaded.
"""

import ctypes
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from ikp.backends.driver.launches import stepping_in
from ikp.backends.patched import others
from ikp.sass.cubins.cubin import Cubin
from ikp.session.known_launch import LASTS_S, revoke
from tests.backends.driver.program import Session
from tests.backends.driver.repeating import Keeping, Kept, counts, driver, handle

AHEAD = 1 << 34
"""Addresses of buffers that were taken ahead begin here."""


class Ahead:
    """Buffers that were taken ahead."""

    made = 0

    def __init__(self, count: int) -> None:
        self.count, self.nbytes = count, 1 << 20
        first = AHEAD + (Ahead.made << 10)
        Ahead.made += count
        self.addresses = (ctypes.c_uint64 * count)(*(first + (at << 10) for at in range(count)))
        self.times = (ctypes.c_int64 * count)()
        self.stop: Any = None
        self.launched: Any = None


class Stocked(Kept):
    """A session that hands out buffers ahead."""

    def __init__(self) -> None:
        super().__init__()
        self.stocks: list[Ahead] = []
        self.request.ahead = self.ahead  # type: ignore[attr-defined]

    def ahead(self, request: object, most: int, stream: int) -> Ahead:
        self.stocks.append(Ahead(most))
        return self.stocks[-1]


class Lasting(Keeping):
    """Has all launches recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.session = Stocked()  # type: ignore[misc]

    def lasts(self, kernel: Any, session: Session) -> bool:
        return self.on and session is self.session and os.environ.get("IKP") != "0"

    def chosen(self, kernel: Any, capture: int | None = None) -> Session | None:
        return None if os.environ.get("IKP") == "0" else super().chosen(kernel, capture)


class Program:
    """Launches a kernel, and writes down what came of each part of the test."""

    def __init__(self, image: bytes, name: str) -> None:
        self.library, self.said = driver(), dict[str, Any]()
        self.library.cuFuncSetAttribute.argtypes = [handle, ctypes.c_int, ctypes.c_int]
        known = Cubin.read(image).kernel(name).parameters
        self.values = [ctypes.create_string_buffer(each.size) for each in known]
        self.values.append(ctypes.create_string_buffer(64))  # for ikp's own
        at = map(ctypes.addressof, self.values)
        self.array = (handle * len(self.values))(*at)
        self.image, self.name, self.function = image, name, handle()

    def load(self) -> None:
        module = handle()
        self.library.cuModuleLoadData(ctypes.byref(module), self.image)
        name = self.name.encode()
        self.library.cuModuleGetFunction(ctypes.byref(self.function), module, name)

    def launch(self, part: str, times: int = 1, grid: int = 12, stream: int = 0) -> None:
        self.library.fake_clear()
        counts["asked"], call = 0, self.library.cuLaunchKernel
        for _ in range(times):
            call(self.function, grid, 1, 1, 256, 1, 1, 0, stream, self.array, None)
        lines = self.library.fake_log().decode().splitlines()
        made = [each for each in lines if each.startswith("launch")]
        given = [bytes.fromhex(each.rpartition(" ")[2]) for each in made]
        self.said[part] = {
            "asked": counts["asked"],
            "functions": [each.split()[1] for each in made],
            "addresses": [int.from_bytes(each[-16:-8], "little") for each in given],
        }

    def ready(self) -> None:
        """Launch until the library takes buffers that were taken ahead."""
        for _ in range(40):
            self.launch("ready")
            if not self.said["ready"]["asked"]:
                return
        raise AssertionError("each launch asks")


def unlike(program: Program, launcher: Lasting) -> None:
    """Make launches that differ from those before in one thing each."""
    library = program.library
    for part, grid, stream in (("other grid", 13, 0), ("other stream", 12, 5)):
        program.ready()
        program.launch(part, grid=grid, stream=stream)
    program.ready()
    thread = threading.Thread(target=program.launch, args=("other thread",))
    thread.start()
    thread.join()
    program.ready()
    library.fake_capture(1)
    program.launch("captured")
    library.fake_capture(0)
    program.ready()
    library.fake_context(8)
    program.launch("other context")
    library.fake_context(7)
    launcher.failed.clear()
    program.ready()
    with others():
        program.launch("inside a call of ikp's")
    program.ready()
    revoke()
    program.launch("revoked")
    program.ready()
    library.cuFuncSetAttribute(program.function, 8, 512)
    program.launch("other settings")
    program.ready()
    time.sleep(1.2 * LASTS_S)
    program.launch("late")


def main(image: Path, name: str) -> None:
    program, launcher = Program(image.read_bytes(), name), Lasting()
    said, stocks = program.said, launcher.session.stocks
    with stepping_in(launcher):
        program.load()
        program.launch("many", 200)
        said["launched"] = sum(sum(at > 0 for at in each.times) for each in stocks)
        times = [each.times[: each.stop()] for each in stocks]
        said["in order"] = all(each == sorted(each) for each in times)
        unlike(program, launcher)
        program.ready()
        os.environ["IKP"] = "0"
        program.launch("switched off", 2)
        del os.environ["IKP"]
        program.ready()
        child = os.fork()
        if not child:
            program.launch("forked")
            os._exit(int(said["forked"]["addresses"][0] >= AHEAD))
        said["a child takes one"] = os.waitpid(child, 0)[1]
        program.ready()
        program.library.fake_refuse(1, program.function)
        program.launch("refused")
        program.library.fake_refuse(0, None)
        said["refused, told"] = dict(launcher.failed)
        launcher.failed.clear()
        program.ready()
    program.launch("after the end")
    print(json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
