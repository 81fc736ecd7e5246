"""Makes the JSON Schemas in ``ikp/schemas`` from the types of what commands print.

python -m tools.schemas
"""

from __future__ import annotations

from typing import Any, Final

from ikp.analysis import access_table, stats
from ikp.analysis.diff import difference
from ikp.analysis.explain import verdict
from ikp.cli import _calibrate as calibrate
from ikp.cli import _doctor as doctor
from ikp.cli import _verify as verify
from ikp.cli._schema import FOLDER
from ikp.core.overhead import Overhead
from ikp.inspection import report as inspection
from ikp.json_schema import schema_of
from ikp.printing import as_json
from ikp.running import answer as run

DOCUMENTS: Final[dict[str, tuple[int, Any]]] = {
    "addresses": (access_table.VERSION, access_table.AddressesJson),
    "calibrate": (calibrate.VERSION, Overhead),
    "diff": (difference.VERSION, difference.DiffJson),
    "doctor": (doctor.VERSION, doctor.DoctorJson),
    "explain": (verdict.VERSION, verdict.Verdict),
    "inspect": (inspection.VERSION, inspection.ReportJson),
    "run": (run.VERSION, run.RunJson),
    "stats": (stats.VERSION, stats.StatsJson),
    "verify": (verify.VERSION, verify.VerifyJson),
}
"""Version and type of each document, by its name."""


def made() -> dict[str, str]:
    """Return each schema as the text of its file, by name."""
    return {
        name: as_json(schema_of(name, version, kind)) + "\n"
        for name, (version, kind) in DOCUMENTS.items()
    }


def main() -> None:
    """Write all files."""
    for name, text in made().items():
        (FOLDER / f"{name}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
