"""Main function of a helper process: load a program's module again, and save its cubins from CUPTI.

The process has no site packages: of ikp, only modules that need the standard library alone are
imported here.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path
from typing import Any, Final

from ikp.driver import cuda, cuda_functions
from ikp.errors import PatchError

_RESOURCES: Final = 3
_MODULE_LOADED: Final = 6


class _Resource(ctypes.Structure):
    """``CUpti_ResourceData``."""

    _fields_ = (
        ("context", ctypes.c_void_p),
        ("handle", ctypes.c_void_p),
        ("module", ctypes.c_void_p),
    )


class _Module(ctypes.Structure):
    """``CUpti_ModuleResourceData``."""

    _fields_ = (("id", ctypes.c_uint32), ("size", ctypes.c_size_t), ("code", ctypes.c_void_p))


_Callback = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint, ctypes.POINTER(_Resource)
)


def main() -> None:
    """Load the module that ``asked.json`` in the current folder describes, from the file ``image``.

    The function's attributes go to ``attributes.json``, the machine code to ``0.cubin`` and so on.
    """
    asked = json.loads(Path("asked.json").read_text())
    try:
        function, cubins = _loaded(asked)
        Path("attributes.json").write_text(json.dumps(cuda_functions.of_code(function)))
    except (OSError, PatchError) as error:
        sys.exit(str(error))
    for number, code in enumerate(cubins):
        Path(f"{number}.cubin").write_bytes(code)


def _loaded(asked: dict[str, Any]) -> tuple[int, list[bytes]]:
    """Return the kernel's function, and the cubins that CUPTI reports while it is loaded."""
    cubins = []

    def loaded(_user: int, _domain: int, _what: int, data: Any) -> None:
        module = _Module.from_address(data.contents.module)
        cubins.append(ctypes.string_at(module.code, module.size))

    callback = _Callback(loaded)
    cupti, subscriber = ctypes.CDLL(asked["cupti"]), ctypes.c_void_p()
    _call(cupti, "cuptiSubscribe", ctypes.byref(subscriber), callback, None)
    cuda.call("cuInit", 0, to="begin")
    cuda.use_device(bytes.fromhex(asked["device"]))
    _call(cupti, "cuptiEnableCallback", 1, subscriber, _RESOURCES, _MODULE_LOADED)
    function = _load(asked)
    _call(cupti, "cuptiUnsubscribe", subscriber)
    return function, cubins


def _call(cupti: ctypes.CDLL, function: str, *arguments: object) -> None:
    if code := getattr(cupti, function)(*arguments):
        name = ctypes.c_char_p()
        cupti.cuptiGetResultString(code, ctypes.byref(name))
        said = name.value.decode() if name.value else f"error {code}"
        raise PatchError(f"{function} fails: {said}.")


def _load(asked: dict[str, Any]) -> int:
    """Load the module or library; return the kernel's function, which ends lazy loading."""
    count, name = len(asked["options"]), asked["name"].encode()
    options = (ctypes.c_uint * count)(*(each for each, _ in asked["options"]))
    values = (ctypes.c_void_p * count)(*(each for _, each in asked["options"]))
    image, made, part = Path("image").read_bytes(), ctypes.c_void_p(), ctypes.c_void_p()
    holder, found = ctypes.byref(made), ctypes.byref(part)
    if asked["library"]:
        none = (None, None, 0)
        cuda.call("cuLibraryLoadData", holder, image, options, values, count, *none, to="load it")
        cuda.call("cuLibraryGetKernel", found, made, name, to="find it")
        return cuda_functions.function_of(part.value or 0)
    cuda.call("cuModuleLoadDataEx", holder, image, count, options, values, to="load it")
    cuda.call("cuModuleGetFunction", found, made, name, to="find it")
    return part.value or 0
