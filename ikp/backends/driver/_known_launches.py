"""``KnownLaunches``: finds the recorded launch that a launch at the driver repeats."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Final

from ikp.backends.driver._hook import InterposedLaunch
from ikp.backends.patched import RecordedLaunch
from ikp.backends.repeats import KnownLaunch, Repeat
from ikp.driver import cuda
from ikp.session.current import Session

_MOST: Final = 4096
"""The most launches that are kept."""


@dataclass(slots=True)
class KnownLaunches:
    """The recorded launches of this process, by what launches that repeat each other share."""

    _known: dict[tuple[int, ...], KnownLaunch] = field(default_factory=dict)

    def find(self, launch: InterposedLaunch, session: Session) -> KnownLaunch | None:
        """Return the launch that this one repeats in a session; None where there is none."""
        known = self._known.get(shared(launch))
        return known if known is not None and known.session() is session else None

    def keep(
        self, launch: InterposedLaunch, meant: RecordedLaunch, plain: int, repeat: Repeat
    ) -> None:
        """Have later launches repeat one, if there is nothing more to find out.

        Args:
            launch: the launch, which no CUDA graph captures.
            meant: its plan, and what was found out.
            plain: the function of the plain kernel in the current context.
            repeat: its patched code and its buffer.
        """
        argument = repeat.module.patch.argument
        found = meant.verdict or meant.addresses or meant.tried
        others = meant.drop is None  # of another launcher, which repeats its launches itself
        if found or argument is None or others or meant.session is None or not repeat.lasts:
            return
        if len(self._known) >= _MOST:
            self._known.clear()
        known = KnownLaunch(meant.session, meant.label, plain, argument, repeat)
        self._known[shared(launch)] = known


def shared(launch: InterposedLaunch) -> tuple[int, ...]:
    """Return what a launch shares with those that repeat it; thread and context are last."""
    return (
        *(launch.id, launch.stream or 0, *launch.grid, *launch.block),
        *(launch.cooperative, launch.extensible, launch.overlaps),
        *(threading.get_ident(), cuda.context_number()),
    )
