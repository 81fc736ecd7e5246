"""Launches with buffers that were taken ahead; prints what came.

Run by ``test_stocked.py`` in a process of its own, in which no driver has been loaded.
"""

import ctypes
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from ikp.backends.driver.launches import stepping_in
from ikp.backends.patched import others
from ikp.sass.cubins.cubin import Cubin
from ikp.session.known_launch import revoke
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


def main(image: Path, name: str) -> None:
    library = driver()
    library.cuFuncSetAttribute.argtypes = [handle, ctypes.c_int, ctypes.c_int]
    module, function = handle(), handle()
    launcher, said = Lasting(), dict[str, Any]()
    known = Cubin.read(image.read_bytes()).kernel(name).parameters
    values = [ctypes.create_string_buffer(each.size) for each in known]
    values.append(ctypes.create_string_buffer(64))  # for ikp's own
    array = (handle * len(values))(*(ctypes.addressof(each) for each in values))

    def launch(part: str, times: int = 1, grid: int = 12, stream: int = 0) -> None:
        library.fake_clear()
        counts["asked"] = 0
        for _ in range(times):
            library.cuLaunchKernel(function, grid, 1, 1, 256, 1, 1, 0, stream, array, None)
        lines = library.fake_log().decode().splitlines()
        made = [each for each in lines if each.startswith("launch")]
        given = [bytes.fromhex(each.rpartition(" ")[2]) for each in made]
        said[part] = {
            "asked": counts["asked"],
            "functions": [each.split()[1] for each in made],
            "addresses": [int.from_bytes(each[-16:-8], "little") for each in given],
        }

    with stepping_in(launcher):
        library.cuModuleLoadData(ctypes.byref(module), image.read_bytes())
        library.cuModuleGetFunction(ctypes.byref(function), module, name.encode())
        launch("many", 200)
        said["launched"] = sum(sum(at > 0 for at in each.times) for each in launcher.session.stocks)
        said["in order"] = all(
            list(each.times[: each.stop()]) == sorted(each.times[: each.stop()])
            for each in launcher.session.stocks
        )

        def ready() -> None:
            """Have the library take buffers that were taken ahead."""
            for _ in range(40):
                launch("ready")
                if not said["ready"]["asked"]:
                    return
            raise AssertionError("each launch asks")

        for part, grid, stream in (("other grid", 13, 0), ("other stream", 12, 5)):
            ready()
            launch(part, grid=grid, stream=stream)
        ready()
        thread = threading.Thread(target=launch, args=("other thread",))
        thread.start()
        thread.join()
        ready()
        library.fake_capture(1)
        launch("captured")
        library.fake_capture(0)
        ready()
        library.fake_context(8)
        launch("other context")
        library.fake_context(7)
        launcher.failed.clear()
        ready()
        with others():
            launch("inside a call of ikp's")
        ready()
        revoke()
        launch("revoked")
        ready()
        library.cuFuncSetAttribute(function, 8, 512)
        launch("other settings")
        ready()
        os.environ["IKP"] = "0"
        launch("switched off", 2)
        del os.environ["IKP"]
        ready()
        child = os.fork()
        if not child:
            launch("forked")
            os._exit(min(int(said["forked"]["addresses"][0] >= AHEAD), 1))
        said["a child takes one"] = os.waitpid(child, 0)[1]
        ready()
        library.fake_refuse(1, function)
        launch("refused")
        library.fake_refuse(0, None)
        said["refused, told"] = dict(launcher.failed)
        launcher.failed.clear()
        ready()
    launch("after the end")
    print(json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
