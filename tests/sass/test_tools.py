"""What the disassembler printed is kept, and is never another file's, build's or function's."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from ikp import children
from ikp.errors import InspectError
from ikp.sass.disassembly import tools
from ikp.sass.disassembly.tools import (
    disassemble,
    disassemble_function,
    printed,  # the tests' own, which keeps texts longer, replaces it there
)

_SCRIPT = """#!/bin/sh
case "$*" in
--version) echo "build {build}"; exit ;;
*{refused}*) echo 'bad function' >&2; exit 1 ;;
esac
echo "$@" >> {log}
eval file=\\${{$#}}
echo "{build} $* of $(cat "$file")" | sed "s#$file##"
for name in {names}; do
    printf '//--------------------- .text.%s   --------------------------\\n' "$name"
    printf '\\t/*0000*/ %s ;\\n' "$name"
done
"""
NAMES = {"f": 7, "g": 8, "h": 9}

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
    monkeypatch.setattr(tools, "printed", printed)

    def put(name: str, names: str = "", refused: str = "nothing") -> None:
        program = tmp_path / name
        said = {"build": name, "log": runs, "names": names, "refused": refused}
        program.write_text(_SCRIPT.format(**said))
        program.chmod(0o755)
        monkeypatch.setattr(tools, "tool", lambda _: program)

    put("one")
    return put


def _count(log: Path) -> int:
    return len(log.read_text().splitlines())


@pytest.mark.usefixtures("build")
def test_a_text_is_printed_once(runs: Path) -> None:
    assert disassemble(b"code") == disassemble(b"code") == "one -c -hex -gi -ndf  of code\n"
    assert _count(runs) == 1


def test_targets_of_indirect_branches_are_searched_for_where_there_is_one(
    build: Build, runs: Path
) -> None:
    """The search takes a quarter of the disassembler's time, and finds nothing in most kernels."""
    for name, options in {"BRA": [True], "BRX": [True, False], "JMXU": [True, False]}.items():
        build("two", name)
        runs.write_text("")
        disassemble(name.encode())
        assert ["-ndf" in line for line in runs.read_text().splitlines()] == options


def test_functions_are_printed_together_and_kept_apart(build: Build, runs: Path) -> None:
    build("one", names="f g h")
    texts = [disassemble_function(b"code", each, NAMES) for each in NAMES]
    head = "one -c -hex -gi -ndf -fun 7,8,9  of code\n"
    title = "//--------------------- .text.{}   "
    for name, text in zip(NAMES, texts, strict=True):
        assert text.startswith(head + title.format(name))
        assert [each for each in NAMES if f" {each} ;" in text] == [name]
    assert _count(runs) == 1


def test_one_that_is_refused_takes_no_other_with_it(build: Build, runs: Path) -> None:
    build("one", names="f", refused=",8")
    assert " f ;" in disassemble_function(b"code", "f", NAMES)
    assert "-fun 7 " in runs.read_text()
    build("one", refused="8")
    with pytest.raises(InspectError, match="bad function"):
        disassemble_function(b"code", "g", {"g": 8})


def test_one_that_is_not_printed_is_told_by_no_text(build: Build) -> None:
    build("one", names="f")
    assert disassemble_function(b"code", "g", NAMES) == ""


def test_each_build_function_and_file_has_its_own(build: Build) -> None:
    build("one", names="f g")
    found = [disassemble(b"code"), disassemble(b"-fun7code")]
    found += [disassemble_function(b"code", name, NAMES) for name in "fg"]
    found.append(disassemble_function(b"other", "f", NAMES))
    build("two", names="f g")
    found += [disassemble(b"code"), disassemble_function(b"code", "f", NAMES)]
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("damage", ["empty", "end", "cut", "no text", "another's", "foreign"])
def test_a_damaged_one_is_printed_again(
    tmp_path: Path, build: Build, runs: Path, damage: str
) -> None:
    build("one", names="f g")
    first = disassemble_function(b"code", "f", {"f": 7, "g": 8})
    paths = sorted((tmp_path / "cache").iterdir())
    contents = [path.read_bytes() for path in paths]
    cut = zlib.compress(b"one -c -hex -gi  of")  # whole for zlib, and not for who reads it
    for path, content, other in zip(paths, contents, contents[::-1], strict=True):
        kinds = {"empty": b"", "end": content[:-3], "cut": cut, "no text": b"no text"}
        path.write_bytes((kinds | {"another's": other, "foreign": content})[damage])
        if damage == "foreign":
            path.chmod(0o666)
    assert disassemble_function(b"code", "f", {"f": 7, "g": 8}) == first
    assert disassemble_function(b"code", "f", {"f": 7, "g": 8}) == first
    assert _count(runs) == 2


@pytest.mark.usefixtures("build")
def test_where_nothing_can_be_kept_it_is_printed_each_time(tmp_path: Path, runs: Path) -> None:
    (tmp_path / "cache").write_text("a file, no folder")
    assert disassemble(b"code") == disassemble(b"code")
    assert _count(runs) == 2


def test_a_file_that_it_refuses_is_refused_each_time(build: Build, runs: Path) -> None:
    build("four")
    tools.tool("nvdisasm").write_text("#!/bin/sh\necho 'bad file' >&2\nexit 1\n")
    for _ in range(2):
        with pytest.raises(InspectError, match="bad file"):
            disassemble(b"code")
    assert _count(runs) == 0


def test_one_that_never_ends_is_ended_and_refused(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    build("five")
    tools.tool("nvdisasm").write_text("#!/bin/sh\nwhile :; do :; done\n")
    monkeypatch.setattr(children, "seconds", lambda _: 1.0)
    with pytest.raises(InspectError, match=r"five can't be used on .* did not end within 1 s"):
        disassemble(b"code")


def test_one_that_can_not_be_started_is_refused(build: Build) -> None:
    build("six")
    tools.tool("nvdisasm").chmod(0o644)
    with pytest.raises(InspectError, match="there is no program"):
        disassemble(b"code")


def test_code_that_the_disassembler_refuses_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    bad, good = b"\xff" * 16, b"\1" + bytes(15)

    def said(_: Path, __: str, code: bytes) -> children.Done:
        words = [code[at : at + 16] for at in range(0, len(code), 16)]
        wrong = [f"error at address {16 * n:#x}" for n, each in enumerate(words) if each == bad]
        text = "".join(f"  /*{16 * n:04x}*/ {each[0]:#x} ;\n" for n, each in enumerate(words))
        return children.Done(len(wrong), "" if wrong else text, "\n".join(wrong))

    monkeypatch.setattr(tools, "_printed_code", said)
    made = tools.printed_code(Path("nvdisasm"), "90a", good + bad + good + bad)
    assert made == {0: "0x1", 0x20: "0x1"}
