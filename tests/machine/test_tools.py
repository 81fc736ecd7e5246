"""What the disassembler printed is kept, and is never another file's, build's or option's."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from ikp import children
from ikp.errors import InspectError
from ikp.machine.disassembly import tools
from ikp.machine.disassembly.tools import (
    texts,  # the tests' own, which keeps texts longer, replaces it there
)

_SCRIPT = """#!/bin/sh
case "$*" in
--version) echo "build {build}"; exit ;;
*-plr*) {life_ranges} ;;
esac
echo run >> {log}
eval file=\\${{$#}}
echo "{build} $* of $(cat "$file")" | sed "s#$file##"
"""

Build = Callable[..., None]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A line for each time that the disassembler printed."""
    log = tmp_path / "runs"
    log.touch()
    return log


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: Path) -> Build:
    """Put a disassembler in the place of NVIDIA's."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))

    def put(name: str, life_ranges: str = ":") -> None:
        program = tmp_path / name
        program.write_text(_SCRIPT.format(build=name, log=runs, life_ranges=life_ranges))
        program.chmod(0o755)
        monkeypatch.setattr(tools, "tool", lambda _: program)

    put("one")
    return put


def _count(log: Path) -> int:
    return len(log.read_text().splitlines())


@pytest.mark.usefixtures("build")
def test_a_text_is_printed_once(runs: Path) -> None:
    first = texts(b"code")
    assert first == ("one -c -hex -gi  of code\n", "one -c -plr -lrm narrow  of code\n")
    assert (texts(b"code"), texts(b"code", life_ranges=False)) == (first, (first[0], ""))
    assert _count(runs) == 2


@pytest.mark.usefixtures("build")
def test_each_build_option_and_file_has_its_own(build: Build) -> None:
    found = [texts(b"code"), texts(b"-fun7code"), texts(b"code", function=7)]
    build("two")
    found.append(texts(b"code"))
    assert len({text for each in found for text in each}) == 2 * len(found)


@pytest.mark.usefixtures("build")
@pytest.mark.parametrize("damage", ["empty", "end", "cut", "no text", "another's", "foreign"])
def test_a_damaged_one_is_printed_again(tmp_path: Path, runs: Path, damage: str) -> None:
    first = texts(b"code")
    paths = sorted((tmp_path / "cache").iterdir())
    contents = [path.read_bytes() for path in paths]
    cut = zlib.compress(b"one -c -hex -gi  of")  # whole for zlib, and not for who reads it
    for path, content, other in zip(paths, contents, contents[::-1], strict=True):
        kinds = {"empty": b"", "end": content[:-3], "cut": cut, "no text": b"no text"}
        path.write_bytes((kinds | {"another's": other, "foreign": content})[damage])
        if damage == "foreign":
            path.chmod(0o666)
    assert texts(b"code") == first
    assert texts(b"code") == first
    assert _count(runs) == 4


@pytest.mark.usefixtures("build")
def test_where_nothing_can_be_kept_it_is_printed_each_time(tmp_path: Path, runs: Path) -> None:
    (tmp_path / "cache").write_text("a file, no folder")
    assert texts(b"code") == texts(b"code")
    assert _count(runs) == 4


@pytest.mark.parametrize(
    ("said", "printed"), [("Cannot print life ranges as flow analysis is disabled", 1), ("?", 2)]
)
def test_only_a_refusal_that_lasts_is_kept(
    build: Build, runs: Path, said: str, printed: int
) -> None:
    build("three", f"echo '{said}' >&2; exit 1")
    first = texts(b"code")
    assert first == texts(b"code") == ("three -c -hex -gi  of code\n", "")
    assert _count(runs) == printed


def test_a_file_that_it_refuses_is_refused_each_time(build: Build, runs: Path) -> None:
    build("four")
    tools.tool("nvdisasm").write_text("#!/bin/sh\necho 'bad file' >&2\nexit 1\n")
    for _ in range(2):
        with pytest.raises(InspectError, match="bad file"):
            texts(b"code")
    assert _count(runs) == 0


def test_one_that_never_ends_is_ended_and_refused(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    build("five")
    tools.tool("nvdisasm").write_text("#!/bin/sh\nwhile :; do :; done\n")
    monkeypatch.setattr(children, "seconds", lambda _: 1.0)
    with pytest.raises(InspectError, match=r"five can't be used on .* did not end within 1 s"):
        texts(b"code")


def test_one_that_can_not_be_started_is_refused(build: Build) -> None:
    build("six")
    tools.tool("nvdisasm").chmod(0o644)
    with pytest.raises(InspectError, match="there is no program"):
        texts(b"code")
