"""``Answer``: what took a run's time, as kernels by time and a verdict on the hottest of them; the
run as JSON.

The JSON of ``ikp run`` has its processes, kernels by time, verdict, next commands and warnings.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict

from ikp.analysis.explain.verdict import Verdict
from ikp.json_schema import headed
from ikp.registry import opens_in_viewer, reads_back
from ikp.running.process_parts import Part, near
from ikp.signals import pass_on
from ikp.unedited.plan import NOT_NAMED

if TYPE_CHECKING:
    from ikp.trace import Trace


MOST: Final = 2_000_000
"""Records of one launch that the end of a run explains: a second, and 0.2 GB. A verdict is of one
launch; others of a trace in memory cost it 0.03 us for each of their records."""
MOST_READ: Final = 500_000
"""Records of a whole trace that another process has written: all of them are read first."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel of the run, over all processes.

    ``total_ns`` is the mean of the recorded launches, times all launches that were seen.
    """

    label: str
    launches: int  # seen, recorded or plain
    recorded: int  # whose times are known
    mean_ns: float
    min_ns: int
    max_ns: int
    total_ns: float
    share: float  # of the time of all kernels here
    trace: str  # the file that has most of its time


@dataclass(frozen=True, slots=True)
class Command:
    """A command to type next."""

    words: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What took a run's time. ``not_explained`` says why there is no verdict."""

    kernels: tuple[Kernel, ...] = ()  # the most time first
    untimed: tuple[str, ...] = ()  # kernels that were launched, and none of whose times is known
    verdict: Verdict | None = None
    explained: str | None = None  # the file that the verdict is of
    not_explained: str = ""
    next: tuple[Command, ...] = ()
    whole: str | None = None  # the file of all processes


def answer(
    parts: Sequence[Part], open_traces: Mapping[str, Trace], folder: str, *, refused: str = ""
) -> Answer:
    """Return the answer of a run; no error in it is raised.

    Args:
        parts: of all processes.
        open_traces: those in memory, by their files.
        folder: where the user's shell is: commands name files as seen from there.
        refused: why no kernel shall be explained.
    """
    written = [each for each in parts if each.trace is not None]
    kernels = kernels_of(written)
    untimed = _untimed(parts, kernels)
    if not kernels:
        return Answer(untimed=untimed, next=_opening(written, folder))
    hot = kernels[0]
    (part, *_) = (each for each in written if each.trace == hot.trace)
    verdict, why = None, refused
    if not refused:
        verdict, why = _explained(part, hot.label, open_traces)
    return Answer(
        kernels=kernels,
        untimed=untimed,
        verdict=verdict,
        explained=hot.trace if verdict is not None else None,
        not_explained=why,
        next=_next(part, hot.label, folder, finding=verdict is not None and bool(verdict.findings)),
    )


def kernels_of(parts: Sequence[Part]) -> tuple[Kernel, ...]:
    """Return all kernels whose times are known, the most time first."""
    plain = Counter[str]()
    for each in chain.from_iterable(part.plain for part in parts):
        plain[each.label] += each.launches
    of_label: dict[str, list[tuple[Part, int]]] = {}
    for part in parts:
        for number, time in enumerate(part.times):
            of_label.setdefault(time.label, []).append((part, number))
    return _with_shares([_kernel(label, of_label[label], plain[label]) for label in of_label])


def _kernel(label: str, found: Sequence[tuple[Part, int]], plain: int) -> Kernel:
    """Return a kernel by its launches of each process, before its share of the time is known."""
    times = [part.times[number] for part, number in found]
    recorded, total = sum(one.launches for one in times), sum(one.total_ns for one in times)
    seen = max(recorded, plain + sum(part.recorded.get(label, 0) for part, _ in found))
    longest = max(found, key=lambda one: one[0].times[one[1]].total_ns)[0]
    return Kernel(
        label,
        launches=seen,
        recorded=recorded,
        mean_ns=total / recorded,
        min_ns=min(one.min_ns for one in times),
        max_ns=max(one.max_ns for one in times),
        total_ns=total / recorded * seen,
        share=0.0,
        trace=str(longest.trace),
    )


def _with_shares(kernels: Sequence[Kernel]) -> tuple[Kernel, ...]:
    whole = sum(one.total_ns for one in kernels) or 1.0
    order = sorted(kernels, key=lambda one: (-one.total_ns, one.label))
    return tuple(replace(one, share=one.total_ns / whole) for one in order)


def _untimed(parts: Sequence[Part], kernels: Sequence[Kernel]) -> tuple[str, ...]:
    timed = {one.label for one in kernels}
    seen = [*(label for part in parts for label in part.recorded)]
    seen += [one.label for part in parts for one in part.plain if one.why != NOT_NAMED]
    return tuple(label for label in dict.fromkeys(seen) if label not in timed)


def _explained(
    part: Part, label: str, open_traces: Mapping[str, Trace]
) -> tuple[Verdict | None, str]:
    """Return the verdict on a kernel, or why there is none."""
    path = str(part.trace)
    if why := _too_many(part, label, open_traces.get(path)):
        return None, why
    try:
        return _verdict(path, label, open_traces), ""
    except KeyboardInterrupt:
        return None, "interrupted"
    except Exception as error:  # noqa: BLE001 - the trace is written, and the program is over
        pass_on(error)
        return None, f"{type(error).__name__}: {error}"


def _too_many(part: Part, label: str, trace: Trace | None) -> str:
    """Return why a kernel is too much for the end of a run; nothing where it is not."""
    if trace is None:
        whose, records, most = "the trace", part.records, MOST_READ
    else:
        launches = (each.kept for each in trace.launches if each.label == label)
        whose, records, most = "a launch of it", max(launches, default=0), MOST
    if records <= most:
        return ""
    return f"{whose} has {records:,} records, and the end of a run explains {most:,}"


def _verdict(path: str, label: str, open_traces: Mapping[str, Trace]) -> Verdict:
    import numpy as np

    from ikp.trace import load

    with warnings.catch_warnings(), np.errstate(all="ignore"):  # the program may have set them
        warnings.simplefilter("ignore")
        trace = open_traces[path] if path in open_traces else load(path)
        return trace.explain(lambda name: name == label)


def _next(part: Part, label: str, folder: str, *, finding: bool) -> tuple[Command, ...]:
    """Return the commands that say more of a kernel; ``finding``: whether it has one to open on.

    Each takes the file that was written: of formats for other tools, only viewers read some.
    """
    if not reads_back(str(part.trace)):
        return _opening([part], folder)
    path = near(str(part.trace), folder)
    own = max(part.times, key=lambda one: (one.total_ns, one.label))
    # A label of digits would be a launch's number.
    which = ("--launch", label) if own.label != label and not label.isdecimal() else ()
    explain = Command(("ikp", "explain", path, *which), "all of the verdict")
    if finding and (which or own.label == label):
        place = ("ikp", "view", "--finding", "1", *which, path)
        return explain, Command(place, "where the first finding is")
    return explain, *_opening([part], folder)


def _opening(written: Sequence[Part], folder: str) -> tuple[Command, ...]:
    if not written or not opens_in_viewer(str(written[0].trace)):
        return ()
    path = near(str(written[0].trace), folder)
    return (Command(("ikp", "view", path), "the timeline, in your browser"),)


VERSION: Final = 1


class RunJson(TypedDict):
    """The JSON of ``ikp run``, without the head. ``lines`` are warnings and what went wrong,
    ``whole`` is the file of all processes.
    """

    processes: list[Part]
    kernels: list[Kernel]
    untimed: list[str]
    verdict: Verdict | None
    explained: str | None
    not_explained: str
    next: list[Command]
    whole: str | None
    lines: list[str]


def document(parts: Sequence[Part], answer: Answer, lines: Sequence[str]) -> dict[str, Any]:
    """Return the JSON of a run."""
    verdict = None if answer.verdict is None else answer.verdict.to_dict()
    if verdict is not None:
        del verdict["schema"]  # it is a part of this document
    found = asdict(answer) | {"verdict": verdict}
    processes = [asdict(each) for each in parts]
    return headed("run", VERSION, {"processes": processes, **found, "lines": list(lines)})


def beside(path: str) -> Path:
    """Return the path of a run's JSON: ``x.run.json`` beside ``x.pftrace``."""
    return Path(path).with_suffix(".run.json")
