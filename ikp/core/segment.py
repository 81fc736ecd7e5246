"""``Segment``: memory of a launch's records; ``Spec``: compile-time options; ``Selection``: warps.

A spec is fixed when the kernel is compiled; a selection, when it is launched. A selection says
which warps and blocks record: the others have no slot, and all memory is divided among the slots.
The host writes the selection into the launch header before the kernel runs, so that one compiled
kernel serves every selection.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import index
from typing import Any, Final, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ikp.core import abi
from ikp.core.abi import ABI_VERSION, ClockKind, OverflowMode
from ikp.errors import UsageError

MAX_WARPS = 32
"""Warps of the largest block there can be."""
ALL = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Spec:
    """Compile-time half of a kernel's ``prof`` argument; prints as it parses.

    It is part of the DSL's cache key, so a kernel compiled for another ABI, another clock or by
    another revision of the device code is never taken from a compile cache.
    """

    clock: ClockKind = ClockKind.CYCLES
    overflow: OverflowMode = OverflowMode.STOP
    device: str = "cuda"  # where the segment lies: "cuda" or "cpu"
    schedule: bool = True  # let the compiler hook place clock reads and stores
    select: bool = False  # the launch header says which warps and blocks record
    totals: bool = False  # sum up each region in registers, and write its total at the end
    abi: int = ABI_VERSION
    target_options: tuple[tuple[str, bool], ...] = ()  # those given of a GPU target's, by name
    revision: str = ""  # fingerprint of the code that generates the device code
    _text: str = field(init=False, repr=False, compare=False)  # each launch passes it

    def __post_init__(self) -> None:
        text = (
            f"ikp abi={self.abi} clock={self.clock.name.lower()} "
            f"overflow={self.overflow.name.lower()} device={self.device} "
            f"schedule={int(self.schedule)} select={int(self.select)} totals={int(self.totals)} "
            f"target={_joined(self.target_options)} revision={self.revision}"
        )
        object.__setattr__(self, "_text", text)

    def __str__(self) -> str:
        return self._text

    def option(self, name: str, default: bool) -> bool:
        """Return an option of a GPU target, as the session has it."""
        return dict(self.target_options).get(name, default)

    @classmethod
    def parse(cls, text: str) -> Spec:
        """Return the spec that prints as ``text``.

        Raises:
            ValueError: ``text`` is not the text of a spec.
        """
        values = dict(pair.partition("=")[::2] for pair in text.split(" ")[1:])
        try:
            spec = cls(
                clock=ClockKind[values["clock"].upper()],
                overflow=OverflowMode[values["overflow"].upper()],
                device=values["device"],
                schedule=values["schedule"] == "1",
                select=values["select"] == "1",
                totals=values["totals"] == "1",
                target_options=_parted(values["target"]),
                abi=int(values["abi"]),
                revision=values["revision"],
            )
        except (KeyError, ValueError):
            spec = None
        if spec is None or str(spec) != text:
            raise ValueError(f"not a recording spec: {text!r}")
        return spec


def _joined(options: tuple[tuple[str, bool], ...]) -> str:
    return ",".join(f"{name}:{int(value)}" for name, value in options)


def _parted(text: str) -> tuple[tuple[str, bool], ...]:
    pairs = (each.partition(":") for each in text.split(",") if each)
    return tuple((name, value == "1") for name, _, value in pairs)


@dataclass(frozen=True, slots=True)
class Selection:
    """The warps and blocks that record: a mask of warps, and a strided range of block ids."""

    warps: int = ALL
    first_block: int = 0
    block_step: int = 1
    block_count: int = ALL
    others: bool = False  # the others have a header of when and where they ran; not in the words

    @classmethod
    def of(cls, header: np.void) -> Self:
        """Return the selection in a launch header, whether or not its kernel heeds it."""
        warps, first, step, count = (int(header[name]) for name in WORDS)
        return cls(warps, first, step, count)

    def words(self) -> NDArray[np.uint32]:
        """Return the launch header's words from ``warps`` on."""
        return np.array([getattr(self, name) for name in WORDS], "<u4")

    def chosen_warps(self, warps: int) -> NDArray[np.int64]:
        """Return the numbers of the warps that record, of blocks with ``warps`` warps."""
        return np.flatnonzero(self.warps >> np.arange(warps) & 1)

    def count_blocks(self, blocks: int) -> int:
        """Return how many of ``blocks`` blocks record."""
        behind = max(0, blocks - self.first_block)
        return min(-(-behind // self.block_step), self.block_count)

    def count_slots(self, blocks: int, warps: int, least: int = 0) -> int:
        """Return how many warps record of a launch.

        Args:
            blocks: of the launch.
            warps: of a block.
            least: how many blocks, and warps of each, are counted at least. Kernels divide memory
                by 1 where no warp records.
        """
        mask = self.warps & (1 << warps) - 1
        return max(self.count_blocks(blocks), least) * max(mask.bit_count(), least)

    def count_headers(self, blocks: int, warps: int) -> int:
        """Return how many headers lie behind the slots of a launch: one for each of its warps.

        Headers of warps that have a slot stay empty, and count, so that each is found by its
        number.
        """
        return blocks * warps if self.others else 0

    def whole_blocks(self, blocks: int) -> bool:
        """Return whether some of ``blocks`` blocks record, with all their warps."""
        return self.warps == ALL and self.count_blocks(blocks) > 0

    def rank(self, block: int) -> int | None:
        """Return the number of a block among those that record; None if it does not."""
        rank, rest = divmod(block - self.first_block, self.block_step)
        return rank if not rest and 0 <= rank < self.block_count else None

    def chosen_blocks(self, rank: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the linear ids of the blocks that record, by their number among them."""
        return self.first_block + rank * self.block_step


EVERYTHING = Selection()
WORDS: Final = ("warps", "first_block", "block_step", "block_count")
"""The fields of the launch header that hold a selection."""
WORDS_AT = abi.field_offsets(abi.LAUNCH_HEADER)["warps"]
"""The offset of these fields in the launch header."""


def select(
    warps: Iterable[int] | None, blocks: range | Selection | None, granularity: int | str
) -> Selection:
    """Return the selection that a user's arguments describe.

    Args:
        warps: numbers of warps in their block; None takes all.
        blocks: linear block ids, as a range with a positive step; None takes all. A sample of
            blocks comes as it is.
        granularity: ``"warp"``, ``"block"``, or how many warps share a slot: the first records.

    Raises:
        UsageError: an argument can't be used.
    """
    if isinstance(blocks, Selection):
        return blocks
    if warps is None and blocks is None and granularity == "warp":
        return EVERYTHING
    every = _warps_of_a_slot(granularity)
    mask = sum(1 << warp for warp in range(0, MAX_WARPS, every))
    if warps is not None:
        if every > 1:
            raise UsageError("give warps or granularity, not both: each says which warps record.")
        mask = sum(1 << warp for warp in _checked_warps(warps))
    if blocks is None:
        return Selection(mask)
    chosen = _checked_blocks(blocks)
    return Selection(mask, chosen.start, chosen.step, min(len(chosen), ALL))


def _warps_of_a_slot(granularity: int | str) -> int:
    every = granularity
    if isinstance(every, str):
        every = {"warp": 1, "block": MAX_WARPS}.get(every, 0)
    if every not in (1, 2, 4, 8, 16, MAX_WARPS) or isinstance(every, bool):
        raise UsageError(
            f"granularity={granularity!r} is unknown: use 'warp', 'block', or 2, 4, 8 or 16 warps."
        )
    return every


def _checked_blocks(given: object) -> range:
    if not isinstance(given, range) or given.step < 1 or given.start < 0 or not len(given):
        raise UsageError(
            f"blocks={given!r} can't be used: give a range of linear block ids that is not empty "
            "and counts up, like range(0, 1024, 7)."
        )
    return given


def _checked_warps(warps: Iterable[int]) -> set[int]:
    try:
        chosen = {index(warp) for warp in warps}
    except TypeError:
        chosen = set()
    if not chosen or min(chosen) < 0 or max(chosen) >= MAX_WARPS:
        raise UsageError(
            f"warps={warps!r} can't be used: give the numbers of warps in their block, "
            f"0 to {MAX_WARPS - 1}, like [0, 4]."
        )
    return chosen


@dataclass(frozen=True, slots=True)
class SegmentRows:
    """Rows of bytes of one segment: ``width`` bytes from ``at`` on, and again every ``pitch``."""

    at: int
    width: int
    pitch: int = 0  # of no account where there is one row
    rows: int = 1

    @property
    def nbytes(self) -> int:
        """Bytes in all rows."""
        return self.width * self.rows

    @property
    def end(self) -> int:
        """The offset of the first byte behind all rows."""
        return self.at + self.pitch * (self.rows - 1) + self.width


Tensor: TypeAlias = Any
"""A ``torch.Tensor``: torch is loaded late, and its types are none here."""


@dataclass(slots=True, eq=False)
class Segment:
    """The memory of one launch's records, and how the launch records into it.

    ``data`` is a uint8 tensor of shape ``(bytes,)``: launch header, then the slots.
    """

    label: str
    data: Tensor
    spec: Spec
    backend: str
    device_name: str
    clock_rate_hz: float  # advertised SM clock; used only where anchors can't give the rate
    regions: Mapping[int, str] = field(default_factory=dict)  # names of user-given ids
    selection: Selection = EVERYTHING  # which warps and blocks record
    enabled: bool = True  # False: the kernel runs with recording off, at run time
    rank: int | None = None  # of this process when the buffer was taken
    kernel: str = ""  # the full name of the launched kernel, where the label is a short one
    number: int = 0  # of the launch, among marks in torch.profiler's recording; 0: none

    @property
    def nbytes(self) -> int:
        """Size in bytes, the launch header included."""
        return int(self.data.numel())

    def on(self, data: Tensor) -> Segment:
        """Return a copy with other memory: ``dataclasses.replace`` takes ten times as long."""
        return Segment(
            self.label,
            data,
            self.spec,
            self.backend,
            self.device_name,
            self.clock_rate_hz,
            self.regions,
            self.selection,
            self.enabled,
            self.rank,
            self.kernel,
        )
