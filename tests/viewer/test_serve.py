import socket
import struct
import time
from http.client import HTTPConnection, IncompleteRead

import pytest

from ikp.errors import UsageError
from ikp.viewer._serve import serving
from ikp.viewer.ui import HOST, PORT, UI, Page

pytestmark = pytest.mark.any_pins

CONTENT = bytes(range(256)) * 1000


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "a b.pftrace"
    path.write_bytes(CONTENT)
    (tmp_path / "secret").write_text("secret")
    return path


@pytest.fixture
def server(path):
    with serving(path, 0) as server:
        yield server


def ask(server, method="GET", path="/a%20b.pftrace", **headers):
    """Ask as the UI's page does, or as ``Origin`` says; None is nobody's page."""
    headers = {"Origin": server.page.origin} | headers
    headers = {name: value for name, value in headers.items() if value is not None}
    connection = HTTPConnection(HOST, server.server_port, timeout=10)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


def test_the_file_is_served_whole_to_the_ui(server):
    answer, body = ask(server, Origin=UI)
    assert (answer.status, body) == (200, CONTENT)
    assert answer.headers["Access-Control-Allow-Origin"] == UI
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert server.fetched.wait(5)


def test_head_says_the_size_and_does_not_count_as_fetched(server):
    answer, body = ask(server, "HEAD")
    assert (answer.status, answer.headers["Content-Length"], body) == (200, "256000", b"")
    assert not server.fetched.is_set()


def test_chromes_question_about_private_networks_is_answered(server):
    answer, _ = ask(server, "OPTIONS", Origin=UI)
    assert answer.status == 204
    assert answer.headers["Access-Control-Allow-Origin"] == UI
    assert answer.headers["Access-Control-Allow-Private-Network"] == "true"


@pytest.mark.parametrize(
    "other", ["/", "/secret", "/../secret", "/%2e%2e/secret", "/a%20b.pftrace/"]
)
def test_nothing_else_is_served(server, other):
    answer, body = ask(server, path=other)
    assert answer.status == 404
    assert b"secret" not in body.replace(other.encode(), b"")
    assert "Access-Control-Allow-Origin" not in answer.headers
    assert not server.fetched.is_set()


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://ui.perfetto.dev", None])
def test_nobody_else_is_served(server, method, origin):
    answer, body = ask(server, method, Origin=origin)
    assert answer.status == 403
    assert CONTENT not in body and "Access-Control-Allow-Origin" not in answer.headers
    assert not server.fetched.is_set()


def test_a_ui_of_ones_own_may_fetch_and_no_other(path):
    with serving(path, 0, Page.at("http://localhost:10000/v52/")) as server:
        answer, body = ask(server, Origin="http://localhost:10000")
        assert (answer.status, body) == (200, CONTENT)
        assert answer.headers["Access-Control-Allow-Origin"] == "http://localhost:10000"
        assert server.ui_url.startswith("http://localhost:10000/v52/#!/?url=http://127.0.0.1:")
        assert ask(server, Origin=UI)[0].status == 403


@pytest.mark.parametrize(
    ("address", "origin"),
    [
        ("http://localhost:80/x", "http://localhost"),
        ("https://Perfetto.example:443", "https://perfetto.example"),
        ("http://[::1]:8080/", "http://[::1]:8080"),
    ],
)
def test_an_origin_is_what_browsers_call_it(address, origin):
    assert Page.at(address).origin == origin


@pytest.mark.parametrize(
    "address", ["", "ui.perfetto.dev", "file:///x", "http://", "http://[", "http://a:b"]
)
def test_what_is_no_address_of_a_page_is_told(address):
    with pytest.raises(UsageError, match=r"is not the address of a page\. Give one such as"):
        Page.at(address)


def test_what_no_browser_sends_is_refused_in_silence(server, capsys):
    for line in (b"GET http://[ HTTP/1.1", b"GET /%00 HTTP/1.1", b"\x80\xff"):
        with socket.create_connection((HOST, server.server_port)) as plain:
            host = f"{HOST}:{server.server_port}".encode()
            plain.sendall(b"%s\r\nHost: %s\r\nOrigin: %s\r\n\r\n" % (line, host, UI.encode()))
            plain.settimeout(10)
            assert b" 40" in plain.recv(1 << 16)
    assert ask(server)[1] == CONTENT
    assert capsys.readouterr().err == ""


def test_a_tab_that_is_closed_meanwhile_is_no_fault(path, capsys):
    """The browser resets the connection while most of the file is still to be sent."""
    path.write_bytes(bytes(32 << 20))
    with serving(path, 0) as server:
        with socket.create_connection((HOST, server.server_port)) as browser:
            lines = ("GET /a%20b.pftrace HTTP/1.1", f"Host: {HOST}:1", f"Origin: {UI}", "", "")
            browser.sendall("\r\n".join(lines).encode())
            browser.recv(1000)
            browser.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        time.sleep(0.2)
        assert not server.fetched.is_set()
        assert len(ask(server)[1]) == 32 << 20
    assert capsys.readouterr().err == ""


def test_a_fault_of_ours_is_not_hidden(server, monkeypatch, capsys):
    monkeypatch.setattr("shutil.copyfileobj", lambda *_: 1 / 0)
    with pytest.raises(IncompleteRead):
        ask(server)
    assert "ZeroDivisionError" in capsys.readouterr().err


@pytest.fixture
def offline(path, tmp_path):
    folder = tmp_path / "ui"
    folder.mkdir()
    (folder / "index.html").write_text("<title>UI</title>")
    (folder / "engine.wasm").write_bytes(b"\0asm")
    with serving(path, 0, Page(files=folder)) as server:
        yield server


def test_offline_the_ui_is_served_beside_the_file(offline):
    assert offline.ui_url.startswith(f"http://{HOST}:{offline.server_port}/#!/?url=http://")
    page, body = ask(offline, path="/", Origin=None)
    assert (page.headers["Content-Type"], body) == ("text/html", b"<title>UI</title>")
    assert "default-src 'self'" in page.headers["Content-Security-Policy"]
    wasm, _ = ask(offline, path="/engine.wasm?v=1", Origin=None)
    assert wasm.headers["Content-Type"] == "application/wasm"
    assert not offline.fetched.is_set()
    assert ask(offline, Origin=None)[1] == CONTENT
    assert offline.fetched.wait(5)


@pytest.mark.parametrize("other", ["/../secret", "/%2e%2e/secret", "//secret", "/%00", "/nothing"])
def test_offline_no_other_file_is_served(offline, other):
    answer, body = ask(offline, path=other, Origin=None)
    assert answer.status == 404
    assert body != b"secret"
    assert ask(offline, Origin="https://evil.example")[0].status == 403


def test_other_methods_are_refused(server):
    assert ask(server, "POST")[0].status == 501


def test_another_host_name_is_refused(server):
    """A page could point a name of its own at 127.0.0.1, and would then be of the same origin."""
    assert ask(server, Host=f"evil.example:{server.server_port}")[0].status == 403
    assert ask(server, Host=f"localhost:{server.server_port}")[0].status == 200


def test_a_file_that_went_away_is_gone(server, path):
    path.unlink()
    assert ask(server)[0].status == 410


def test_the_address_is_loopback_alone_and_names_are_quoted_twice(server):
    assert server.server_address[0] == "127.0.0.1"
    assert server.url == f"http://127.0.0.1:{server.server_port}/a%20b.pftrace"
    assert server.ui_url == (
        f"https://ui.perfetto.dev/#!/?url=http://127.0.0.1:{server.server_port}/a%2520b.pftrace"
    )


def test_the_default_port_is_the_one_that_the_ui_may_fetch_from():
    assert PORT == 9001


def test_a_taken_port_is_told_with_the_way_out(path):
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=rf"port {port}: is taken.*--port.*9001.*--print"):
            serving(path, port).__enter__()


def test_an_idle_connection_blocks_nobody(server):
    with socket.create_connection((HOST, server.server_port)):
        assert ask(server)[1] == CONTENT


def test_the_port_is_free_again_afterwards(path):
    with serving(path, 0) as first:
        port = first.server_port
    with serving(path, port) as second:
        assert ask(second)[1] == CONTENT
