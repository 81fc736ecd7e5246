import queue
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
import webbrowser

import pytest
from click.testing import CliRunner

from ikp.cli import view
from ikp.cli.main import cli
from tests.analysis.example import trace


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "x.pftrace"
    path.write_bytes(b"a trace")
    return path


@pytest.fixture
def no_display(monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)


def start(*words):
    """Start ``ikp view`` and return it with the address that it printed."""
    command = [sys.executable, "-m", "ikp.cli.main", "view", "--no-open", "--port", "0", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return process, process.stdout.readline().partition("?url=")[2].strip()


def fetch(url):
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - our own server
        return answer.read()


def test_once_stops_after_the_first_fetch(file):
    process, url = start("--once", str(file))
    assert fetch(url) == b"a trace"
    _, err = process.communicate(timeout=20)
    assert process.returncode == 0
    assert err.endswith(f"next: ikp stats {file}    (the same trace as numbers)\n")


def test_it_serves_again_and_again_until_ctrl_c(file):
    process, url = start(str(file))
    assert fetch(url) == fetch(url) == b"a trace"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "Traceback" not in err and "next: ikp stats" in err


def test_the_browsers_question_is_foretold(file, monkeypatch, no_display, capsys):
    """Chromium asks before a public page may fetch from loopback; without a yes it fails."""
    fetch_when_told(monkeypatch)
    view.show(file, port=0, browser=True, once=True)
    assert "If the browser asks whether the page may reach this device" in capsys.readouterr().err


def test_print_says_how_to_open_it_by_hand(file):
    result = CliRunner().invoke(cli, ["view", "--print", str(file)])
    assert result.exit_code == 0
    assert f"drag {file} onto the page" in result.stdout
    assert "nothing is uploaded" in result.stdout


def test_a_missing_file_is_told(tmp_path):
    result = CliRunner().invoke(cli, ["view", str(tmp_path / "none")])
    assert (result.exit_code, result.stderr.startswith("ikp: error: no such file")) == (1, True)


def test_a_taken_port_is_told(file):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        result = CliRunner().invoke(cli, ["view", "--port", port, str(file)])
    assert result.exit_code == 1
    assert f"port {port}: is taken" in result.stderr


def fetch_when_told(monkeypatch):
    """Fetch the file as a browser would, as soon as the address is printed."""
    got, explain = queue.Queue(), view._explain

    def fetch_too(server, once):
        explain(server, once)
        threading.Thread(target=lambda: got.put(fetch(server.url))).start()

    monkeypatch.setattr(view, "_explain", fetch_too)
    return got


def test_a_browser_is_opened_only_where_it_has_a_window(file, monkeypatch, no_display):
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr(view.sys, "platform", "linux")
    fetch_when_told(monkeypatch)
    view.show(file, port=0, browser=True, once=True)
    assert opened == []
    monkeypatch.setenv("DISPLAY", ":0")
    view.show(file, port=0, browser=False, once=True)
    assert opened == []
    view.show(file, port=0, browser=True, once=True)
    assert len(opened) == 1 and opened[0].startswith("https://ui.perfetto.dev/#!/?url=")


def test_over_ssh_the_tunnel_is_told(file, monkeypatch, no_display, capsys):
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 5 10.0.0.2 22")
    fetch_when_told(monkeypatch)
    view.show(file, port=0, browser=True, once=True)
    assert "first run: ssh -L " in capsys.readouterr().err


def test_another_port_than_the_uis_is_warned_about(file, monkeypatch, no_display, capsys):
    fetch_when_told(monkeypatch)
    view.show(file, port=0, browser=True, once=True)
    assert "may fetch from port 9001 only" in capsys.readouterr().err


def test_trace_view_serves_a_file_that_is_gone_afterwards(monkeypatch, no_display, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    got = fetch_when_told(monkeypatch)
    view.view_trace(trace([(0, 0, 0, 100)]), port=0)
    assert len(got.get(timeout=10)) > 100
    assert list(tmp_path.iterdir()) == []
