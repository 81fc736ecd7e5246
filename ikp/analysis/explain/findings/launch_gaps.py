"""Finding ``launch-gaps``: a label's launches of up to 20 us, whose gaps are up to 200 us and 3 %
of the time or more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.stakes import LEAST
from ikp.analysis.explain.verdict import Finding, Number, Where

_LAUNCHES: Final = 4
_SHORT: Final = 20_000
"""Nanoseconds: a host needs 2 to 10 us for a launch, so longer kernels hide the next one's."""
_FAR: Final = 200_000
"""Nanoseconds between launches above which something else than launching takes the time."""


def launch_gaps(launch: Prepared) -> Iterator[Finding]:
    """Yield a finding where launches are short, and much of the time passes between them."""
    starts, ends = launch.label_starts, launch.label_ends
    if len(starts) < _LAUNCHES:
        return
    gaps = np.maximum(starts[1:] - np.maximum.accumulate(ends)[:-1], 0)
    took, gap = float(np.median(ends - starts)), float(np.median(gaps))
    share = gap / max(gap + took, 1.0)
    if took > _SHORT or gap > _FAR or share < LEAST:
        return
    alone = not launch.launch.replay
    yield Finding(
        id="launch-gaps",
        title=f"{len(starts):,} launches of {took / 1000:.2f} us, and {gap / 1000:.2f} us between "
        "one and the next",
        number=Number("time between launches, from one start to the next", share, "share"),
        bound_ns=gap,
        bound_share=share,
        speedup_at_most=1 / (1 - share),
        what_if=f"without the time between launches: at most {100 * share:.1f} % less time",
        confidence="likely" if gap < _SHORT and launch.every_block else "possible",
        rationale=("" if launch.every_block else _NOT_ALL)
        + "the median of the gaps between launches of this label; what else ran in them the "
        "trace doesn't say, and recording makes launches slower on the host.",
        where=Where(count=len(gaps)),
        suggestion="put the work of several launches into one" + (_AS_GRAPH if alone else ""),
    )


_AS_GRAPH: Final = ", or launch them as a CUDA graph"
_NOT_ALL: Final = "not all blocks recorded, and those that left nothing may fill the gaps; "
