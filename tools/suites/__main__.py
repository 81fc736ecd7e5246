"""Run public packages' own tests under ``ikp run``, and hold them against plain Python.

    python -m tools.suites --sources FOLDER --out FOLDER SUITE ...

Each suite runs three times: plain, recorded, plain. In what the plain runs agree, the recorded one
has to agree, too. Nothing is downloaded: SOURCES holds the repositories that the catalogue names,
each at its tag, and PYTHON's environment the packages, pytest and ikp.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from tools.suites.catalogue import SUITES
from tools.suites.comparing import Difference, compare
from tools.suites.reading import Run
from tools.suites.running import run
from tools.suites.suite import Suite

_VERSIONS = """
import json, sys
from importlib.metadata import version
print(json.dumps({name: version(name) for name in sys.argv[1:]}))
"""


def tried(suite: Suite, options: argparse.Namespace) -> tuple[dict[str, Run], Difference]:
    """Return the runs of a suite, and what differs between them."""
    runs = {}
    for name in ("plain", "recorded", "again"):
        recorded = name == "recorded"
        runs[name] = run(suite, options.python, options.sources, options.minutes, recorded=recorded)
        counts = Counter(runs[name].outcomes.values())
        print(f"{suite.name} {name}: {runs[name].code} {dict(counts)}, {runs[name].seconds:.0f} s")
    return runs, compare(runs["plain"], runs["again"], runs["recorded"])


def versions(python: str, packages: tuple[str, ...]) -> dict[str, str]:
    """Return the versions that an environment has of packages."""
    ran = subprocess.run(
        [python, "-c", _VERSIONS, *packages], check=True, capture_output=True, text=True
    )
    found: dict[str, str] = json.loads(ran.stdout)
    return found


def main() -> int:
    """Run the suites; return 1 where a recorded run differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suites", nargs="+", choices=[each.name for each in SUITES])
    parser.add_argument("--sources", type=Path, required=True, help="where the repositories lie")
    parser.add_argument("--out", type=Path, required=True, help="a folder for SUITE.json")
    parser.add_argument("--python", default=sys.executable, help="of the packages' environment")
    parser.add_argument("--minutes", type=float, default=10, help="for one run of a suite")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    differing = 0
    for suite in (each for each in SUITES if each.name in options.suites):
        runs, difference = tried(suite, options)
        differing += bool(difference)
        result = {
            "suite": asdict(suite),
            "versions": versions(options.python, suite.packages),
            "runs": {name: each.facts() for name, each in runs.items()},
            "difference": asdict(difference),
        }
        path = options.out / f"{suite.name}.json"
        path.write_text(json.dumps(result, indent=1), encoding="utf-8")
        for kind, found in asdict(difference).items():
            for each in found[:5]:
                print(f"{suite.name}: {kind}: {each}")
            if len(found) > 5:
                print(f"{suite.name}: {kind}: and {len(found) - 5} more in {path}")
    return min(differing, 1)


if __name__ == "__main__":
    sys.exit(main())
