"""Paths that no file can be written to: told in words, and before any kernel runs."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import ikp
from ikp.cli._run import _of_rank
from ikp.cli.main import cli
from ikp.errors import ExportError
from ikp.registry import check_target
from tests.exporters.perfetto.examples import warp
from tests.host import Host, work


def bad_paths(folder: Path, suffix: str) -> list[tuple[str, str]]:
    """Return paths that will not do, and what is said of each."""
    links = {"circle": f"circle{suffix}", "astray": f"nowhere/x{suffix}", "null": "/dev/null"}
    for name, target in links.items():
        (folder / f"{name}{suffix}").symlink_to(target)
    os.mkfifo(folder / f"pipe{suffix}")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(folder / f"socket{suffix}"))
    return [
        (f"{folder}/a\0b{suffix}", "can't be a path: no name of a file has a NUL"),
        (f"{folder}/\ud800{suffix}", "can't be a path: .*surrogates not allowed"),
        (f"{folder}/{'x' * 300}{suffix}", "can't be written: File name too long"),
        (f"{folder}{'/x' * 3000}/a{suffix}", "can't be written: File name too long"),
        (f"/proc/self/a{suffix}", "can't be written: you may not write in /proc/self"),
        (f"~/no folder/a{suffix}", r"there is no folder ~/no.*os\.path\.expanduser"),
        (f"{folder}/circle{suffix}", "can't be written: Too many levels"),
        (f"{folder}/astray{suffix}", f"there is no folder {folder}/nowhere"),
        (f"{folder}/null{suffix}", "/dev/null is a device, a pipe or a socket"),
        (f"{folder}/pipe{suffix}", "pipe.* is a device, a pipe or a socket"),
        (f"{folder}/socket{suffix}", "socket.* is a device, a pipe or a socket"),
    ]


def test_paths_that_will_not_do_are_told_before_the_body_runs(host: Host, tmp_path: Path) -> None:
    ran: list[bool] = []
    for path, message in bad_paths(tmp_path, ".lines"):
        for run in (session, lambda path, body: ikp.capture(body, path=path, force=True)):
            with pytest.raises(ExportError, match=message):
                run(path, lambda prof: ran.append(True))
    assert not ran


def test_a_folder_that_refuses_only_when_asked_for_a_file_is_asked_first(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: True)  # what root is told
    with pytest.raises(
        ExportError, match=r"a\.lines can't be written: no file can be made in /proc"
    ):
        session("/proc/self/a.lines", lambda prof: pytest.fail("it ran"))


def session(path: str, body: Callable[[ikp.profile], object]) -> None:
    with ikp.profile(path, force=True) as prof:
        body(prof)


@pytest.mark.parametrize(
    "suffix", [".pftrace", ".json", ".json.gz", ".csv", ".parquet", ".hatchet"]
)
def test_every_format_refuses_them(tmp_path: Path, suffix: str) -> None:
    for path, message in bad_paths(tmp_path, suffix):
        with pytest.raises(ExportError, match=message):
            warp((0, 1)).save(path, force=True)
    assert Path("/dev/null").is_char_device()
    assert not list(tmp_path.glob(".*"))


def test_convert_refuses_the_target_before_it_reads_the_source(tmp_path: Path) -> None:
    (tmp_path / "x.pftrace").write_bytes(b"no trace")
    for target, message in (
        ("x" * 300 + ".json", "File name too long"),
        ("/proc/x.json", "/proc/x.json can't be written: "),
    ):
        result = CliRunner().invoke(cli, ["convert", str(tmp_path / "x.pftrace"), target])
        assert result.exit_code == 1
        assert message in result.stderr


@pytest.mark.parametrize("command", ["stats", "view", "convert"])
def test_commands_read_no_impossible_path(tmp_path: Path, command: str) -> None:
    words = [command, "x" * 300 + ".pftrace", *([str(tmp_path / "y.csv")] * (command == "convert"))]
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == 1
    assert "ikp: error: no such file" in result.stderr


@pytest.mark.parametrize("path", ["a\0b.pftrace", "\ud800.pftrace", "x" * 300 + ".pftrace"])
def test_load_tells_of_impossible_paths(path: str) -> None:
    with pytest.raises(ExportError):
        ikp.load(path)


def test_bytes_are_a_path_as_they_are_to_python(tmp_path: Path) -> None:
    trace = warp((0, 1))
    trace.save(os.fsencode(tmp_path / "x.pftrace"))  # type: ignore[arg-type]
    assert len(ikp.load(tmp_path / "x.pftrace").events) == 1
    undecodable = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.pftrace")
    trace.save(undecodable)
    assert len(ikp.load(undecodable).events) == 1


@pytest.mark.parametrize("rank", ["../../x", "1/../../x", "²", "-1", "1\n"])
def test_a_rank_is_a_number_in_any_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: str
) -> None:
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert _of_rank(tmp_path / "x.pftrace") == tmp_path / "x.pftrace"
    with pytest.raises(ExportError, match="wants the rank of this process"):
        _of_rank(tmp_path / "x.{rank}.pftrace")


def test_the_check_leaves_nothing_behind(tmp_path: Path) -> None:
    check_target(tmp_path / "x.pftrace", force=False)
    assert not list(tmp_path.iterdir())


def test_a_relative_path_is_of_the_folder_in_which_the_session_began(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.warns(ikp.IkpWarning, match="nothing was recorded"), ikp.profile("k.lines"):
        monkeypatch.chdir(tmp_path / "elsewhere")
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["k.lines"]


def test_a_folder_that_vanishes_meanwhile_loses_no_trace(host: Host, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    sessions = []

    def body(prof: ikp.profile) -> None:
        sessions.append(prof)
        host.run(prof.buffer("k"), work(3))
        folder.rmdir()

    with pytest.raises(ExportError, match=r"no folder .*folder.* prof\.trace\.save\(path\)"):
        session(str(folder / "k.pftrace"), body)
    sessions[0].trace.save(tmp_path / "k.pftrace")
    assert len(ikp.load(tmp_path / "k.pftrace").events) == 4
