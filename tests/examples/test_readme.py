"""The README's script, saved and run as it says: the ranges of its table come out."""

from __future__ import annotations

import re
import runpy
from collections import Counter
from pathlib import Path

import pytest

import ikp

pytestmark = pytest.mark.interp

README = Path(__file__).parents[2] / "README.md"


def test_the_script_records_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = README.read_text(encoding="utf-8")
    (script,) = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    (tmp_path / "sum.py").write_text(script, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    runpy.run_path("sum.py", run_name="__main__")
    frame = ikp.load(tmp_path / "sum.pftrace").to_pandas()
    assert Counter(frame.region) == {"load": 64, "math": 64}
    assert sorted(set(frame[frame.region == "load"].payload)) == [0, 1, 2, 3]
    assert "math" in capsys.readouterr().out
