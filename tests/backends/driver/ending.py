"""Ends, or resets the GPU, in a way that is named by the environment's WAY; prints what came.

Run by ``test_ending.py`` in a process of its own, in which no driver has been loaded.
"""

import ctypes
import os
import sys
from pathlib import Path

from ikp.backends.driver import _hook as hooks
from ikp.backends.driver.launches import stepping_in
from tests.backends.driver.program import Launcher, fake_driver
from tests.backends.driver.timing import Ending


class Told(Launcher):
    """Says that the program has called C's exit()."""

    def exits(self) -> None:
        print("told", flush=True)


def main(image: Path, name: str) -> None:
    hooks.install()
    library, handle = fake_driver(), ctypes.c_void_p
    library.fake_have_events(1)
    module, function, way = handle(), handle(), os.environ["WAY"]
    launcher = Ending() if way == "reset" else Told()
    with stepping_in(launcher):
        library.cuModuleLoadData(ctypes.byref(module), image.read_bytes())
        library.cuModuleGetFunction(ctypes.byref(function), module, name.encode())

        def launch() -> None:
            library.cuLaunchKernel(function, 12, 1, 1, 256, 1, 1, 0, 5, None, None)

        for _ in range(4):
            launch()
        launcher.on = False
        for _ in range(4):
            launch()
        library.fake_clear()
        if way == "exit":
            ctypes.CDLL(None).exit(5)
        elif way == "reset":
            library.cuDevicePrimaryCtxReset_v2(0)
    print(library.fake_log().decode())
    if way == "exit late":
        ctypes.CDLL(None).exit(5)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
