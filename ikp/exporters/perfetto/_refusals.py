"""What a file is refused with."""

from __future__ import annotations

from os import PathLike

from ikp.errors import ExportError
from ikp.exporters.perfetto._schema import COLUMNAR


class ForeignError(ExportError):
    """The file may be a good Perfetto trace, but not one that this reader knows."""


def damaged(path: str | PathLike[str], error: Exception) -> ExportError:
    """Return the refusal of a file that is not whole."""
    return ExportError(
        f"{path} is not a whole Perfetto trace: {error}. Either it was cut short or changed "
        "(write or copy it again), or it is a file of another kind."
    )


def foreign(path: str | PathLike[str]) -> ForeignError:
    """Return the refusal of a Perfetto trace that is not ours."""
    return ForeignError(
        f"{path} is a Perfetto trace, but ikp did not write it, so it lacks what ikp needs to "
        "know of launches and blocks. Open it at https://ui.perfetto.dev."
    )


def damaged_columns(path: str | PathLike[str], error: Exception) -> ExportError:
    """Return the refusal of a trace of ours that is not whole, of which parts may be sound."""
    return ExportError(
        f"{path} is not a whole Perfetto trace: {error}. It was cut short or changed: write or "
        "copy it again. `ikp convert --salvage` reads what is sound in it, and says what is lost."
    )


def two_traces(path: str | PathLike[str]) -> ExportError:
    """Return the refusal of files of ours that were joined."""
    return ExportError(
        f"{path} holds several traces, one behind the other. Perfetto shows them together; ikp "
        "reads single files: give those, or take them apart with `ikp convert --salvage`. "
        "`ikp.edit.concat` joins traces to one that can be read again."
    )


def another_version(path: str | PathLike[str], written: object) -> ForeignError:
    """Return the refusal of a layout that isn't known."""
    known = " and ".join(map(str, COLUMNAR))
    return ForeignError(
        f"{path} has version {written} of ikp's layout; this ikp reads versions {known}. "
        "Read it with the version of ikp that wrote it."
    )
