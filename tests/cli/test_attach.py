"""``ikp attach`` with a process that can't be attached to: the error says what to give."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner

from ikp.cli.main import cli

pytestmark = pytest.mark.any_pins


def said(pid: int) -> str:
    shown = CliRunner().invoke(cli, ["attach", str(pid), "--for", "0.01"])
    assert shown.exit_code == 1
    return shown.output


def test_a_process_that_has_ended() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert f"there is no process {child.pid} on this machine" in said(child.pid)


def test_a_process_without_hooks() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        try:
            assert "was not started by `ikp run --idle`" in said(child.pid)
        finally:
            child.kill()
