"""What a run of a suite left: outcomes, warnings and output, without what differs by itself."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field, fields
from pathlib import Path

OUT, ERR, REPORTS = "out", "err", "reports"
"""Files of a run."""
VARYING = (
    (r"0x[0-9a-fA-F]+", "0x"),
    (r"\b\d+(\.\d+)?(e[-+]?\d+)? ?(seconds|ms|us|ns|s)\b( \(\d+:\d\d:\d\d\))?", "TIME"),
    (r"\b\d\d:\d\d:\d\d([.,]\d+)?\b|\b\d{4}-\d\d-\d\d\b", "CLOCK"),
    (r"\b(pid|PID)[= ]\d+", "PID"),
    (r"/tmp/[\w.-]+", "TMP"),  # noqa: S108 - what is looked for, not opened
)
"""Addresses, times, dates, processes and folders: differ from one run to the next."""


def steady(text: str, scratch: Path) -> str:
    """Return a text without what two runs of one program differ in."""
    text = text.replace(str(scratch), "SCRATCH")
    for pattern, name in VARYING:
        text = re.sub(pattern, name, text)
    return text


@dataclass(slots=True)
class Run:
    """What became of a suite."""

    code: int | None  # None: it took too long, and was killed
    seconds: float
    outcomes: dict[str, str] = field(default_factory=dict)  # by test
    texts: dict[str, str] = field(default_factory=dict)  # what failed, by test
    printed: dict[str, str] = field(default_factory=dict)  # stdout, stderr and log, by test
    warnings: Counter[str] = field(default_factory=Counter)
    output: Counter[str] = field(default_factory=Counter)  # lines of pytest's stdout
    stderr: str = ""
    ended: bool = False  # pytest came to its end
    last: str = ""  # the test that began last

    def facts(self) -> dict[str, object]:
        """Return what goes into a file of JSON."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        return {
            name: dict(value) if isinstance(value, Counter) else value
            for name, value in found.items()
        }


def read(scratch: Path, code: int | None, seconds: float) -> Run:
    """Return what a run left in its folder."""
    run = Run(code, seconds, stderr=(scratch / ERR).read_text(errors="replace"))
    file = scratch / REPORTS
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    for line in map(json.loads, lines):
        if "status" in line:
            run.ended = True
        elif "begun" in line:
            run.last = line["begun"]
        elif "warning" in line:
            parts = (line["test"], line["when"], line["place"], line["category"], line["warning"])
            run.warnings[steady(" | ".join(parts), scratch)] += 1
        else:
            _take(run, line, scratch)
    run.output.update(steady((scratch / OUT).read_text(errors="replace"), scratch).splitlines())
    return run


def _take(run: Run, line: dict[str, str], scratch: Path) -> None:
    """Take one phase of a test into its outcome: the worst of its phases."""
    test, when, outcome = line["test"], line["when"], line["outcome"]
    if outcome == "failed" and when != "call":
        outcome = f"error in {when}"
    if when == "call" or outcome != "passed":
        run.outcomes[test] = outcome
    run.texts[test] = run.texts.get(test, "") + steady(line["text"], scratch)
    printed = "".join(f"{name}: {line[name]}\n" for name in ("out", "err", "log") if line[name])
    run.printed[test] = steady(printed, scratch)  # what later phases printed comes after
