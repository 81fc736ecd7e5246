"""What a session recorded, as its user gets it: a trace, its file, and what was lost."""

from __future__ import annotations

import os
from collections.abc import Mapping
from os import PathLike
from pathlib import Path

from ikp.core.overhead import Overhead
from ikp.core.segment import Segment
from ikp.core.trace import Trace as Columns
from ikp.errors import DecodeError, ExportError, IkpError
from ikp.session.current import Opening
from ikp.session.device import gpus_of
from ikp.session.ranks import with_rank
from ikp.session.recorder import Recording
from ikp.session.wishes import Wishes
from ikp.trace import Trace, as_trace, check_target


class Recorded(Recording):
    """One opening of ``ikp.profile``."""

    def __init__(self, opening: Opening, wishes: Wishes) -> None:
        super().__init__(opening, wishes)
        self.final: Trace | None = None  # as it was when the session ended
        self._undeducted = ""  # why overhead could not be deducted

    def trace(self, facts: Mapping[str, str]) -> tuple[Trace, DecodeError | None]:
        """Wait for all kernels; return what they recorded, and what is wrong with the rest."""
        columns, broken = self.read(facts)
        if self.wishes.deduct:
            columns, self._undeducted = _without_overhead(columns, self.wishes, self.segments)
        return as_trace(columns), broken

    def end(self, facts: Mapping[str, str]) -> tuple[Trace, DecodeError | None]:
        """Return the trace for good, and give the memory back."""
        self.final, broken = self.trace(facts)
        self.release()
        return self.final, broken

    def losses(self, *, failed: bool) -> list[str]:
        """Say what was lost. Kernels that a failure kept from running are not missed."""
        launches = self.final.launches if self.final else ()
        texts = [f"{each.label}: {'; '.join(each.notes)}." for each in launches if each.notes]
        if self._undeducted:
            texts.append(self._undeducted)
        return texts if failed else [*texts, *self.unheard()]


def _without_overhead(
    trace: Columns, wishes: Wishes, segments: list[Segment]
) -> tuple[Columns, str]:
    """Return the trace without what recording cost; or as it was, and why."""
    from ikp.calibration.calibrate import of_session
    from ikp.edit.deduct import deduct_overhead

    how = (
        wishes.clock.name.lower(),
        wishes.overflow.name.lower(),
        wishes.schedule,
    )
    try:
        if isinstance(wishes.deduct, Overhead):
            return deduct_overhead(trace, wishes.deduct), ""
        gpus = sorted(gpus_of(segments))
        return deduct_overhead(trace, *(of_session(each, *how) for each in gpus)), ""
    except (IkpError, ImportError, RuntimeError) as error:
        # Nothing that was recorded is lost for want of a calibration.
        return trace, f"recording's overhead was not deducted: {error}"


def target_of(path: str | PathLike[str], force: bool) -> str:
    """Return the file that a path means now, checked.

    At the end, the process group may be gone, and the program in another folder.
    """
    target = with_rank(path)
    check_target(target, force)
    return os.path.abspath(target)  # noqa: PTH100 - resolve() follows links


def save(trace: Trace, target: str, *, force: bool, failed: bool) -> str:
    """Write a session's trace; return why not, where a failed run has nothing to replace it by."""
    if failed and not len(trace.events) and not len(trace.totals) and Path(target).exists():
        return (
            f"nothing was recorded before the program failed, so {target} stays as it was: it "
            "is of an earlier run."
        )
    try:
        trace.save(target, force=force)
    except ExportError as lost:
        raise ExportError(
            f"{lost} What was recorded is still there: prof.trace.save(path) writes it elsewhere."
        ) from lost
    return ""
