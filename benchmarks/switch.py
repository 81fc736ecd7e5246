"""``Switch``: a program under ``ikp run``, recorded or not, call by call, at one detail.

A launch that is like a recorded one repeats it, with its copy of the code. So a second detail in
the same process would be measured by the first one's copies.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ikp.unedited.plan import Plan

ALL = range(1 << 60)
NONE = range(1 << 60, 1 << 61)
"""No launch of the process; but a kernel's later ones may be recorded, so it is asked each time."""


class Switch:
    """What ``ikp run`` records this process with, switched on and off."""

    def __init__(self) -> None:
        found = [each.recording for each in sys.meta_path if hasattr(each, "recording")]
        if not found or found[0] is None:
            sys.exit("this process is not recorded")
        self.launcher, self.session = found[0].launcher, found[0].session
        self.launcher.launches = NONE
        self.sample = self.launcher.plan.sample
        self.plain: Counter[str] = Counter()  # launches that were to be recorded, and why not
        self._plan: Plan | None = None

    def run(self, call: Callable[[], Any], detail: str | None) -> Any:
        """Run a call at a detail, None for plain, and count what of it was not recorded.

        Raises:
            ValueError: this process records at another detail, or another sample.
        """
        from ikp.unedited.plan import NOT_NAMED

        launcher = self.launcher
        if detail is None:
            return call()
        launcher.plan = self._planned(detail)
        launcher.launches = ALL
        recorded, plain = launcher.recorded.total(), launcher.plain.copy()
        try:
            made = call()
        finally:
            launcher.launches = NONE
        if launcher.recorded.total() == recorded:
            self.plain["no launch of the call"] += 1
        for (kernel, why), count in (launcher.plain - plain).items():
            if why != NOT_NAMED:
                self.plain[f"{kernel}: {why}"] += count
        return made

    @contextmanager
    def choosing(self, detail: str, launches: Sequence[int]) -> Iterator[None]:
        """Within the context, record the chosen launches of each kernel, counted anew."""
        launcher = self.launcher
        launcher.plan = self._planned(detail)
        launcher.begin_anew()
        launcher.launches = launches
        try:
            yield
        finally:
            launcher.launches = NONE
            launcher.begin_anew()

    def _planned(self, detail: str) -> Plan:
        from ikp.unedited.plan import plan

        made = plan(detail, level="machine", sample=self.sample)
        self._plan = self._plan or made
        if made != self._plan:
            raise ValueError(f"this process records by {self._plan}: {made} needs one of its own")
        return made

    def missing(self) -> str:
        """Say which launches were not recorded since this was asked last."""
        told = "; ".join(f"{count} x {what}" for what, count in self.plain.items())
        self.plain.clear()
        return told[:300]
