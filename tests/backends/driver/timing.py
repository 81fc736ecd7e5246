"""Launches a kernel recorded and plain, by a driver that has events; prints what came.

Run by ``test_timed.py`` in a process of its own, in which no driver has been loaded.
"""

import ctypes
import json
import sys
from pathlib import Path
from typing import Any

from ikp.backends.driver._library import install
from ikp.backends.driver.launches import stepping_in
from ikp.backends.timed import MOST
from tests.backends.driver.program import Launcher, Session, fake_driver


class Ending(Launcher):
    """Records no launch any more, once it is off."""

    def over(self, kernel: Any) -> str | None:
        return None if self.on else "over"


def main(image: Path, name: str) -> None:
    install()
    library, handle = fake_driver(), ctypes.c_void_p
    library.fake_have_events(1)
    module, function = handle(), handle()
    launcher, said = Ending(), {}

    def launched(grid: int) -> list[str]:
        library.fake_clear()
        library.cuLaunchKernel(function, grid, 1, 1, 256, 1, 1, 0, 5, None, None)
        return library.fake_log().decode().splitlines()

    def made(grid: int) -> list[str]:
        """Return what a launch did but for the question whether the device is idle."""
        lines = launched(grid)
        modes = [line for line in lines if line.startswith("capture mode")]
        assert modes in ([], 2 * ["capture mode 2", "capture mode 0"])
        return [line for line in lines if line not in modes]

    with stepping_in(launcher):
        library.cuModuleLoadData(ctypes.byref(module), image.read_bytes())
        library.cuModuleGetFunction(ctypes.byref(function), module, name.encode())
        said["recorded"] = [made(12) for _ in range(MOST + 1)]
        library.fake_capture(1)
        said["captured"] = launched(12)
        library.fake_capture(0)
        launcher.on = False
        said["other grid"] = launched(13)
        library.fake_idle(1)
        library.fake_holds(0)
        said["late"] = [made(12) for _ in range(3)]
        library.fake_holds(1)
        library.fake_launch_waits(1)
        said["waits"] = [made(12)]
        library.fake_launch_waits(0)
        said["held"], said["held for"] = [], []
        for _ in range(MOST - 3):
            said["held"].append(made(12))
            said["held for"].append(library.fake_wait())
        library.fake_idle(0)
        said["plain"] = [made(12) for _ in range(MOST + 2)]
    said["facts"] = {key: text for key, text in Session.facts.items() if key.startswith("timed")}
    said["destroyed"] = ctypes.c_int.in_dll(library, "fake_destroyed").value
    print(json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
