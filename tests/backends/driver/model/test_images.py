"""What was loaded is read when it is patched: the library that had it may be gone by then."""

import ctypes
from pathlib import Path

import pytest

from ikp.compiling import compile_c
from tests.backends.driver.model.building import Built
from tests.backends.driver.model.driven import Counting, Driven, Handle, driven, image

pytestmark = pytest.mark.any_pins


def library(folder: Path, code: int, *, writable: bool = False) -> Path:
    """Return a library that has an image in its data."""
    values = ",".join(map(str, image(code)))
    source, made = folder / f"data{code}.c", folder / f"libdata{code}.so"
    kind = "unsigned char" if writable else "const unsigned char"
    source.write_text(f"{kind} data[] = {{{values}}};\n")
    compile_c("-shared", "-fPIC", "-o", made, source)
    return made


def _close(opened: ctypes.CDLL) -> None:
    close = ctypes.CDLL(None).dlclose
    close.argtypes = [ctypes.c_void_p]
    assert close(opened._handle) == 0


def _loaded(program: Driven, opened: ctypes.CDLL) -> int:
    data = (ctypes.c_char * 128).in_dll(opened, "data")
    return program.call("cuModuleLoadData", Handle(ctypes.addressof(data)))


def _mapped(path: Path) -> bool:
    return str(path) in Path("/proc/self/maps").read_text()


def test_the_image_of_a_closed_library_is_read_from_its_file(built: Built, tmp_path: Path) -> None:
    with driven(built, Counting()) as program:
        path = library(tmp_path, 11)
        module = _loaded(program, opened := ctypes.CDLL(str(path)))
        _close(opened)
        assert not _mapped(path)
        function = program.call("cuModuleGetFunction", module, b"a")
        assert program.launch(function) == (11, "a", True)
        found = program.hook.about(module)
        assert found is not None and found.origin == str(path)


@pytest.mark.parametrize("gone", [True, False])
def test_where_the_file_is_another_its_kernels_run_plain(
    built: Built, tmp_path: Path, gone: bool
) -> None:
    with driven(built, launcher := Counting()) as program:
        path = library(tmp_path, 12)
        module = _loaded(program, opened := ctypes.CDLL(str(path)))
        _close(opened)
        path.unlink()
        if not gone:
            library(tmp_path, 13).rename(path)
        function = program.call("cuModuleGetFunction", module, b"a")
        assert program.launch(function) == (12, "a", False)
    assert "has been unloaded, changed or deleted since" in launcher.plain[0]
    assert str(path) in launcher.plain[0]


def test_what_a_program_may_overwrite_is_copied(built: Built, tmp_path: Path) -> None:
    with driven(built, Counting()) as program:
        opened = ctypes.CDLL(str(library(tmp_path, 14, writable=True)))
        module = _loaded(program, opened)
        ctypes.memset((ctypes.c_char * 128).in_dll(opened, "data"), 0, 128)
        function = program.call("cuModuleGetFunction", module, b"a")
        assert program.launch(function) == (14, "a", True)


def test_a_library_that_was_deleted_before_is_copied(built: Built, tmp_path: Path) -> None:
    with driven(built, Counting()) as program:
        path = library(tmp_path, 15)
        opened = ctypes.CDLL(str(path))
        path.unlink()
        module = _loaded(program, opened)
        _close(opened)
        function = program.call("cuModuleGetFunction", module, b"a")
        assert program.launch(function) == (15, "a", True)
