"""``install``: makes the library that is interposed before the CUDA driver, and loads it.

It has the driver's name, so a later ``dlopen`` of ``libcuda.so.1`` gets it. No environment variable
is set, and child processes do not have it. Where the driver is in the process already, it is too
late.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from ikp import children
from ikp.backends.driver._hook import Hook
from ikp.compiling import CompileError, compile_c, compiler, kept, prebuilt
from ikp.errors import PatchError

DRIVER = "libcuda.so.1"
ANY_DRIVER = "/path/of/the/driver" + "." * 236
"""What a wheel's library has in place of the driver's path: the path is written over it."""
_OPENING_S = 60
"""Seconds of processor time in which a process finds the driver and opens it."""
_SOURCES = sorted(Path(__file__).with_name("hook").glob("*.[ch]"))
_LATE = (
    "the CUDA driver is in this process already: what was loaded before ikp came can't be "
    "recorded. Start the program with `ikp run`."
)
_LATE_BY_TOOL = (
    "{} has loaded the CUDA driver before Python began, and ikp must come before the driver. "
    "Run the program under one of the two."
)
_TOOLS = (("compute-sanitizer", re.compile(r"sanitizer|InterceptorInjection", re.IGNORECASE)),)
"""Tools that load the driver at a program's start, and the files that they put into its process."""
_loaded: list[Hook] = []


def install() -> Hook:
    """Load the library before the driver.

    Raises:
        PatchError: the driver is loaded already, or there is none; or the library is to be
            compiled, and there is no C compiler.
    """
    if not _loaded:
        files = mapped()
        if any("/libcuda.so" in each for each in files):
            raise PatchError(_why_late(files))
        library = ctypes.CDLL(str(_built(_driver())))
        _loaded.append(Hook(library))
    return _loaded[0]


def mapped() -> list[str]:
    """Return the files that this process has mapped, a line each."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise PatchError(f"what this process has loaded can't be read: {error}") from error
    return [line.split(maxsplit=5)[5] for line in maps.splitlines() if "/" in line]


def _why_late(files: Sequence[str]) -> str:
    """Return the message on a driver that is loaded already; it names a tool that loaded it."""
    for tool, its in _TOOLS:
        if any(its.search(Path(each).name) or f"/{tool}/" in each for each in files):
            return _LATE_BY_TOOL.format(tool)
    return _LATE


@cache
def _driver() -> str:
    """Return the driver's path, as a process that opens it would find it.

    Raises:
        PatchError: there is none.
    """
    code = (
        f"import ctypes; ctypes.CDLL({DRIVER!r}); "
        "print(next(l.split(maxsplit=5)[5].strip() for l in open('/proc/self/maps') "
        "if '/libcuda.so' in l))"
    )
    try:
        found = children.run([sys.executable, "-S", "-E", "-c", code], _OPENING_S)
    except (OSError, children.TooLongError) as error:
        raise PatchError(f"whether there is a CUDA driver can't be seen: {error}") from error
    if found.code:
        said = found.said.strip().splitlines() or [f"a process that opens it ends: {found.code}"]
        raise PatchError(f"there is no CUDA driver: {said[-1]}.")
    return found.out.strip()


def _built(driver: str) -> Path:
    """Return the compiled library for this driver's path.

    Raises:
        PatchError: there is no C compiler, or it fails.
    """

    def make(folder: Path) -> Path:
        came = prebuilt(DRIVER, source())
        if came is None or len(driver.encode()) > len(ANY_DRIVER):
            return build(folder, driver)
        path = driver.encode().ljust(len(ANY_DRIVER), b"\0")
        made = folder / DRIVER
        made.write_bytes(came.read_bytes().replace(ANY_DRIVER.encode(), path))
        return made

    return kept(DRIVER, source() + driver.encode(), make)


def source() -> bytes:
    """Return what the library is compiled from."""
    return b"".join(each.read_bytes() for each in _SOURCES)


def build(folder: Path, driver: str, sources: Sequence[Path] = _SOURCES) -> Path:
    """Compile the library into a folder.

    Args:
        folder: for it, and for the stub library that it is linked with.
        driver: the driver's path.
        sources: its files.

    Raises:
        PatchError: there is no C compiler, or it fails.
    """
    stub, made = folder / "stub.so", folder / DRIVER
    empty = folder / "stub.c"
    empty.write_text("")
    # The linker records a linked library by its soname: here, the driver's path.
    _compile("-shared", "-o", stub, f"-Wl,-soname,{driver}", empty)
    _compile(
        *("-shared", "-fPIC", "-O2", "-fvisibility=hidden", f'-DIKP_REAL="{driver}"'),
        *(f"-Wl,-soname,{DRIVER}", "-Wl,--no-as-needed", "-o", made),
        *(*(each for each in sources if each.suffix == ".c"), stub),
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
