"""Write the tables of suites' runs, from which docs/suites.md is made.

python -m tools.suites.table tables.md OUT/*.json
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

KINDS = ("code", "outcomes", "failures", "printed", "warnings", "output")
OUTCOMES = ("passed", "failed", "skipped", "timed out")
LAUNCHES = re.compile(r"^ikp: (.+): ([\d,]+) of ([\d,]+) launches recorded", re.MULTILINE)
HEAD = """# Other people's tests under ikp

`ikp run -m pytest` has to be invisible: the same tests pass, fail, skip and time out as under
Python, with the same exit code, the same warnings, the same output of each test and the same
output of pytest. `python -m tools.suites` holds that up to public packages' own tests. Each suite
runs three times: plain, recorded, plain. What differs between the plain runs is called unsteady;
in everything else the recorded run has to agree. Addresses, times, dates and names of temporary
folders are taken out before texts are compared.

The packages were chosen, and divided, before any was run: those marked *develop* were used to
find and mend defects, those marked *judge* only to judge by. Which part of a suite runs was changed
afterwards, for time and where tests could not be imported, and never for what came out otherwise.

Where no launch is recorded, a row shows that ikp in the process disturbs nothing, and no more.
"""
COLUMNS = (
    *("suite", "role", "tests", *OUTCOMES, "exit", "warnings", "recorded", "differs", "unsteady"),
)
FOOT = """
*failed* counts errors in fixtures and in collection, too: most are of tests that want a GPU or
another version. *recorded*: launches of kernels that are in the trace, of all that ikp met.
*exit* is "killed" where the recorded run took longer than it was given: then the tests are
compared that all three runs ended, and how many launches were recorded is not known. *differs*
counts what the plain runs have and the recorded one lacks, and the reverse.

What stays different under `ikp run`, by its nature: in Triton's interpreter, pytest's long form of
a traceback shows one argument more of the kernel that failed, and a grid function that raises is
called before Triton's own frames. `sys.meta_path` has one or two more entries.
"""


def line(*cells: object) -> str:
    """Return a row of a table."""
    return f"| {' | '.join(map(str, cells))} |\n"


def counted(outcomes: dict[str, str]) -> Counter[str]:
    """Return how many tests came out how."""
    names = (
        "failed" if each.startswith("error") else each.removesuffix(" as expected")
        for each in outcomes.values()
    )
    return Counter(names)


def launches(stderr: str) -> str:
    """Return how many launches were recorded, of how many, from what ikp said at the end."""
    found = [
        (int(a.replace(",", "")), int(b.replace(",", ""))) for _, a, b in LAUNCHES.findall(stderr)
    ]
    return f"{sum(a for a, _ in found):,} of {sum(b for _, b in found):,}" if found else "none"


def row(result: dict[str, Any]) -> str:
    """Return a suite's row."""
    suite, runs, difference = result["suite"], result["runs"], result["difference"]
    counts = counted(runs["recorded"]["outcomes"])
    code = runs["recorded"]["code"]
    differs = [f"{len(difference[kind])} {kind}" for kind in KINDS if difference[kind]]
    cells = [
        suite["name"],
        suite["role"],
        sum(counts.values()),
        *(counts[name] for name in OUTCOMES),
        "killed" if code is None else code,
        sum(runs["recorded"]["warnings"].values()),
        "not known" if code is None else launches(runs["recorded"]["stderr"]),
        ", ".join(differs) or "nothing",
        len(difference["unsteady"]),
    ]
    return line(*cells)


def page(results: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the parts of the page."""
    yield HEAD
    for venue, title in (("cpu", "Without a GPU"), ("gpu", "On a GPU")):
        there = [each for each in results if each["suite"]["venue"] == venue]
        if there:
            there.sort(key=lambda each: each["suite"]["role"])
            yield f"\n## {title}\n\n{line(*COLUMNS)}{line(*['---'] * len(COLUMNS))}"
            yield from map(row, there)
            yield "\n".join(totals(there))
    yield FOOT
    yield "\n## What was run\n\n"
    yield line("suite", "tests from", "one test in", "versions", "date") + line(*["---"] * 5)
    for each in results:
        suite = each["suite"]
        versions = ", ".join(f"{name} {number}" for name, number in each["versions"].items())
        cells = suite["name"], suite["source"], suite["sample"], versions, each["date"]
        yield line(*cells)


def totals(results: list[dict[str, Any]]) -> Iterator[str]:
    """Yield how many tests agree, by role."""
    for role in ("develop", "judge"):
        ours = [each for each in results if each["suite"]["role"] == role]
        tests = sum(len(each["runs"]["recorded"]["outcomes"]) for each in ours)
        other = sum(len(each["difference"]["outcomes"]) for each in ours)
        if ours:
            text = f"{len(ours)} suites, {tests:,} tests, {other} with another outcome"
            yield f"\n*{role}*: {text}.\n"


def main() -> None:
    """Write the page."""
    path, *files = map(Path, sys.argv[1:])
    results = [json.loads(each.read_text(encoding="utf-8")) for each in files]
    path.write_text("".join(page(results)), encoding="utf-8")


if __name__ == "__main__":
    main()
