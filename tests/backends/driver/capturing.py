"""Captures launches, to see how they are made; prints what was found.

Run by ``test_captured.py`` in a process of its own.
"""

import ctypes
import json
import sys
from pathlib import Path
from typing import Any

from ikp.checking.captured import captured
from ikp.errors import PatchError
from ikp.sass.cubins.cubin import Cubin
from tests.backends.driver.checking import WORD, Config


def main(image: Path, name: str) -> None:
    """Capture a launch, and what is none."""
    library, handle = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p
    library.fake_log.restype = ctypes.c_char_p
    library.cuLaunchKernelEx.argtypes = [handle] * 4
    module, function = handle(), handle()
    library.cuModuleLoadData(ctypes.byref(module), image.read_bytes())
    library.cuModuleGetFunction(ctypes.byref(function), module, name.encode())
    values = (WORD * 6)(9, 8, 7, 6, 5, 4)
    at = ctypes.addressof(values)
    each = (handle * 3)(at, at + 33, at + 40)
    attributes = (ctypes.c_uint * 18)(4, 0, 2, 1, 1)
    three = ctypes.c_uint * 3
    parameters = Cubin.read(image.read_bytes()).kernel(name).parameters

    def launch(stream: int) -> None:
        config = Config(
            *(three(12, 2, 1), three(64, 1, 1), 512, stream, ctypes.addressof(attributes), 1)
        )
        library.cuLaunchKernelEx(ctypes.byref(config), function, each, None)

    def twice(stream: int) -> None:
        launch(stream)
        library.cuMemsetD8Async(WORD(0), 0, ctypes.c_size_t(8), handle(stream))
        launch(stream)

    def beside(stream: int) -> None:
        library.cuMemsetD8Async(WORD(0), 0, ctypes.c_size_t(8), handle(stream))
        launch(stream)

    def refused(launch: Any) -> str:
        try:
            captured(launch, parameters)
        except PatchError as error:
            return str(error)
        return ""

    library.fake_clear()
    shape, passed = captured(launch, parameters)
    said: dict[str, Any] = {"log": library.fake_log().decode().splitlines()}
    said["shape"] = [shape.grid, shape.block, shape.shared, shape.attributes.hex()]
    said["values"] = [(offset, value.hex()) for offset, value in passed]
    said["beside"] = captured(beside, parameters)[0] == shape
    said["twice"], said["none"] = refused(twice), refused(lambda _: None)
    print(json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
