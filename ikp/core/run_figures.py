"""Figures of runs, as JSON in provenance: addresses, times, graph replays, instructions left out.

Each is a text under one of these prefixes + the launch's label:

- ``ADDRESSES``: what each access asked of memory, by address probes.
  ``ikp run --probe addresses`` writes it; ``ikp explain`` and ``ikp stats`` show it.
- ``TIMED``: times of recorded and of plain launches. ``ikp run`` writes a line for each grid.
- ``TRIED``: times of the kernel without some of its instructions, measured. ``ikp run --try N``
  writes it.
- ``PARAMETERS``, ``FAR``, ``CARVE_OUT``: what its first recorded launch was given.

``REPLAYED`` is the whole key of one text on all labels: launches by replays of CUDA graphs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

ADDRESSES: Final = "addresses of "
"""Before a label: the figures, as JSON."""
NO_ADDRESSES: Final = "no addresses of "
"""Before a label: why there are none."""
_ADDRESSES_VERSION: Final = 1


REPLAYED: Final = "replays of CUDA graphs"
PARAMETERS: Final = "parameters of "
"""Before a label: the values of its first recorded launch's parameters, JSON: offset -> hex."""
CARVE_OUT: Final = "carve-out of "
"""Before a label: the part of L1 that its first recorded launch preferred as shared memory, in
percent, where the program set it."""
FAR: Final = "memory of "
"""Before a label: pointers among these that are not of the device's memory, JSON: offset -> whose
memory that is, its base, its bytes."""


@dataclass(frozen=True, slots=True)
class ReplayFigures:
    """The launches of one label by replays of CUDA graphs."""

    captured: int = 0  # in this session: a capture launches nothing
    kept: int = 0  # in the trace
    made: int = 0  # by all replays in the session

    def __add__(self, other: ReplayFigures) -> ReplayFigures:
        kept, made = self.kept + other.kept, self.made + other.made
        return ReplayFigures(self.captured + other.captured, kept, made)


def replays_text(figures: Mapping[str, ReplayFigures]) -> str:
    """Return figures by label as the text of a fact."""
    return json.dumps({label: asdict(each) for label, each in figures.items()})


def replays_of(provenance: Mapping[str, str]) -> dict[str, ReplayFigures]:
    """Return a trace's figures on replays, by label; none where the text can't be read."""
    try:
        found = json.loads(provenance.get(REPLAYED, "{}"))
        return {label: ReplayFigures(**each) for label, each in found.items()}
    except (ValueError, TypeError, AttributeError):
        return {}


@dataclass(frozen=True, slots=True)
class AccessFigures:
    """One access of the machine code, over the sampled warps. Means are over whole requests.

    A request is one execution by one warp. ``cost`` counts 32-byte sectors of global and local
    memory, and wavefronts (cycles) of shared memory, for one request; ``least`` is what the
    same lanes need where their addresses are adjacent. ``same_address`` is the most lanes with one
    address. ``reuse`` is how often a block asks for a sector, or for a word of shared memory;
    ``blocks_share``, how many of the sampled blocks ask for one sector. ``stride`` is the distance
    of neighbouring lanes' addresses in bytes, None where it differs.
    """

    text: str  # the instruction
    line: str  # "kernels/matmul.py:93"; "" where not known
    range: str  # the innermost range that it is in; "" for the kernel's own
    space: str  # "global", "shared", "local", "generic"
    kind: str  # "load", "store", "atomic", "copy"
    width: int  # bytes of a lane
    executed: int  # by lanes
    dropped: int  # of these, by lanes whose addresses had no room
    requests: int  # whose addresses are known
    active: float | None = None  # lanes
    cost: float | None = None
    least: float | None = None
    same_address: float | None = None
    reuse: float | None = None
    blocks_share: float | None = None
    stride: int | None = None

    @property
    def executions(self) -> float:
        """How often all sampled warps executed it, with those whose lanes had no room."""
        kept = self.executed - self.dropped
        return self.requests * self.executed / kept if kept else 0.0


@dataclass(frozen=True, slots=True)
class AddressFigures:
    """The figures of one kernel, in the order of its code."""

    blocks: int  # that were sampled
    of_blocks: int
    warps: int  # that were sampled
    checked: str  # the result of comparing memory with what the plain kernel wrote
    left_out: tuple[tuple[str, str], ...]  # instructions without figures, and why
    accesses: tuple[AccessFigures, ...]

    def text(self) -> str:
        """Return the JSON that a trace's provenance holds."""
        said = asdict(self) | {"version": _ADDRESSES_VERSION}
        names = [each.name for each in fields(AccessFigures)]
        said["accesses"] = [[getattr(each, name) for name in names] for each in self.accesses]
        return json.dumps(said, separators=(",", ":"), ensure_ascii=False)


def read_addresses(provenance: Mapping[str, str], label: str) -> AddressFigures | None:
    """Return the figures of a label; None where the trace has none that can be read."""
    try:
        said = json.loads(provenance.get(f"{ADDRESSES}{label}", ""))
        return _parsed_addresses(said) if said["version"] == _ADDRESSES_VERSION else None
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _parsed_addresses(said: dict[str, Any]) -> AddressFigures:
    return AddressFigures(
        *(int(said["blocks"]), int(said["of_blocks"]), int(said["warps"]), str(said["checked"])),
        tuple((str(text), str(why)) for text, why in said["left_out"]),
        tuple(_access(each) for each in said["accesses"]),
    )


def _access(said: list[Any]) -> AccessFigures:
    text, line, region, space, kind, width, executed, dropped, requests, *means, stride = said
    active, cost, least, same_address, reuse, blocks_share = map(_number, means)
    return AccessFigures(
        *(str(text), str(line), str(region), str(space), str(kind)),
        *(int(width), int(executed), int(dropped), int(requests)),
        *(active, cost, least, same_address, reuse, blocks_share),
        None if stride is None else int(stride),
    )


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


TIMED: Final = "timed "
"""Before a label: times of its launches, a line of JSON for each grid."""


@dataclass(frozen=True, slots=True)
class TimedLaunches:
    """Times of recorded and of plain launches, and how far their difference may be off.

    They are medians. But ``in_turn``, ``plain_us`` is the recorded one less the difference.
    ``recorded_us`` is None where the GPU waited for the recorded launches. ``in_turn`` says whether
    each recorded launch had a plain one next to it, so that a change from launch to launch cancels.
    """

    grid: tuple[int, int, int]
    recorded_us: float | None
    plain_us: float
    error_us: float
    launches: tuple[int, int]  # recorded, plain
    in_turn: bool = False

    def text(self) -> str:
        """Return the line of JSON that a trace's provenance holds."""
        return json.dumps(asdict(self))


def read_timed(provenance: Mapping[str, str], label: str) -> tuple[TimedLaunches, ...]:
    """Return the times of a label's launches; lines that can't be read are left out."""
    found = (_parsed_times(line) for line in provenance.get(f"{TIMED}{label}", "").splitlines())
    return tuple(each for each in found if each is not None)


def _parsed_times(line: str) -> TimedLaunches | None:
    try:
        said: dict[str, Any] = json.loads(line)
        x, y, z = map(int, said["grid"])
        recorded, plain = map(int, said["launches"])
        return TimedLaunches(
            (x, y, z),
            None if said["recorded_us"] is None else float(said["recorded_us"]),
            float(said["plain_us"]),
            float(said["error_us"]),
            (recorded, plain),
            bool(said.get("in_turn")),
        )
    except (ValueError, TypeError, KeyError, OverflowError):
        return None


TRIED: Final = "tried in "
"""Before a label: what was tried, as JSON."""
NOT_TRIED: Final = "not tried in "
"""Before a label: why nothing was."""
INVALID: Final = "results are not valid"
_SUSPECTS_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class TriedSuspect:
    """Instructions of one kind and line, taken out of a copy whose results are not valid.

    ``gain`` is the share of the plain kernel's time that the copy saves, the median of pairs that
    ran in turn; ``spread`` is half the distance of their quartiles. None where it was not timed.
    """

    kind: str  # "barrier", "load", "store", "atomic"
    line: str  # "kernels/matmul.py:93"; "" where not known
    instructions: int
    how: str = ""  # "removed" or "redirected to one line"
    refused: str = ""  # why it was not timed
    plain_ns: float | None = None  # the median
    tried_ns: float | None = None
    gain: float | None = None
    spread: float | None = None


@dataclass(frozen=True, slots=True)
class TriedSuspects:
    """What was tried in one kernel, in order; ``of`` is how many suspects it has."""

    of: int
    suspects: tuple[TriedSuspect, ...]

    def text(self) -> str:
        """Return the JSON that a trace's provenance holds."""
        said = asdict(self) | {"version": _SUSPECTS_VERSION, "note": INVALID}
        return json.dumps(said, separators=(",", ":"), ensure_ascii=False)


def read_tried(provenance: Mapping[str, str], label: str) -> TriedSuspects | None:
    """Return what was tried in a label's kernel; None where the trace has nothing readable."""
    try:
        said = json.loads(provenance.get(f"{TRIED}{label}", ""))
        if said["version"] != _SUSPECTS_VERSION:
            return None
        return TriedSuspects(int(said["of"]), tuple(map(_suspect, said["suspects"])))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return None


def _suspect(said: dict[str, Any]) -> TriedSuspect:
    return TriedSuspect(
        *(str(said["kind"]), str(said["line"]), int(said["instructions"])),
        *(str(said["how"]), str(said["refused"])),
        *(_number(said[name]) for name in ("plain_ns", "tried_ns", "gain", "spread")),
    )
