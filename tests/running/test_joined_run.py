"""What the end of a run says while it joins the files of its processes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ikp.running import _together
from tests.host_traces.simulated import launches

pytestmark = pytest.mark.any_pins


@pytest.mark.parametrize("long", [True, False])
def test_a_line_says_what_is_joined_before_that_takes_long(
    long: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    paths = [tmp_path / f"x.rank{rank}.pftrace" for rank in (0, 1)]
    for path in paths:
        launches([0, 50_000]).save(path)
    monkeypatch.setattr(_together, "_LONG_BYTES", 1 if long else 1 << 30)
    options: Any = SimpleNamespace(merge=True, is_idle=False, force=False)
    assert _together.join([str(each) for each in paths], tmp_path / "x.all.pftrace", {}, options)
    first, *rest = capfd.readouterr().err.splitlines()
    assert ("joining 2 files, 0 MiB, into" in first) == long
    assert "2 processes on one axis" in (rest[0] if long else first)
