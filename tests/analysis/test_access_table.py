"""The table of address probes: its rows, its JSON, and what is said where there are none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from ikp.analysis.access_table import access_table, excess
from ikp.cli.main import cli
from ikp.core.run_figures import ADDRESSES, NO_ADDRESSES, AccessFigures, AddressFigures
from tests.analysis.example import launch, trace
from tests.documents import check_document

pytestmark = pytest.mark.any_pins

LOAD = AccessFigures(
    *("LDG.E R8", "/src/a.py:7", "loop @a.py:5", "global", "load", 4, 640, 64, 18),
    *(32.0, 32.0, 4.0, 1.0, 1.5, 2.0, 128),
)
SHARED = AccessFigures(
    *("LDS R8", "/src/a.py:9", "", "shared", "load", 4, 320, 0, 10, 32.0, 8.0, 1.0, 1.0, 2.0),
)
NEVER = AccessFigures("STG", "", "", "global", "store", 4, 0, 0, 0)
FOUND = AddressFigures(
    *(4, 64, 16, "2 buffers, equal bit for bit", (("LDG [R2.X4]", "its form is not known"),)),
    (SHARED, LOAD, replace(LOAD, text="LDG.E R9"), NEVER),
)
FACTS = {f"{ADDRESSES}k": FOUND.text(), f"{NO_ADDRESSES}other": "it is for sm_80"}


def test_the_costliest_access_comes_first_and_alike_ones_are_one_row() -> None:
    text = str(access_table(FACTS))
    lines = [line.split() for line in text.splitlines()]
    rows = [line for line in lines if "@a.py:7" in line or "@a.py:9" in line]
    assert rows[0][-9:] == ["2", "32.0", "32.0", "4.0", "1.0", "1.5", "2.0", "128", "1,280"]
    assert rows[1][:6] == ["shared", "load", "x", "4", "B", "@a.py:9"] and len(rows) == 2
    assert "4 of 64 blocks (16 warps); 2 buffers, equal bit for bit" in text
    assert "and 1 that no sampled warp executed" in text
    assert "the addresses of 8 % of the lanes had no room" in text
    assert "left out: LDG [R2.X4]: its form is not known" in text
    assert "other: no addresses: it is for sm_80" in text


def test_excess_is_of_all_that_was_executed() -> None:
    assert excess(LOAD) == (32 - 4) * 640 / 32
    assert excess(NEVER) == 0


def test_stats_prints_them_as_a_table_and_as_json(tmp_path: Path) -> None:
    path = tmp_path / "x.pftrace"
    made = trace([(0, 0, 0, 100)], launches=(launch("k", attempted=1, kept=1),))
    replace(made, provenance={**made.provenance, **FACTS}).save(path)
    shown = CliRunner().invoke(cli, ["stats", "--addresses", str(path)])
    assert shown.exit_code == 0 and "@a.py:7" in shown.output
    found = CliRunner().invoke(cli, ["stats", "--addresses", "--format", "json", str(path)])
    said = json.loads(found.stdout)
    check_document(said, "addresses")
    (table,) = said["tables"]
    assert table["file"] == str(path) and table["refused"] == {"other": "it is for sm_80"}
    assert table["kernels"]["k"]["accesses"][1]["cost"] == 32
    plain = tmp_path / "plain.pftrace"
    made.save(plain)
    failed = CliRunner().invoke(cli, ["stats", "--addresses", str(plain)])
    assert failed.exit_code and "--probe addresses" in failed.output
