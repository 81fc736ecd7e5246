"""Traces and machine code that name files they should not, or say what can't be."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

import ikp
from ikp.core.trace import of_class
from ikp.errors import InspectError
from ikp.inspection import _images
from ikp.inspection._holding import _lines
from ikp.inspection._images import read_marks
from ikp.inspection.facts_of_trace import facts_of_trace
from ikp.named_files import MOST_SOURCE, read_named
from ikp.probes.kept_code import KEPT, MACHINE_MARK
from ikp.sass.disassembly import sources
from tests.analysis.example import trace

pytestmark = pytest.mark.any_pins


def naming(path: object) -> ikp.Trace:
    """Return a trace that names a path as its machine code."""
    return of_class(
        ikp.Trace, replace(trace([(0, 0, 1, 2)]), provenance={f"{KEPT}gemm": str(path)})
    )


@pytest.fixture(params=["pipe", "device", "folder", "large", "other", "socket"])
def odd(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a path ending in .cubin at which no machine code is."""
    path = tmp_path / "x.cubin"
    if request.param == "pipe":
        os.mkfifo(path)
    elif request.param == "device":
        path.symlink_to("/dev/zero")
    elif request.param == "folder":
        path.mkdir()
        (path / "x.ptx").write_text(MACHINE_MARK)
    elif request.param == "large":
        with path.open("wb") as file:
            file.truncate(1 << 40)
    elif request.param == "socket":
        path.symlink_to("/dev/tty")
    else:
        path = tmp_path / "secret.txt"
        path.write_text("\x7fELF")
    return path


def test_what_a_trace_names_is_opened_only_if_it_can_be_machine_code(odd: Path) -> None:
    with pytest.raises(InspectError, match=r"can't be read where this trace says") as raised:
        ikp.inspect(naming(odd))
    assert str(odd) in str(raised.value)
    assert not facts_of_trace(naming(odd))


def test_the_ptx_beside_is_no_pipe_either(tmp_path: Path) -> None:
    (tmp_path / "x.cubin").write_bytes(b"")
    os.mkfifo(tmp_path / "x.ptx")
    with pytest.raises(InspectError, match="no regular file"):
        ikp.inspect(naming(tmp_path / "x.cubin"))


@pytest.mark.parametrize("path", ["\0.cubin", "x" * 5000 + ".cubin", "/proc/self/mem.cubin"])
def test_a_path_that_no_file_has_is_refused(path: str) -> None:
    with pytest.raises(InspectError):
        ikp.inspect(naming(path))


def test_a_pipe_in_place_of_a_file_that_was_looked_at_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look and the opening, anything may be put there."""
    path = tmp_path / "x"
    os.mkfifo(path)
    plain = (tmp_path / "plain").write_bytes(b"") or (tmp_path / "plain").stat()
    monkeypatch.setattr(Path, "stat", lambda *_, **__: plain)
    found: list[object] = []

    def opened() -> None:
        try:
            read_named(path, 10)
        except OSError as error:
            found.append(error.strerror)

    thread = threading.Thread(target=opened, daemon=True)
    thread.start()
    thread.join(5)
    assert found == ["it is no regular file"]


def test_no_more_is_read_than_the_limit(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"12345")
    assert read_named(tmp_path / "x", 5) == b"12345"
    with pytest.raises(OSError, match="more than 4 bytes"):
        read_named(tmp_path / "x", 4)


def test_a_source_that_a_line_table_names_is_a_file_of_a_source_s_size(tmp_path: Path) -> None:
    pipe, large, deep, plain = (tmp_path / name for name in ("pipe", "large", "deep", "plain"))
    os.mkfifo(pipe)
    large.write_text("#" * (MOST_SOURCE + 1))
    deep.write_text("(" * 100_000)
    plain.write_text("x = 1\n")
    for one in (pipe, large, "/dev/zero", "", "\0", tmp_path):
        assert sources.syntax(str(one)) is None and sources.text_lines(str(one)) == ()
    assert sources.syntax(str(deep)) is None
    assert sources.syntax(str(plain)) is not None
    assert sources.text_lines(str(plain)) == ("x = 1",)


@pytest.mark.parametrize(
    "said",
    [
        "",
        "{",
        "[]",
        "{}",
        "null",
        '{"names": [], "ours": []}',
        '{"names": 3, "ours": 4}',
        '{"names": ["x"], "ours": [1]}',
        "[" * 100_000,
    ],
)
def test_damaged_marks_beside_machine_code_are_refused(said: str) -> None:
    with pytest.raises(InspectError, match="PTX beside"):
        read_marks(f"{MACHINE_MARK} {said}\n")


def test_lines_that_a_name_says_take_no_memory() -> None:
    assert _lines("1-999999999") == [(1, 999999999)]
    assert _lines("17+18+...") == [(17, 17), (18, 18)]
    assert _lines("...") == _lines("1-2-3") == _lines("9" * 5000) == []


def test_files_that_a_user_names_are_refused_in_words(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.cubin")
    with pytest.raises(InspectError, match="no regular file"):
        list(_images.images(tmp_path / "x.cubin"))
