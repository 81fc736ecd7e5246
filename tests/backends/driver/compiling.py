"""Launches kernels that a program loads as PTX; prints what came of each.

Run by ``test_compiled.py`` in a process of its own, in which no driver has been loaded.
"""

import ctypes
import json
import os
import sys
from pathlib import Path

from ikp.backends import patched
from ikp.backends.driver import _chip_cubins
from ikp.backends.driver._library import install
from ikp.backends.driver.launches import stepping_in
from tests.backends.driver.program import Launcher

patched._beside = lambda: None  # torch takes that for the stream that is current

PTX = b"// PTX\n.version 8.0\n"
FATBIN = (0xBA55ED50 | 1 << 32 | 16 << 48).to_bytes(8, "little") + bytes(8)
MAX_REGISTERS, THREADS, WALL_TIME, LOG, SYMBOLS = 0, 1, 2, 3, 17
SHARED, CONSTANTS = 1, 2
"""Attributes of a function."""


class Program:
    """A program that loads PTX, and launches a kernel of it."""

    def __init__(self, image: Path, name: str) -> None:
        self.library, self.name = ctypes.CDLL("libcuda.so.1"), name.encode()
        self.library.fake_log.restype = ctypes.c_char_p
        self.image, self.launcher = image, Launcher()
        self.said: dict[str, object] = {}

    def launch(self, part: str, holder: ctypes.c_void_p, get: str, *differing: int) -> None:
        """Launch the kernel, and note what came of it."""
        function, options = ctypes.c_void_p(), self.image.with_name("options")
        getattr(self.library, get)(ctypes.byref(function), holder, self.name)
        for each in differing:
            self.library.cuFuncSetAttribute(function, each, 64)
        self.library.fake_clear()
        options.unlink(missing_ok=True)
        self.library.cuLaunchKernel(function, 12, 1, 1, 256, 1, 1, 0, None, None, None)
        self.said[part] = {
            "log": self.library.fake_log().decode().splitlines(),
            "asked": options.read_text() if options.exists() else None,
            "plain": self.launcher.plain[:],
        }
        self.launcher.plain.clear()
        self.launcher.failed.clear()

    def module(self, part: str, image: bytes, *differing: int, **options: int) -> None:
        made, count = ctypes.c_void_p(), len(options)
        numbers = (ctypes.c_uint * count)(*(globals()[each] for each in options))
        values = (ctypes.c_void_p * count)(*options.values())
        data = ctypes.create_string_buffer(image)
        self.library.cuModuleLoadDataEx(ctypes.byref(made), data, count, numbers, values)
        self.launch(part, made, "cuModuleGetFunction", *differing)


def main(image: Path, name: str) -> None:
    """Load and launch in many ways."""
    os.environ |= {"FAKE_COMPILED": str(image), "FAKE_OPTIONS": str(image.with_name("options"))}
    os.environ |= {"FAKE_PARENT": str(os.getpid())}
    install()
    fake = str(image.with_name("libcuda.so.1"))
    _chip_cubins.cupti = lambda: fake
    program = Program(image, name)
    with stepping_in(program.launcher):
        made = ctypes.c_void_p()
        program.library.cuModuleLoadData(ctypes.byref(made), PTX)
        program.launch("PTX", made, "cuModuleGetFunction")
        program.launch("again", made, "cuModuleGetFunction")
        program.module("fatbin", FATBIN)
        program.module("options", PTX, THREADS=128, WALL_TIME=0, LOG=4096, MAX_REGISTERS=32)
        program.module("addresses", PTX, SYMBOLS=4096)
        numbers, values = (ctypes.c_uint * 1)(MAX_REGISTERS), (ctypes.c_void_p * 1)(40)
        program.library.cuLibraryLoadData(
            *(ctypes.byref(made), PTX, numbers, values, 1, None, None, 0)
        )
        program.launch("library", made, "cuLibraryGetKernel")
        program.module("other code", PTX, SHARED, CONSTANTS)
        os.environ["FAKE_CHILD"] = "no subscriber"
        program.module("another tool", PTX)
        os.environ["FAKE_CHILD"] = "other device"
        program.module("other device", PTX)
        del os.environ["FAKE_CHILD"], os.environ["FAKE_COMPILED"]
        program.module("not shown", PTX)
    print(json.dumps(program.said))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
