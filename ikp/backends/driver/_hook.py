"""A library that stands before the CUDA driver: built when it is first needed, loaded before it.

It has the driver's name, so whoever opens ``libcuda.so.1`` afterwards gets it; no variable is set,
and programs that this one starts have nothing of it. Where the driver is in the process already, it
is too late.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from pathlib import Path

from ikp.compiling import CompileError, compile_c, compiler, kept
from ikp.errors import PatchError
from ikp.machine.cubins.added_parameter import Argument

_DRIVER = "libcuda.so.1"
_SOURCE = Path(__file__).with_name("hook.c")
_LATE = (
    "the CUDA driver is in this process already: what was loaded before ikp came can't be "
    "recorded. Start the program with `ikp run`."
)


class Launch(ctypes.Structure):
    """A launch that is asked about, as ``hook.c`` lays it out."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        ("id", ctypes.c_uint64),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared", ctypes.c_uint32),
        ("cooperative", ctypes.c_uint32),
        ("stream", ctypes.c_void_p),
        ("extensible", ctypes.c_uint32),
        ("instead", ctypes.c_void_p),
        ("decided", ctypes.c_uint32),
        ("ordinal", ctypes.c_uint32),
        ("offset", ctypes.c_uint32),
        ("bytes", ctypes.c_uint32),
        ("told", ctypes.c_uint64 * 9),
        ("done", ctypes.c_uint32),
        ("params", ctypes.POINTER(ctypes.c_void_p)),
        ("extra", ctypes.POINTER(ctypes.c_void_p)),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint32),
    )

    def append(self, argument: Argument, words: Sequence[int]) -> None:
        """Pass one more argument to what is launched."""
        self.told[: len(words)] = words
        self.ordinal, self.offset = argument.ordinal, argument.offset
        self.bytes = argument.size


class _About(ctypes.Structure):
    _fields_ = (
        ("id", ctypes.c_uint64),
        ("parent", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("image", ctypes.c_void_p),
        ("bytes", ctypes.c_size_t),
        ("origin", ctypes.c_char_p),
        ("kind", ctypes.c_uint32),
    )


class Kind(IntEnum):
    """What a handle of the driver stands for."""

    UNKNOWN = 0
    MODULE = 1
    LIBRARY = 2
    FUNCTION = 3
    KERNEL = 4  # a function for any context


_ASKED = ctypes.CFUNCTYPE(None, ctypes.POINTER(Launch))


@dataclass(frozen=True, slots=True)
class Known:
    """What was seen of a module, a library or a function when it was made."""

    id: int
    parent: int
    name: str
    image: bytes
    origin: str  # the file that has the image, or of whoever loaded it
    kind: Kind


class Hook:
    """The loaded library."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._asked: object = None

    def ask(self, whom: Callable[[Launch], None] | None) -> None:
        """Have launches that nobody has decided yet go to ``whom``; None ends that."""
        if whom is None:
            self._library.ikp_ask(None)
            return

        def asked(launch: ctypes._Pointer[Launch]) -> None:
            whom(launch.contents)

        self._asked = _ASKED(asked)  # held as long as the driver may call it
        self._library.ikp_ask(self._asked)

    def about(self, handle: int) -> Known | None:
        """Return what is known of a handle."""
        told = _About()
        if self._library.ikp_about(ctypes.c_void_p(handle), ctypes.byref(told)):
            return None
        return Known(
            told.id,
            told.parent or 0,
            (told.name or b"").decode(errors="replace"),
            ctypes.string_at(told.image, told.bytes) if told.image else b"",
            (told.origin or b"").decode(errors="replace"),
            Kind(told.kind),
        )


_loaded: list[Hook] = []


def install() -> Hook:
    """Load the library before the driver.

    Raises:
        PatchError: the driver is loaded already, or there is none, or no C compiler.
    """
    if not _loaded:
        if _in_process():
            raise PatchError(_LATE)
        library = ctypes.CDLL(str(_built(_driver())))
        library.ikp_about.argtypes = (ctypes.c_void_p, ctypes.POINTER(_About))
        _loaded.append(Hook(library))
    return _loaded[0]


def _in_process() -> bool:
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise PatchError(f"what this process has loaded can't be read: {error}") from error
    return any("/libcuda.so" in line for line in maps.splitlines())


@cache
def _driver() -> str:
    """Return the driver's path, as a process that opens it would find it.

    Raises:
        PatchError: there is none.
    """
    code = (
        f"import ctypes; ctypes.CDLL({_DRIVER!r}); "
        "print(next(l.split(maxsplit=5)[5].strip() for l in open('/proc/self/maps') "
        "if '/libcuda.so' in l))"
    )
    found = subprocess.run(  # noqa: S603
        [sys.executable, "-S", "-E", "-c", code], capture_output=True, text=True, check=False
    )
    if found.returncode:
        raise PatchError(f"there is no CUDA driver: {found.stderr.strip().splitlines()[-1]}.")
    return found.stdout.strip()


def _built(driver: str) -> Path:
    """Return the compiled library for this driver's path.

    Raises:
        PatchError: there is no C compiler, or it fails.
    """
    source = _SOURCE.read_bytes() + driver.encode()
    return kept(_DRIVER, source, lambda folder: _compiled(folder, driver))


def _compiled(folder: Path, driver: str) -> Path:
    stub, made = folder / "stub.so", folder / _DRIVER
    empty = folder / "stub.c"
    empty.write_text("")
    # What is linked stands in the file by the name that it says of itself: here, the driver's path.
    _compile("-shared", "-o", stub, f"-Wl,-soname,{driver}", empty)
    _compile(
        *("-shared", "-fPIC", "-O2", "-fvisibility=hidden", f'-DIKP_REAL="{driver}"'),
        *(f"-Wl,-soname,{_DRIVER}", "-Wl,--no-as-needed", "-o", made, _SOURCE, stub),
        *("-ldl", "-lpthread"),
    )
    return made


def _compile(*arguments: str | Path) -> None:
    try:
        compile_c(*arguments)
    except OSError as error:
        raise PatchError(
            f"the C compiler {compiler()!r} can't be run ({error}): ikp needs one, as Triton "
            "does, to see what the CUDA driver loads. Install gcc, or set CC."
        ) from error
    except CompileError as error:
        raise PatchError(str(error)) from error
