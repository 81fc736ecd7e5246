"""A session's copies, decoded and written as its end would have: in this process or another."""

from __future__ import annotations

from ikp.core.trace import of_class
from ikp.errors import IkpError
from ikp.profiling._life import losses_of, lost_ranges, save, with_code_facts
from ikp.session.copies import Copies
from ikp.trace import Trace


def write(copies: Copies, target: str, *, force: bool) -> tuple[Trace | None, list[str]]:
    """Write the trace of what a session recorded.

    Args:
        copies: what it recorded.
        target: the file.
        force: replace an existing one.

    Returns:
        The trace, None where it is lost; and lines on losses.
    """
    columns, lost = copies.decode()
    lines = losses_of(columns.launches)
    trace = with_code_facts(of_class(Trace, columns))
    lines += [*lost_ranges(trace), *lost]
    try:
        nothing = save(trace, target, force=force, failed=False)
    except IkpError as error:
        return None, [*lines, f"the trace is lost: {error}"]
    return trace, [*lines, *filter(None, [nothing])]
