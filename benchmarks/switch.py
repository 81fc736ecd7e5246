"""``Switch``: a program under ``ikp run``, recorded or not, call by call."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

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

    def run(self, call: Callable[[], Any], detail: str | None) -> Any:
        """Run a call at a detail, None for plain, and count what of it was not recorded."""
        from ikp.unedited.plan import NOT_NAMED, plan

        launcher = self.launcher
        if detail is None:
            return call()
        launcher.plan = plan(detail, level="machine", sample=self.sample)
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
        from ikp.unedited.plan import plan

        launcher = self.launcher
        launcher.plan = plan(detail, level="machine", sample=self.sample)
        launcher.begin_anew()
        launcher.launches = launches
        try:
            yield
        finally:
            launcher.launches = NONE
            launcher.begin_anew()

    def missing(self) -> str:
        """Say which launches were not recorded since this was asked last."""
        told = "; ".join(f"{count} x {what}" for what, count in self.plain.items())
        self.plain.clear()
        return told[:300]
