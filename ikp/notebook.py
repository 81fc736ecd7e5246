"""The cell magic ``%%ikp`` of IPython: runs a cell in a session, and returns its trace.

It runs a cell in a session, and its trace is the cell's result.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ikp.profiling.profile import profile

if TYPE_CHECKING:
    from ikp.trace import Trace


def load_ipython_extension(shell: Any) -> None:
    """Define ``%%ikp [PATH]`` in an IPython shell, as ``%load_ext ikp.notebook`` asks."""
    shell.register_magic_function(partial(_run, shell), "cell", "ikp")


def _run(shell: Any, line: str, cell: str) -> Trace | None:
    """Run a cell with a session as its ``prof``; return the trace, or None if the cell failed.

    Args:
        shell: IPython's.
        line: what follows ``%%ikp``: the path of the trace, or nothing.
        cell: the code. The shell prints what it raises.
    """
    session = profile(line.strip().strip("\"'") or None, force=True)
    shell.user_ns["prof"] = session
    with session:
        done = shell.run_cell(cell)
    return session.trace if done.success else None
