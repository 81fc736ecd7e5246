"""``Part``: a summary, as JSON for the first process, of what a process or a window recorded."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ikp.analysis.kernel_times import KernelTime, kernel_times
from ikp.core.run_figures import REPLAYED

if TYPE_CHECKING:
    from ikp.running._watched import Counts, Watched
    from ikp.trace import Trace


@dataclass(frozen=True, slots=True)
class Plain:
    """Launches of a kernel that were not recorded, and why."""

    label: str
    why: str
    launches: int


@dataclass(frozen=True, slots=True)
class Recorded:
    """The figures of a trace that the end of a run reports."""

    records: int = 0  # that warps attempted
    dropped: int = 0  # of these
    times: tuple[KernelTime, ...] = ()
    replays: str = ""  # figures on replays of CUDA graphs, as provenance has them

    @classmethod
    def of(cls, trace: Trace) -> Recorded:
        """Return the figures of a trace."""
        attempted = sum(each.attempted for each in trace.launches)
        dropped = attempted - sum(each.kept for each in trace.launches)
        return cls(attempted, dropped, kernel_times(trace), trace.provenance.get(REPLAYED, ""))


@dataclass(frozen=True, slots=True)
class Part:
    """What one process, or one window of it, recorded: launches, records, times, and the file."""

    pid: int
    program: str
    trace: str | None  # the file; None where none was written
    records: int = 0  # that warps attempted
    dropped: int = 0  # of these
    recorded: dict[str, int] = field(default_factory=dict)  # launches, by label
    plain: tuple[Plain, ...] = ()
    times: tuple[KernelTime, ...] = ()

    @classmethod
    def of(cls, launcher: Watched, trace: Trace | None, path: str | None) -> Part:
        """Return the part of this process.

        Args:
            launcher: of its kernels.
            trace: what it recorded; None where that is lost.
            path: the file that holds it; None where none was written.
        """
        return cls.having(launcher, None if trace is None else Recorded.of(trace), path)

    @classmethod
    def having(cls, launcher: Counts, recorded: Recorded | None, path: str | None) -> Part:
        """Return the part of this process, with figures of what it recorded."""
        from ikp.session.provenance import program_name

        recorded = recorded or Recorded()
        return cls(
            pid=os.getpid(),
            program=program_name(),
            trace=path,
            records=recorded.records,
            dropped=recorded.dropped,
            recorded=dict(+launcher.recorded),
            plain=tuple(Plain(label, why, n) for (label, why), n in launcher.plain.items() if n),
            times=recorded.times,
        )


@dataclass(slots=True)
class WindowCounts:
    """What a launcher had counted when a window ended: it counts anew with the next one."""

    recorded: Counter[str]
    plain: Counter[tuple[str, str]]
    aside: set[str]

    @classmethod
    def of(cls, launcher: Counts) -> WindowCounts:
        """Return a copy of what a launcher has counted."""
        return cls(launcher.recorded.copy(), launcher.plain.copy(), launcher.aside.copy())


def as_note(parts: Iterable[Part]) -> str:
    """Return parts as the text of a note for the first process."""
    return json.dumps([asdict(each) for each in parts])


def of_note(text: str) -> list[Part]:
    """Return the parts in a note that ``as_note`` has made."""
    return [_part(each) for each in json.loads(text)]


def _part(content: dict[str, Any]) -> Part:
    times = tuple(KernelTime(**each) for each in content.pop("times"))
    plain = tuple(Plain(**each) for each in content.pop("plain"))
    return Part(**content, times=times, plain=plain)


def near(path: str, folder: str) -> str:
    """Return a path as a shell in ``folder`` may have it: shorter where the file is below."""
    try:
        return str(Path(path).relative_to(folder))
    except ValueError:
        return path
