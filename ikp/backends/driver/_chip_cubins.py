"""The cubin for one chip: out of an image that a program loads, or of PTX that the driver compiled.

The image is a cubin, a fat binary or PTX. CUPTI gives the cubin that the driver compiled of PTX, in
another process, which loads the same image with the same options: so the program's own profiler is
not disturbed. The driver's linker (``cuLinkAddData``) is no substitute. It compiles each file for
being linked: other instructions, though often as many registers.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from ikp import children
from ikp.backends.driver._library import mapped
from ikp.driver import cuda, cuda_functions
from ikp.errors import InspectError, PatchError
from ikp.sass.cubins.cubin import Cubin
from ikp.sass.disassembly.tool_paths import tool

_ROOT: Final = str(Path(__file__).parents[3])
_CODE: Final = (
    f"import sys; sys.path.insert(0, {_ROOT!r}); from ikp.driver.loading import main; main()"
)
_LOGS: Final = frozenset((2, 3, 4, 5, 6, 12))
"""Options by which the compiler reports: its time, and its messages."""
_CARRIED: Final = frozenset(
    (0, 1, 7, 8, 9, 10, 11, 13, 14, 15, 16, 20, 21, 22, 23, 24, *range(29, 36))
)
"""Options that are numbers. Others are addresses, such as of symbol names and of their values."""


def compiled(
    image: bytes, name: str, plain: int, options: Mapping[int, int], *, library: bool = False
) -> bytes:
    """Return the machine code that the driver loads for a kernel.

    Args:
        image: the image that the program loaded: PTX, or a fat binary.
        name: the kernel's symbol, as the compiler wrote it.
        plain: the function that the program launches.
        options: of the driver's compiler, as the program passed them.
        library: whether it was loaded as a library, and not as a module.

    Raises:
        PatchError: CUPTI is missing, or the other process loads no such code.
    """
    unknown = sorted(options.keys() - _LOGS - _CARRIED)
    if unknown:
        raise PatchError(f"the program compiles it with option {unknown[0]}, which is not known.")
    asked = {
        "cupti": cupti(),
        "device": cuda.identity().hex(),
        "name": name,
        "library": library,
        "options": [each for each in options.items() if each[0] in _CARRIED],
    }
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "image").write_bytes(image + b"\0")  # a file of PTX ends without
        (folder / "asked.json").write_text(json.dumps(asked))
        command = [sys.executable, "-I", "-S", "-c", _CODE]
        try:
            done = children.run(command, children.seconds(len(image)), cwd=folder)
        except (OSError, children.TooLongError) as error:
            raise PatchError(f"another process can't load it: {error}") from error
        if done.code:
            said = done.said.strip().splitlines() or [f"it ends with {done.code}"]
            raise PatchError(f"another process can't load it: {said[-1]}")
        properties = json.loads((folder / "attributes.json").read_text())
        codes = {each.read_bytes() for each in folder.glob("*.cubin")}
    fitting = [each for each in codes if name in Cubin.read(each).kernels]
    if len(fitting) != 1:
        raise PatchError(f"CUPTI shows {len(fitting) or 'no'} files with it where one is loaded.")
    own = cuda_functions.of_code(plain).items()
    if differing := [each for each, value in own if properties[each] != value]:
        raise PatchError(f"compiled anew, it has other {' and '.join(differing)}.")
    return fitting[0]


def cupti() -> str:
    """Return the path of CUPTI: the program's, its environment's, or the CUDA toolkit's.

    Raises:
        PatchError: there is none.
    """
    spec = find_spec("nvidia")
    found = [Path(each) for each in mapped() if "/libcupti.so" in each]
    for place in (spec and spec.submodule_search_locations) or ():
        found += sorted(Path(place).glob("*/lib/libcupti.so.*"))
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if variable in os.environ:
            found += sorted(Path(os.environ[variable]).glob("extras/CUPTI/lib64/libcupti.so"))
    if not found:
        raise PatchError("CUPTI shows it, and was not found: pip install nvidia-cuda-cupti.")
    return str(found[0])


class NoCodeError(PatchError):
    """The loaded image has no machine code for the chip: the driver compiles its PTX."""


_IMAGES: Final = 2
"""The most images whose cubins are kept: each may be large."""
_ELF = b"\x7fELF"
_FATBIN = struct.pack("<I", 0xBA55ED50)


def cubin(image: bytes, name: str, chip: tuple[int, int]) -> bytes:
    """Return the cubin with a kernel that the driver would choose.

    Args:
        image: a cubin, a fat binary, or PTX.
        name: the kernel's symbol, as the compiler wrote it.
        chip: compute capability of the device.

    Raises:
        NoCodeError: there is no cubin for this chip.
        PatchError: no tool reads the image.
    """
    fitting = [
        each
        for each in _cubins(image, chip[0])
        if name in each.kernels and each.major == chip[0] and each.minor <= chip[1]
    ]
    if not fitting:
        raise NoCodeError(f"it was loaded without machine code for sm_{chip[0]}{chip[1]}")
    return max(fitting, key=lambda each: (each.minor, each.suffix, each.code)).code


@dataclass(frozen=True, slots=True)
class _ChipCubin:
    """One cubin of an image: the chip that it is for, and its kernels."""

    major: int
    minor: int
    suffix: str  # "a" of sm_90a
    kernels: frozenset[str]
    code: bytes

    @classmethod
    def of(cls, code: bytes) -> _ChipCubin:
        read = Cubin.read(code)
        return cls(*divmod(read.sm, 10), read.suffix, frozenset(read.kernels), code)


@lru_cache(_IMAGES)
def _cubins(image: bytes, major: int) -> tuple[_ChipCubin, ...]:
    """Return the cubins of an image, as far as they may be for one generation of chips.

    Kept of the latest images: a library has many kernels, and it takes half a second to unpack.

    Raises:
        NoCodeError: it is PTX.
        PatchError: no tool reads the image.
    """
    files = [image] if image.startswith(_ELF) else _unpacked(image, major)
    return tuple(map(_ChipCubin.of, files))


def _unpacked(image: bytes, major: int) -> list[bytes]:
    """Return the cubins of a fat binary that are for one generation of chips.

    Raises:
        NoCodeError: it is PTX.
        PatchError: no tool reads the image.
    """
    if not image.startswith(_FATBIN):
        raise NoCodeError("it was loaded as PTX")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "image.fatbin").write_bytes(image)
        try:
            program = tool("cuobjdump")
        except InspectError as error:
            raise PatchError(str(error)) from error
        limit_s = children.seconds(len(image))
        only = f".sm_{major}"  # torch's files have seven generations of chips
        try:
            done = children.run([program, "-xelf", only, "image.fatbin"], limit_s, cwd=folder)
        except (OSError, children.TooLongError) as error:
            raise PatchError(f"{program} can't read what was loaded: {error}") from error
        made = [each.read_bytes() for each in sorted(folder.glob("*.cubin"))]
    if done.code and not made:
        raise PatchError(f"{program} can't read what was loaded: {done.said.strip()[:300]}")
    return made
