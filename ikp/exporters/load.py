"""Read a trace back from a file."""

from __future__ import annotations

import os
from os import PathLike, fspath
from typing import TYPE_CHECKING

from ikp.errors import ExportError
from ikp.plugins import exporter_for_path

if TYPE_CHECKING:
    from ikp.core.trace import Trace


def load(path: str | PathLike[str]) -> Trace:
    """Return the trace in a file that ``ikp`` wrote.

    Raises:
        ExportError: there is no such file, its format can't be read back, or it is not a trace.
    """
    exporter = exporter_for_path(path)
    read = getattr(exporter, "read", None)
    if read is None:
        raise ExportError(
            f"{fspath(path)} can't be read back: {type(exporter).__name__} only writes. ikp reads "
            ".pftrace files: give the one that it was made from."
        )
    if not os.path.isfile(path):  # noqa: PTH113 - Path.is_file fails on names that are too long
        raise ExportError(f"{fspath(path)} is not a file: check the path.")
    trace: Trace = read(path)
    return trace
