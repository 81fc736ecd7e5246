"""The MCP server, as a client of the official SDK sees it."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import warnings
from collections.abc import Coroutine
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from ikp.agents import commands
from tests.documents import check_document
from tests.repo.tree import ROOT
from tests.running.test_answer import WAIT, skewed

pytestmark = [
    pytest.mark.any_pins,
    pytest.mark.skipif(find_spec("mcp_types") is None, reason="needs mcp 2, of the extra mcp"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two traces, a program, and one that fails or does not end."""
    path = tmp_path_factory.mktemp("agents")
    skewed().save(path / "old.pftrace")
    skewed("hot", 2).save(path / "new.pftrace")
    (path / "prog.py").write_text("import sys; print('printed', *sys.argv[1:])")
    (path / "bad.py").write_text("print('x\\n' * 50_000); raise SystemExit(3)")
    return path


@pytest.fixture(autouse=True)
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def called(*calls: tuple[str, dict[str, Any]]) -> list[tuple[bool, str]]:
    """Return of each call of a tool whether it is an error, and its text. All run at once."""

    async def each() -> list[Any]:
        async with served() as client:
            return await asyncio.gather(*(client.call_tool(*call) for call in calls))

    return [(found.is_error, found.content[0].text) for found in asyncio.run(within(each()))]


def served(started: Any = None) -> Any:
    """Return a client of the server here, or of one that is started. The SDK is slow to import."""
    from mcp import Client, stdio_client

    from ikp.agents.server import server

    return Client(server if started is None else stdio_client(started))


async def within(work: Coroutine[Any, Any, Any]) -> Any:
    return await asyncio.wait_for(work, 240)


def test_tools_say_what_they_take_and_which_ones_only_read() -> None:
    async def listed() -> Any:
        async with served() as client:
            return (await client.list_tools()).tools

    tools = {each.name: each for each in asyncio.run(within(listed()))}
    assert tools.keys() == {"run", "explain", "stats", "diff", "inspect", "verify"}
    assert {name for name, each in tools.items() if each.annotations.read_only_hint} == (
        tools.keys() - {"run"}
    )
    for name, each in tools.items():
        fields = each.input_schema["properties"]
        assert each.description and fields, name
        assert all(field.get("description") for field in fields.values()), name
    assert tools["run"].input_schema["properties"]["detail"]["enum"] == [
        *("kernel", "loops", "waits", "ops")
    ]


def test_answers_are_those_of_the_commands() -> None:
    trace = {"trace": "new.pftrace"}
    text, document, table, both = called(
        ("explain", trace),
        ("explain", {**trace, "as_json": True}),
        ("stats", {**trace, "region": "barrier*", "by": "warp", "top": 2}),
        ("diff", {"before": "old.pftrace", "after": "new.pftrace", "fail_over": ["duration=+1%"]}),
    )
    assert not any(error for error, _ in (text, document, table, both))
    assert text[1].startswith("hot: 160.00 us")
    check_document(json.loads(document[1]), "explain")
    assert table[1].count(WAIT) == 2, table[1]
    assert both[1].endswith("exit code 4: a limit can't be decided"), "of one launch each"


def test_a_program_is_run_where_it_is_with_its_arguments(folder: Path) -> None:
    good, bad, late = called(
        ("run", {"program": ["prog.py", "--out", "7"], "folder": str(folder)}),
        ("run", {"program": ["bad.py"]}),
        ("run", {"program": ["-c", "import time; time.sleep(200)"], "timeout_s": 1}),
    )
    assert not good[0] and good[1].startswith("exit code 0\n\nstdout:\nprinted --out 7\n")
    assert bad[0] and "exit code 3\n\nstdout:\n[cut: " in bad[1] and len(bad[1]) < 6_000
    assert late[0] and "it was interrupted after 1 s" in late[1]


def test_errors_say_what_to_do() -> None:
    missing, cubin, verified, value, unknown = called(
        ("explain", {"trace": "none.pftrace"}),
        ("inspect", {"path": "none.cubin"}),
        ("verify", {"trace": "--help"}),
        ("stats", {"trace": "new.pftrace", "top": 0}),
        ("run", {"program": ["prog.py"], "folder": "/no/such/folder"}),
    )
    assert all(error for error, _ in (missing, cubin, verified, value, unknown))
    assert "no such file: none.pftrace" in missing[1]
    assert "none.cubin" in cubin[1] and "Traceback" not in cubin[1]
    assert "no such file: --help" in verified[1], "a path is no option"
    assert "greater than or equal to 1" in value[1]
    assert "/no/such/folder" in unknown[1]


def test_it_speaks_on_stdin_and_stdout_alone() -> None:
    """``ikp mcp`` in a process of its own, as an agent's program starts it."""
    from mcp import StdioServerParameters

    started = StdioServerParameters(
        command=sys.executable, args=["-m", "ikp", "mcp"], env={"PYTHONPATH": str(ROOT)}
    )

    async def asked() -> Any:
        async with served(started) as client:
            reading = ["-c", "import sys; print('read', repr(sys.stdin.read()))"]
            return (
                await client.call_tool("run", {"program": reading, "timeout_s": 60}),
                await client.call_tool("explain", {"trace": "old.pftrace"}),
            )

    ran, found = asyncio.run(within(asked()))
    with warnings.catch_warnings():  # the SDK may leave the server's end unread: in no later test
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    assert "stdout:\nread ''\n" in ran.content[0].text, "stdin is the protocol's"
    assert not found.is_error and found.content[0].text.startswith("hot: 80.00 us")


@pytest.mark.parametrize("end", [False, True])
def test_a_long_answer_is_cut_at_a_line_and_says_so(end: bool) -> None:
    text = "\n".join(f"line {n} é" for n in range(5_000))
    found = commands.cut(text, 2_000, end=end)
    assert 1_700 < len(found.encode()) <= 2_000
    lines = found.splitlines()
    note = lines.pop(0 if end else -1)
    assert note.startswith("[cut: ") and f"of {len(text.encode()):,} bytes" in note
    assert lines == (text.splitlines()[-len(lines) :] if end else text.splitlines()[: len(lines)])
    assert commands.cut(text[:100], 200, end=end) == text[:100]
    assert len(commands.cut("é" * 9_000, 1_000, end=end).encode()) <= 1_000


def test_a_program_ends_with_the_call_that_started_it(tmp_path: Path) -> None:
    """Where the client goes away, or takes its question back, no program stays behind."""
    noted = tmp_path / "pid"
    program = (
        f"import os, time; open({str(noted)!r}, 'w').write(f'{{os.getpid()}}\\n'); time.sleep(500)"
    )

    async def cancelled() -> int:
        work = asyncio.create_task(commands.ikp(["run", "-c", program], limit_s=500))
        while not (noted.exists() and noted.read_text().endswith("\n")):
            await asyncio.sleep(0.02)
            assert not work.done(), work
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        pid = int(noted.read_text())
        while alive(pid):
            await asyncio.sleep(0.02)
        return pid

    assert not alive(asyncio.run(within(cancelled())))
    gc.collect()  # a child that was not waited for warns here, and not in some later test


def alive(pid: int) -> bool:
    """Return whether a process runs: one that has ended and waits to be read does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
