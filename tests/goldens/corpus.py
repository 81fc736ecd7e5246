"""The corpus of the goldens: small kernels, what the disassembler prints of them, and their PTX.

``kernels.tar.xz`` holds, for each kernel, ``NAME.cubin``, ``NAME.text`` and, for some, ``.ptx``;
and ``golden_sources/``, the source of those that Triton compiled. They were compiled of PTX and
CUDA C++ of these tests and of ``tools/fuzz_operators/samples``. They are kept: so no version of a
compiler changes what a view says. NAME is a kernel's name in its file, a number where several have
the same, and its chip: ``gathered1.90``.
"""

from __future__ import annotations

import atexit
import io
import re
import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from ikp.sass.cubins.cubin import Cubin
from tests.goldens.views import Subject

FOLDER = Path(__file__).parent
ARCHIVE = FOLDER / "kernels.tar.xz"
SOURCES = "golden_sources"
_PRINTED, _OTHERS = "printed.txt", "others.txt"


@dataclass(frozen=True)
class Listed(Subject):
    """A kernel with the disassembler's text of it."""

    text: str = field(default="", repr=False)


@cache
def _files() -> dict[str, bytes]:
    with tarfile.open(ARCHIVE) as archive:
        return {
            each.name: found.read()
            for each in archive.getmembers()
            if (found := archive.extractfile(each)) is not None
        }


@cache
def sources() -> Path:
    """Return a folder in which the kernels' source is where their line tables say."""
    folder = Path(tempfile.mkdtemp(prefix="ikp-goldens-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for path, data in _files().items():
        if path.startswith(SOURCES):
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_bytes(data)
    return folder


@cache
def printed() -> list[str]:
    """Return what the disassembler prints of two examples of each form of sm_90."""
    return _files()[_PRINTED].decode().split("\n")


@cache
def others() -> list[str]:
    """Return texts of further instructions: of other chips, with registers and numbers made few."""
    return _files()[_OTHERS].decode().splitlines()


@cache
def corpus() -> Mapping[str, Listed]:
    """Return the kernels by name."""
    files = _files()
    return {
        (name := path.removesuffix(".cubin")): Listed(
            data,
            files[f"{name}.name"].decode(),
            files.get(f"{name}.ptx", b"").decode(),
            files[f"{name}.text"].decode(),
        )
        for path, data in sorted(files.items())
        if path.endswith(".cubin")
    }


def unused(kernel: str, sm: int, known: Mapping[str, Listed]) -> str:
    """Return a name for a kernel of a chip that no other has."""
    plain = re.sub(r"^_Z\d+|\W", "", kernel)
    names = (f"{plain}{number or ''}.{sm}" for number in range(len(known) + 1))
    return next(name for name in names if name not in known)


def add(kernel: Listed) -> None:
    """Put one more kernel into the archive."""
    found, sm = dict(corpus()), Cubin.read(kernel.cubin).sm
    found[unused(kernel.name, sm, found)] = kernel
    rest = {
        path: data
        for path, data in _files().items()
        if path.startswith(SOURCES) or path in (_PRINTED, _OTHERS)
    }
    ARCHIVE.write_bytes(packed(found, rest))


def packed(kernels: Mapping[str, Listed], rest: Mapping[str, bytes]) -> bytes:
    """Return the content of the archive: the same bytes for the same kernels and other files."""
    files = dict(rest)
    for name, each in kernels.items():
        parts = {"name": each.name, "ptx": each.ptx, "text": each.text}
        files |= {f"{name}.{what}": text.encode() for what, text in parts.items() if text}
        files[f"{name}.cubin"] = each.cubin
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:xz", preset=9) as archive:
        for path, data in sorted(files.items()):
            head = tarfile.TarInfo(path)
            head.size = len(data)
            archive.addfile(head, io.BytesIO(data))
    return made.getvalue()
