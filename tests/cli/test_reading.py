import errno
from pathlib import Path

import pytest

from ikp.cli._reading import next_command, read_trace
from ikp.errors import ExportError


class WriteOnly:
    interface, suffixes = 1, (".wo",)

    def write(self, trace, path, *, force=False):
        raise NotImplementedError


def test_a_missing_file(tmp_path):
    with pytest.raises(ExportError, match=r"no such file: .*x\.pftrace"):
        read_trace(tmp_path / "x.pftrace")


def test_a_folder(tmp_path):
    with pytest.raises(ExportError, match="is not a file"):
        read_trace(tmp_path)


def test_a_file_without_permission(tmp_path, monkeypatch):
    path = tmp_path / "x.pftrace"
    path.touch()

    def deny(*_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "open", deny)
    with pytest.raises(ExportError, match=r"can't read .*: Permission denied"):
        read_trace(path)


def test_a_format_that_can_only_be_written(tmp_path, monkeypatch):
    path = tmp_path / "x.wo"
    path.touch()
    monkeypatch.setattr("ikp.registry.exporter_for_path", lambda _: WriteOnly())
    with pytest.raises(ExportError, match="can't be read back: WriteOnly only writes"):
        read_trace(path)


@pytest.mark.parametrize("name", ["x.html", "trace", "x.sqlite"])
def test_a_file_of_another_kind_is_told_what_is_read(name, tmp_path):
    """Suffixes of formats that can only be written are no help to who wants to read."""
    path = tmp_path / name
    path.touch()
    with pytest.raises(ExportError, match=r"is no trace by its name: ikp reads \.pftrace") as said:
        read_trace(path)
    assert ".csv" not in str(said.value)


def test_the_next_command_is_quoted_for_the_shell_and_on_stderr(capsys):
    next_command("ikp", "view", "a b.pftrace", why="look")
    out, err = capsys.readouterr()
    assert (out, err) == ("", "next: ikp view 'a b.pftrace'    (look)\n")
