import socket
from http.client import HTTPConnection

import pytest

from ikp.cli.serve import serving
from ikp.cli.ui import HOST, PORT, UI
from ikp.errors import UsageError

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
