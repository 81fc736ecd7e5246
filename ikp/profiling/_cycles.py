"""The cycles of a session's schedule: the current step, the file of each, and room on the disk."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ikp.errors import UsageError
from ikp.session.current import STEP
from ikp.session.steps import Phase, Schedule

if TYPE_CHECKING:
    from ikp.trace import Trace


@dataclass(slots=True)
class Cycles:
    """The schedule of a session and what has been written of it; without one, all is recorded."""

    schedule: Schedule | None
    on_trace_ready: Callable[[Trace], object] | None
    disk: int | None  # bytes
    step: int = 0  # the program's
    written: deque[tuple[str, int]] = field(default_factory=deque)  # files and bytes, oldest first

    @property
    def phase(self) -> Phase:
        """The phase of the current step."""
        return Phase.ACTIVE if self.schedule is None else self.schedule.phase(self.step)

    @property
    def ends(self) -> bool:
        """Whether the current step is the last recorded one of its cycle."""
        return self.schedule is not None and self.schedule.ends(self.step)

    @staticmethod
    def has_place(path: str | os.PathLike[str]) -> bool:
        """Return whether each cycle has a file of its own."""
        return STEP in os.fspath(path)

    def check(self, path: str | os.PathLike[str] | None) -> None:
        """Check the options.

        Raises:
            UsageError: one is of no use without another.
        """
        place = path is not None and self.has_place(path)
        given: Any = self.schedule  # its annotated type is not trusted
        if given is not None and not isinstance(given, Schedule):
            raise UsageError(
                f"steps={given!r} is no schedule: make one with ikp.schedule(active=...)."
            )
        for name, value in (("on_trace_ready", self.on_trace_ready), ("disk", self.disk)):
            if value is not None and self.schedule is None:
                raise UsageError(f"{name} is for a session with steps=ikp.schedule(...).")
        if place and self.schedule is None:
            raise UsageError(
                f"{os.fspath(path or '')} wants the step of each cycle, and the session has none: "
                "give it steps=ikp.schedule(...)."
            )
        if self.disk is not None and not place:
            raise UsageError(
                f"disk={self.disk} bounds the files of cycles: write {STEP} into the path."
            )

    def path(self, path: str) -> str:
        """Return a path with the first recorded step of the current cycle in its place."""
        first = 0 if self.schedule is None else self.schedule.first(self.step)
        return path.replace(STEP, str(first))

    def wrote(self, path: str) -> None:
        """Note a file, and delete the oldest ones beyond the room on the disk."""
        self.written.append((path, Path(path).stat().st_size))
        while (
            self.disk is not None
            and len(self.written) > 1
            and sum(size for _, size in self.written) > self.disk
        ):
            with suppress(FileNotFoundError):
                Path(self.written.popleft()[0]).unlink()
