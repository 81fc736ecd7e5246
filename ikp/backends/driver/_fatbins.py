"""The cubin for one chip out of an image that a program loads: a cubin, a fat binary or PTX."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

from ikp import children
from ikp.errors import InspectError, PatchError
from ikp.sass.cubins.cubin import Cubin
from ikp.sass.disassembly.tool_paths import tool


class NoCodeError(PatchError):
    """The loaded image has no machine code for the chip: the driver compiles its PTX."""


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
    files = [image] if image.startswith(_ELF) else _unpacked(image, chip[0])
    fitting = []
    for each in files:
        read = Cubin.read(each)
        major, minor = divmod(read.sm, 10)
        if name in read.kernels and major == chip[0] and minor <= chip[1]:
            fitting.append((minor, read.suffix, each))
    if not fitting:
        raise NoCodeError(f"it was loaded without machine code for sm_{chip[0]}{chip[1]}")
    return max(fitting)[2]


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
