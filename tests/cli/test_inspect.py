"""``ikp inspect`` as a user types it."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

import ikp
from ikp.cli.main import cli
from ikp.inspection.render import as_text
from ikp.inspection.report import Report
from tests.documents import check_document

pytest.importorskip("triton")
pytestmark = pytest.mark.compiled


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder as Triton's cache is, with the pipelined GEMM in it."""
    from tests.inspection.compiled import code

    folder = tmp_path_factory.mktemp("cache")
    (folder / "HASH").mkdir()
    asm = code("gemm sm_90").compiled.asm
    (folder / "HASH" / "gemm.ptx").write_text(asm["ptx"])
    (folder / "HASH" / "gemm.cubin").write_bytes(asm["cubin"])
    return folder


def invoke(*words: object) -> Result:
    return CliRunner().invoke(cli, ["inspect", *map(str, words)])


def test_the_table_is_the_reports_own(cache: Path) -> None:
    result = invoke(cache)
    assert result.exit_code == 0, result.output
    assert result.stdout == f"{ikp.inspect(cache)}\n"
    assert "holds no load and no copy" in result.stdout
    assert "in the loop at gemm.py:36" in result.stdout


def test_without_a_path_it_is_tritons_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(cache))
    assert invoke("--kernel", "gemm").stdout == f"{ikp.inspect(cache)}\n"


def test_without_a_cache_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "gone"))
    result = invoke()
    assert result.exit_code == 1
    assert "Triton's cache is not there" in result.stderr


def test_json_holds_every_instruction(cache: Path) -> None:
    content = json.loads(invoke(cache / "HASH" / "gemm.cubin", "--format", "json").stdout)
    check_document(content, "inspect")
    (kernel,) = content["kernels"]
    ranges = {found["name"]: found for found in kernel["ranges"]}
    (dot,) = ranges["dot"]["copies"]
    assert dot["counts"]["tensor core"] == 4
    assert [i["text"].split()[0] for i in dot["instructions"] if i["work"] == "tensor core"] == [
        "HGMMA.64x128x16.F32"
    ] * 4
    assert ranges["load"]["source"]["calls"] == ["ikp.range", "tl.load"]
    assert kernel["warnings"][0]["range"] == "load"
    assert [len(g["instructions"]) for g in kernel["warnings"][0]["elsewhere"]] == [16, 8]


def test_code_lists_a_ranges_instructions(cache: Path) -> None:
    output = invoke(cache, "--code", "load").stdout
    listing = output[output.index("start read at") :]
    assert "wait           DEPBAR.LE SB0, 0x2" in listing
    assert "gemm.py:39" in listing
    assert "HGMMA" not in listing


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--code", "nothing"], "no range matches 'nothing'; there are: 'dot', 'load'."),
        (["--kernel", "nothing"], "has a name that matches 'nothing'"),
    ],
)
def test_what_matches_nothing_is_told(cache: Path, words: list[str], message: str) -> None:
    result = invoke(cache, *words)
    assert result.exit_code == 1
    assert message in result.stderr


@pytest.mark.parametrize("wide", [60, 80, 200])
def test_the_table_keeps_its_names_whatever_the_width(cache: Path, wide: int) -> None:
    report = ikp.inspect(cache)
    (kernel,) = report
    long, hostile = "tl.load @a_file_with_a_name.py:417 in the loop of :391", "dot\x1b[2J\n"
    ranges = [replace(kernel["load"], name=long), replace(kernel["dot"], name=hostile)]
    shown = as_text(Report((replace(kernel, ranges=tuple(ranges)),)), wide)
    assert long in shown and r"dot\x1b[2J\n" in shown and "\x1b" not in shown
    console = Console(width=wide, file=io.StringIO())
    console.print(Report((replace(kernel, ranges=tuple(ranges)),)))
    assert long in console.file.getvalue()
    assert "gemm.py:" in shown
