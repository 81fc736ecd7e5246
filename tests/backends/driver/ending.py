"""Ends, or resets the GPU, in each of several ways; prints what came, and the exit codes.

Run by ``test_ending.py`` in a process of its own, in which no driver has been loaded. It forks for
each way. To import torch takes seconds, so it does it before most of them.
"""

import ctypes
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from ikp.backends.driver._library import install
from ikp.backends.driver.launches import stepping_in
from ikp.session.harvest import after_reading
from tests.backends.driver.program import Launcher, fake_driver
from tests.backends.driver.timing import Ending


class Told(Launcher):
    """Says that the program has called C's exit(), and what torch calculates then."""

    def exits(self) -> None:
        import torch

        print("told", float(torch.logspace(0, 1, 2).sum()), flush=True)


def read() -> None:
    """Do what ikp's own thread does that reads a launch back.

    Each function of torch's has an object, made at its first use, that C's exit() destroys.
    """
    import torch

    torch.logspace(0, 1, 2)
    for each in after_reading:
        each()


def run_in_thread(run: Callable[[], object]) -> None:
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


WAYS = (
    "exit elsewhere",  # torch's objects are destroyed first, where it is imported behind ikp
    *("exit", "exit at once", "quick exit", "exit late", "return", "thread ends", "reset"),
)


def main(image: Path, name: str) -> None:
    """Fork for each way; each child ends as a program does."""
    install()
    said = dict[str, tuple[int, str]]()
    for way in WAYS:
        if said:
            import torch  # noqa: F401
        read, write = os.pipe()
        if (child := os.fork()) == 0:
            os.dup2(write, 1)
            end(way, image, name)
            return
        os.close(write)
        with os.fdopen(read, encoding="utf-8") as printed:
            text = printed.read()
        said[way] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text.strip()
    print(json.dumps(said))


def end(way: str, image: Path, name: str) -> None:
    library, handle = fake_driver(), ctypes.c_void_p
    library.fake_have_events(1)
    module, function = handle(), handle()
    launcher = Ending() if way == "reset" else Told()
    with stepping_in(launcher):
        if way == "exit at once":
            ctypes.CDLL(None).exit(5)
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
        run_in_thread(read)
        leave = ctypes.CDLL(None).exit
        ends: dict[str, Callable[[], object]] = {
            "exit": lambda: leave(5),
            "exit elsewhere": lambda: run_in_thread(lambda: leave(5)),
            "quick exit": lambda: ctypes.CDLL(None).quick_exit(5),
            "thread ends": lambda: (run_in_thread(launch), library.fake_clear()),
            "reset": lambda: library.cuDevicePrimaryCtxReset_v2(0),
        }
        ends.get(way, int)()
    print(library.fake_log().decode())
    if way == "exit late":
        ctypes.CDLL(None).exit(5)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
