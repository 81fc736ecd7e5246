"""Takes what recording cost out of a session's trace, where that is known."""

from __future__ import annotations

from ikp.core.overhead import Overhead
from ikp.core.segment import Segment
from ikp.core.trace import Trace
from ikp.errors import IkpError
from ikp.session.device import gpus_of
from ikp.session.wishes import Wishes


def without_overhead(trace: Trace, wishes: Wishes, segments: list[Segment]) -> tuple[Trace, str]:
    """Return the trace without what recording cost; or as it was, and why."""
    from ikp.calibration.calibrate import of_session
    from ikp.edit.deduct import deduct_overhead

    options = (
        wishes.clock.name.lower(),
        wishes.overflow.name.lower(),
        wishes.schedule,
    )
    try:
        if isinstance(wishes.deduct, Overhead):
            return deduct_overhead(trace, wishes.deduct), ""
        devices = sorted(gpus_of(segments))
        return deduct_overhead(trace, *(of_session(each, *options) for each in devices)), ""
    except (IkpError, ImportError, RuntimeError) as error:
        # Nothing that was recorded is lost for want of a calibration.
        return trace, f"recording's overhead was not deducted: {error}"
