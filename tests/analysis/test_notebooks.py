"""Results in notebooks and in a shell: short, and escaped."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import ikp
from ikp.errors import UsageError
from tests.running.test_answer import skewed

pytestmark = pytest.mark.any_pins
MARKUP = "<script>alert(1)</script>"


def results(label: str = "hot") -> dict[str, Any]:
    trace = skewed(label)
    verdict = trace.explain()
    return {
        "Stats": trace.stats(),
        "Verdict": verdict,
        "Finding": verdict.findings[0],
        "Diff": ikp.diff(skewed(label, 2), trace),
    }


def test_results_are_public_and_short() -> None:
    for name, one in results().items():
        assert name in ikp.__all__ and isinstance(one, getattr(ikp, name))
        assert repr(one).startswith(f"<ikp.{name}: ") and len(repr(one)) < 120, repr(one)
        assert str(one) != repr(one)
    shown = {name: repr(one) for name, one in results().items()}
    assert shown["Stats"] == "<ikp.Stats: 1 row of 1 kernel>"
    assert shown["Diff"] == "<ikp.Diff: hot unknown>"
    assert shown["Verdict"].startswith("<ikp.Verdict: hot: barrier")
    assert " % less time, " in shown["Finding"]
    long = repr(results("x" * 5000)["Verdict"])
    assert len(long) < 400


def test_results_have_html_in_which_names_are_text() -> None:
    for name, one in results(MARKUP).items():
        html = one._repr_html_()
        assert "<script" not in html and html.startswith("<"), name
        assert name == "Finding" or "&lt;script&gt;" in html, name
    finding = results()["Finding"]
    html = replace(finding, title=MARKUP, suggestion=MARKUP)._repr_html_()
    assert "<script" not in html and html.count("&lt;script&gt;") == 2
    whole = results()["Verdict"]._repr_html_()
    assert whole.count("<li>") == whole.count("</li>") >= 2
    assert "<summary>Not known</summary>" in whole


def test_a_report_is_written_by_its_save() -> None:
    with pytest.raises(UsageError, match=r"trace\.report\(\)\.save\('x\.html'\)"):
        skewed().report("x.html")  # type: ignore[arg-type]
