"""``Verdict`` and its parts: what ``ikp explain`` says of a launch, in the version ``VERSION``.

``Verdict.to_dict`` holds the fields under the names that they have here. Times are nanoseconds,
shares are of 1. A number that is not known is None (``null``), and ``unknown`` says why.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Final

from ikp.analysis.perturbation import Perturbation
from ikp.json_schema import headed
from ikp.printing import Printed, json_of
from ikp.terminal import shortened

VERSION: Final = 3
"""Raised when a field goes or changes its meaning. New fields may come without."""
MOST_BYTES: Final = 8192
"""The most that ``to_json`` takes in UTF-8; entries left out are counted in ``left_out``."""


@dataclass(frozen=True, slots=True)
class Number:
    """The figure that a finding was found by."""

    what: str  # "wait for full, share of the consumers' time"
    value: float
    unit: str  # "share" | "ns" | "cycles" | "ratio" | "count"


@dataclass(frozen=True, slots=True)
class Where:
    """Where to look. Lists hold the few that say most; a window is of the launch's time axis."""

    regions: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()  # or groups of warps, as ``groups`` names them
    warps: tuple[tuple[int, int], ...] = ()  # (block, warp)
    sms: tuple[int, ...] = ()
    window_ns: tuple[int, int] | None = None  # from the first start of the launch
    count: int = 0  # ranges, blocks or launches that the number is made of
    lines: tuple[str, ...] = ()  # "/src/matmul.py:93"; without the path where that is not known


@dataclass(frozen=True, slots=True)
class Tried:
    """A bound that was tried: the kernel timed without some instructions, on copied memory.

    The results of such a copy are not valid. ``gain_share`` is the measured share of the plain
    kernel's time, with half the distance of its quartiles; None where it was not timed.
    """

    kind: str  # "barrier" | "load" | "store" | "atomic"
    line: str  # "/src/matmul.py:93"
    how: str  # "removed" | "redirected to one line" | "not tried"
    gain_share: float | None
    spread: float | None
    rationale: str  # what was taken out; or why it was not timed


@dataclass(frozen=True, slots=True)
class AccessUse:
    """An access that costs more than it needs, by the recorded addresses of sampled warps' lanes.

    ``cost`` and ``least`` are sectors of 32 bytes, or wavefronts of shared memory, of one request.
    """

    what: str  # "global load"
    width: int  # bytes of a lane
    line: str
    region: str  # the innermost range around it
    cost: float
    least: float
    active: float  # lanes
    same_address: float  # the most lanes with one address
    reuse: float  # how often a block asks for one sector or word
    stride: int | None  # bytes from lane to lane


@dataclass(frozen=True, slots=True, repr=False)
class Finding(Printed):
    """One cause of lost time, with what a change could win.

    Printing shows its title, its bound, its place and its suggestion.
    """

    id: str  # "tail", "late-producer", ...: docs/reading-a-trace.md has one section for each
    title: str  # one sentence
    number: Number
    bound_ns: float  # of the launch's duration: what would go if the cause did
    bound_share: float  # the same, over the launch's duration
    speedup_at_most: float  # 1 / (1 - bound_share)
    what_if: str  # "without the wait for full: at most 11.0 % less time"
    confidence: str  # "measured" | "likely" | "possible"
    rationale: str  # why so sure, on what evidence, and what would refute it
    where: Where
    suggestion: str  # what a change could be, or what to look at
    tried: Tried | None = None  # the measured gain, with --try
    bound_is: str = "at most"  # or "about", where the bound was counted and not measured

    def __repr__(self) -> str:
        share = f"{self.bound_is} {100 * self.bound_share:.1f} % less time"
        return f"<ikp.Finding: {self.id}, {share}, {self.confidence}>"


@dataclass(frozen=True, slots=True)
class Unknown:
    """What can't be said, why, and what to record so that it can."""

    what: str
    rationale: str
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Launched:
    """The launch that a verdict is about: of its label the one of median duration."""

    label: str
    index: int  # into Trace.launches
    launches: int  # of this label
    duration_ns: int
    median_ns: float  # of the label's launches
    min_ns: int
    max_ns: int
    device: str
    grid: tuple[int, int, int]
    warps_per_block: int
    blocks: int  # that recorded
    blocks_seen: int  # of which it is known when they ran: these, or more
    warps: int  # that recorded
    sms: int | None  # that blocks_seen ran on; None of the interpreter, which is no GPU
    clock: str
    rate: str
    residual_max_ns: float | None
    dropped: int
    others: tuple[tuple[str, float], ...] = ()  # other labels: all their launches' time
    recording_share_at_most: float | None = None  # of the warps' time
    attempted: int = 0  # records, of which ``dropped`` were lost
    unfinished: int = 0  # warps that never finished: what they lost is not known
    recording: Perturbation | None = None  # of the label's launches


@dataclass(frozen=True, slots=True)
class Lanes:
    """The launch's time over the CTA slots of its SMs ("lanes"); the shares add up to 1.

    A CTA slot is room for one block: an SM has as many as it ever held blocks at once.
    """

    lanes: int  # CTA slots of all SMs
    blocks_at_once: int  # on one SM: its median
    waves: float  # blocks per CTA slot
    busy_share: float  # a block ran
    start_share: float  # before the slot's first block
    switch_share: float  # between a block and the next
    end_share: float  # after the slot's last block


@dataclass(frozen=True, slots=True)
class Doing:
    """Share of one activity in the warps' time; with ``in_no_range_share``, all add up to 1."""

    activity: str  # one of activity.Activity
    share: float


@dataclass(frozen=True, slots=True)
class Group:
    """Warps that do the same: those of one role, or those that record the same ranges."""

    name: str
    by: str  # "role" | "ranges" | "all"
    warps: int  # that recorded
    busy_share: float  # of the time of its warps: in ranges that don't wait
    waiting_share: float
    in_no_range_share: float


@dataclass(frozen=True, slots=True)
class RegionUse:
    """A region of the launch: its activity, how that is known, and its time."""

    name: str
    activity: str
    by: str  # "machine code" | "mark" | "name" | "holds others" | ""
    count: int
    p50_ns: float
    self_share: float  # of the warps' time
    tflops: float | None = None  # while its warps were in it, all warps together
    of_peak: float | None = None  # that over what the device can


@dataclass(frozen=True, slots=True)
class Branch:
    """A line of the tree: a region inside others, by its path."""

    path: tuple[str, ...]
    count: int
    total_share: float  # of the warps' time
    self_share: float


@dataclass(frozen=True, slots=True)
class Phases:
    """How long blocks take before, in and after their iterations: a median of each."""

    iteration: str  # the region that repeats
    iterations: float  # of a warp: the mean
    prologue_ns: float
    steady_ns: float
    epilogue_ns: float


@dataclass(frozen=True, slots=True)
class Step:
    """A part of the critical path of the block that ended last, of those that recorded."""

    role: str
    region: str  # "" where no range was open
    share: float  # of the path


@dataclass(frozen=True, slots=True)
class Roof:
    """A limit of the device, and the share of it that the launch's counted work uses."""

    name: str  # "tensor", "FMA", "integer", "FP64", "XU", "L1", "L2", "DRAM", "issue"
    share: float  # of the launch's duration: so long that unit needs at its full rate


@dataclass(frozen=True, slots=True)
class Unit:
    """Instructions of one unit that the launch issued."""

    unit: str  # "fma", "load.global.16", ...
    count: float  # of all warps
    share: float  # of all instructions


@dataclass(frozen=True, slots=True)
class HotCode:
    """A range whose own code takes the warps' time, and what that issues, counted.

    Where its time is in loops of unknown trips, the counts are of one iteration of these.
    """

    region: str
    self_share: float  # of the warps' time
    each: str  # what is counted: "execution" | "iteration"
    count: float  # instructions of a warp
    units: tuple[tuple[str, float], ...]  # "fma" -> how many of these, the most first
    lines: tuple[tuple[str, float], ...]  # "matmul.py:93" -> how many


@dataclass(frozen=True, slots=True)
class Served:
    """What some of the launch's instructions serve: results or what these need beside."""

    what: str  # "arithmetic", "addresses", ...: the manual has all
    share: float  # of all instructions


@dataclass(frozen=True, slots=True)
class KernelShare:
    """A kernel of the trace, and its share of the time of all recorded launches."""

    label: str
    launches: int
    time_ns: float
    share: float


@dataclass(frozen=True, slots=True)
class Hardware:
    """Use of tensor cores and of memory, as far as the machine code says what ranges hold."""

    flop: int | None = None
    tflops: float | None = None  # over the launch's duration
    of_peak: float | None = None
    tensor_busy_share: float | None = None  # of the SMs' time: a product was under way
    copy_overlap_share: float | None = None  # of the time of copies: a product was under way, too
    bytes: int | None = None  # asked for by loads, copies and stores that say their size
    gb_per_s: float | None = None
    registers: int | None = None  # of a thread, of the kernel as it is without ikp run
    registers_recorded: int | None = None  # of the copy with records, where it has others
    shared_bytes: int | None = None
    limited_by: str | None = None  # "registers", "shared memory", "warps", "the grid", "recording"
    warps_at_once: float | None = None  # on an SM, as they were, if all recorded: SMs' median
    warps_possible: int | None = None  # by the device
    warps_at_once_plain: int | None = None  # at most, without recording, where that is more
    local_bytes: int | None = None  # of a thread's local memory: its stack
    local_accesses: int | None = None  # instructions of the plain kernel that access it
    static_shared_bytes: int | None = None  # of a block, that the code declares
    register_limit: int | None = None  # that the compiler was given


@dataclass(frozen=True, slots=True, repr=False)
class Verdict(Printed):
    """What takes a kernel's time: findings in order of their time at stake, and their evidence.

    Printing shows one screen; ``to_json`` is for programs.
    """

    launch: Launched | None
    findings: tuple[Finding, ...] = ()
    symptoms: tuple[Finding, ...] = ()  # where time goes, too, without evidence of a fault
    unknown: tuple[Unknown, ...] = ()
    lanes: Lanes | None = None
    time: tuple[Doing, ...] = ()
    in_no_range_share: float | None = None
    groups: tuple[Group, ...] = ()
    regions: tuple[RegionUse, ...] = ()
    tree: tuple[Branch, ...] = ()
    phases: Phases | None = None
    critical_path: tuple[Step, ...] = ()
    hardware: Hardware | None = None
    kernels: tuple[KernelShare, ...] = ()  # all of the trace, the longest first
    roofs: tuple[Roof, ...] = ()  # the nearest first
    mix: tuple[Unit, ...] = ()  # the most frequent first
    hot: tuple[HotCode, ...] = ()  # the most time first
    uncounted: tuple[str, ...] = ()  # units in loops whose trips no record counts
    serves: tuple[Served, ...] = ()  # what instructions serve, the most first
    accesses: tuple[AccessUse, ...] = ()  # the costliest first, with --probe addresses
    tried: tuple[Tried, ...] = ()  # the largest gain first, with --try
    connected: tuple[str, ...] = ()  # which waits were joined with what, and how
    left_out: dict[str, int] = field(default_factory=dict)  # entries that there was no room for
    version: int = VERSION

    @property
    def every(self) -> tuple[Finding, ...]:
        """Findings, and symptoms behind them."""
        return (*self.findings, *self.symptoms)

    def __repr__(self) -> str:
        of = "of no launch" if self.launch is None else shortened(self.launch.label)
        return f"<ikp.Verdict: {of}: {', '.join(one.id for one in self.findings) or 'no finding'}>"

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON's types, floats with six significant digits."""
        plain: dict[str, Any] = _plain(asdict(self))
        return headed("explain", plain.pop("version"), plain)

    def to_json(self) -> str:
        """Return :meth:`to_dict` as JSON of at most ``MOST_BYTES``, less important entries cut."""
        return json_of(self)


def _plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
