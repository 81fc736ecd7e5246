"""Detection of Nsight Compute (``ncu``), by environment variables: under ``ncu``, ``ikp run``
records nothing, so that ``ncu`` measures plain kernels.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

_NCU: Final = "NV_NSIGHT_INJECTION_"
"""The prefix of environment variables that ``ncu`` sets in the programs that it starts."""
RUNS_PLAIN: Final = (
    "ncu measures this program, and would measure kernels with records: they run plain, and "
    "nothing is recorded. Run the program under one of the two."
)


def measured(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether ``ncu`` has started this process, or one that started it."""
    return any(name.startswith(_NCU) for name in environ)
