"""A helper is compiled once, and loaded only where it is whole and its user's own."""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ikp import caches, compiling
from ikp.compiling import CompileError, compile_c, kept

pytestmark = pytest.mark.any_pins

SOURCE = b"int seven(void) { return 7; }\n"
Make = Callable[[Path], Path]


class Making:
    """Compiles the source, and counts how often."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, folder: Path) -> Path:
        self.times += 1
        (folder / "a.c").write_bytes(SOURCE)
        compile_c("-shared", "-fPIC", "-o", folder / "libseven.so", folder / "a.c")
        return folder / "libseven.so"


@pytest.fixture
def make() -> Making:
    return Making()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def works(path: Path) -> bool:
    return bool(ctypes.CDLL(str(path)).seven() == 7)


def test_it_is_made_once(make: Making, cache: Path) -> None:
    first = kept("libseven.so", SOURCE, make)
    assert works(first) and first.is_relative_to(cache)
    assert (kept("libseven.so", SOURCE, make), make.times) == (first, 1)


def test_nobody_else_may_write_it_whatever_the_umask(make: Making, cache: Path) -> None:
    path = kept("libseven.so", SOURCE, make)
    for each in (path, *path.parents[:3]):
        assert stat.S_IMODE(each.stat().st_mode) & 0o077 == 0, each
    assert path.parents[2] == cache


@pytest.mark.parametrize("cut", [0, 100, -1, -40])
def test_one_that_is_not_whole_is_made_anew(make: Making, cut: int) -> None:
    path = kept("libseven.so", SOURCE, make)
    path.write_bytes(path.read_bytes()[:cut])
    assert works(kept("libseven.so", SOURCE, make))
    assert make.times == 2
    kept("libseven.so", SOURCE, make)
    assert make.times == 2


def test_one_in_anothers_place_is_made_anew(make: Making) -> None:
    path = kept("libseven.so", SOURCE, make)
    other = kept("libseven.so", SOURCE + b"\n", make)
    other.write_bytes(path.read_bytes())
    kept("libseven.so", SOURCE + b"\n", make)
    assert make.times == 3


@pytest.mark.parametrize("above", [0, 1, 2])
@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_what_others_may_write_is_made_anew_and_closed_to_them(
    make: Making, above: int, mode: int
) -> None:
    path = kept("libseven.so", SOURCE, make)
    place = (path, *path.parents)[above]
    place.chmod(mode)
    assert (kept("libseven.so", SOURCE, make), make.times) == (path, 2)
    assert not stat.S_IMODE(place.stat().st_mode) & 0o022
    assert (kept("libseven.so", SOURCE, make), make.times) == (path, 2)


def test_a_folder_above_that_all_may_write_is_not_trusted(make: Making, cache: Path) -> None:
    kept("libseven.so", SOURCE, make)
    cache.chmod(0o777)
    assert not kept("libseven.so", SOURCE, make).is_relative_to(cache)
    cache.chmod(0o1777)
    assert kept("libseven.so", SOURCE, make).is_relative_to(cache)
    assert make.times == 2


def test_another_users_is_not_loaded(make: Making, monkeypatch: pytest.MonkeyPatch) -> None:
    path = kept("libseven.so", SOURCE, make)
    monkeypatch.setattr(os, "geteuid", lambda: 4321)
    monkeypatch.setattr(caches, "_is_own", _only_of(4321))
    again = kept("libseven.so", SOURCE, make)
    assert again != path and works(again) and make.times == 2


def _only_of(user: int) -> Callable[..., bool]:
    def is_own(found: os.stat_result, *_: int) -> bool:
        return found.st_uid == user

    return is_own


def test_a_link_to_another_file_is_not_followed(make: Making, tmp_path: Path) -> None:
    path = kept("libseven.so", SOURCE, make)
    elsewhere = path.rename(tmp_path / "elsewhere.so")
    path.symlink_to(elsewhere)
    assert not kept("libseven.so", SOURCE, make).is_symlink()
    assert make.times == 2


def test_another_compiler_option_or_libc_makes_another(
    make: Making, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = {kept("libseven.so", SOURCE, make), kept("libseven.so", SOURCE, make, ("-O2",))}
    wrapper = tmp_path / "mycc"
    for text in ("exec cc", "exec  cc"):
        wrapper.write_text(f'#!/bin/sh\n{text} "$@"\n')
        wrapper.chmod(0o755)
        monkeypatch.setenv("CC", str(wrapper))
        found.add(kept("libseven.so", SOURCE, make))
    monkeypatch.setattr(os, "confstr", lambda _: "glibc 9.9")
    found.add(kept("libseven.so", SOURCE, make))
    assert len(found) == make.times == 5


@pytest.mark.parametrize("why", ["a file", "no home", "relative"])
def test_where_nothing_can_be_kept_it_works_all_the_same(
    make: Making, cache: Path, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why == "a file":
        cache.write_text("no folder")
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", "" if why == "no home" else "here")
        monkeypatch.setattr(Path, "home", _no_home)
    path = kept("libseven.so", SOURCE, make)
    assert works(path) and not Path("here").exists()
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def _no_home() -> Path:
    raise RuntimeError("no home")


def test_a_compiler_that_is_no_command_is_refused_in_words(
    make: Making, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", '"')
    with pytest.raises(CompileError, match='CC=" is no command'):
        kept("libseven.so", SOURCE, make)
    monkeypatch.setenv("CC", "/nowhere/cc")
    with pytest.raises(OSError, match="no program"):
        kept("libseven.so", SOURCE, make)


def test_one_that_never_ends_is_ended(
    make: Making, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spinning = tmp_path / "cc"
    spinning.write_text("#!/bin/sh\nwhile :; do :; done\n")
    spinning.chmod(0o755)
    monkeypatch.setenv("CC", str(spinning))
    monkeypatch.setattr(compiling, "_LIMIT_S", 1.0)
    with pytest.raises(CompileError, match="did not end within 1 s"):
        kept("libseven.so", SOURCE, make)


def came(folder: Path, machine: str | None = None) -> Path:
    """Put the library into a folder as a wheel does; return its file."""
    folder.mkdir()
    folder.chmod(0o755)
    made = Making()(folder).rename(
        folder / compiling.prebuilt_name("libseven.so", SOURCE, (), machine)
    )
    made.chmod(0o644)
    return made


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(compiling, "PREBUILT", tmp_path / "prebuilt")
    return tmp_path / "prebuilt"


def test_a_wheels_library_needs_no_compiler(
    make: Making, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = came(wheel)
    monkeypatch.setenv("CC", "/nowhere/cc")
    assert kept("libseven.so", SOURCE, make) == path and works(path)
    assert make.times == 0


@pytest.mark.parametrize(("source", "options"), [(SOURCE + b"\n", ()), (SOURCE, ("-O2",))])
def test_a_wheels_library_of_another_source_is_not_taken(
    make: Making, wheel: Path, source: bytes, options: tuple[str, ...]
) -> None:
    came(wheel)
    assert kept("libseven.so", source, make, options).parent != wheel
    assert make.times == 1


def test_a_wheels_library_for_another_machine_is_not_taken(make: Making, wheel: Path) -> None:
    came(wheel, "m68k")
    assert kept("libseven.so", SOURCE, make).parent != wheel


def test_a_wheels_library_is_not_taken_with_another_libc(
    make: Making, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    came(wheel)
    monkeypatch.setattr(os, "confstr", lambda _: None)
    assert kept("libseven.so", SOURCE, make).parent != wheel


@pytest.mark.parametrize("mode", [0o770, 0o707])
@pytest.mark.parametrize("above", [0, 1])
def test_a_wheels_library_that_others_may_write_is_not_taken(
    make: Making, wheel: Path, above: int, mode: int
) -> None:
    path = came(wheel)
    (path, wheel)[above].chmod(mode)
    assert kept("libseven.so", SOURCE, make).parent != wheel
    assert make.times == 1
