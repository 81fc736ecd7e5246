"""``Accesses``: memory accesses by lane addresses from code: sectors, cycles, reuse by blocks."""

from __future__ import annotations

import math
import zlib
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ikp.core.address_tables import request_costs
from ikp.core.code_facts import RECORDED, SCATTERED, AccessFacts
from ikp.core.run_figures import AccessFigures
from ikp.inspection._bases import Bases
from ikp.inspection._serves import Uses
from ikp.inspection._work import Often
from ikp.sass.control_flow.flow import Flow, Loop
from ikp.sass.control_flow.graph import reached
from ikp.sass.dataflow.def_use import DefUse
from ikp.sass.dataflow.idioms import is_elected
from ikp.sass.dataflow.lane_state import (
    ASSUMED,
    BLOCK,
    DATA,
    LANE,
    LANES,
    WARP,
    LaunchValues,
    Shape,
)
from ikp.sass.dataflow.lane_values import LaneValues
from ikp.sass.disassembly.listing import Instruction
from ikp.sass.disassembly.opcodes import unit_of

_SECTOR = 32
_WORD = 4
_ROWS = 8
"""Lanes that give the addresses of one matrix of LDSM and STSM."""
_MATRIX_ROW = 16
"""Bytes of such a matrix that each of them names."""
_WIDEST = 16
"""Bytes of the widest access of a lane, beyond which no alignment counts."""
_LETTERS = {LANE: "l", WARP: "w", BLOCK: "b", DATA: "d", ASSUMED: "p"}
_OVERLAP = 0.25
"""Part of a load's sectors that its block has stored to, from which on it reads them back: layouts
of stores and loads may differ, and not all warps are looked at."""
_KINDS = ("load", "store", "atomic", "copy")
_SHORT = 256
"""Blocks of a row up to which neighbours in the next row run at about the same time."""
_SPREAD = 6
"""Further blocks of which all warps are looked at."""
_DIGITS = 4
_SOME_BLOCKS = 2
"""Blocks of which requests are looked at one by one."""
_KEYS = 8
"""Addresses by which an access is known again."""
_ALL_LANES = 31.5
"""Lanes of one address, in the mean, from which on a request has one address."""
_NONE = np.iinfo(np.int64).max
"""No address."""
_MOST_BESIDE = 96
"""Requests of a loop up to which those of other lines are looked at."""
_MOST = 24
"""Accesses that are kept of one range, those of most instructions."""


Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Accesses:
    """The accesses of one kernel.

    Args:
        flow: the kernel.
        shape: how it was launched.
        first_parameter: where parameters begin in the constant bank.
        parameters: their 32-bit values, by their offset in it, as far as they are known.
        ours: the instructions of records.
        recorded: what address probes recorded of some accesses, by their instruction.
    """

    flow: Flow
    shape: Shape
    first_parameter: int
    parameters: Mapping[int, int] = field(default_factory=dict)
    ours: Collection[int] = ()
    recorded: Mapping[int, AccessFigures] = field(default_factory=dict)

    @cached_property
    def values(self) -> LaneValues:
        """The values of its registers."""
        return LaneValues(
            self.flow, LaunchValues(self.shape, self.parameters, self.first_parameter)
        )

    def of(self, how_often: Mapping[int, Often]) -> tuple[AccessFacts, ...]:
        """Return the accesses among some instructions; those that are alike are one."""
        found: dict[tuple[object, ...], list[int]] = defaultdict(list)
        counts: dict[tuple[object, ...], float] = defaultdict(float)
        lines: dict[tuple[str, str], list[int]] = defaultdict(list)
        for at, often in how_often.items():
            each = self.flow.code.instructions[at]
            unit = unit_of(each)
            if unit.startswith(_KINDS) and "." in unit and unit != "copy.bulk":
                one, key = self._one(at, each, unit)
                found[one].append(key)
                counts[one] += often.expected
                lines[unit, str(one[1])].append(at)
        order = sorted(found.items(), key=lambda item: (-counts[item[0]], -len(item[1])))[:_MOST]
        return tuple(
            replace(
                AccessFacts(str(unit), round(counts[unit, line, *rest], 3), str(line), *rest),  # type: ignore[arg-type]
                keys=tuple(sorted({*keys} - {0}))[:_KEYS],
                **(
                    self._side_by_side(str(unit), lines[str(unit), str(line)])
                    or self._asked_again(str(unit), lines[str(unit), str(line)])
                ),
                **self._of_block(str(unit), lines[str(unit), str(line)]),
                use=self._uses.of(lines[str(unit), str(line)]),
            )
            for (unit, line, *rest), keys in order
        )

    def _side_by_side(self, unit: str, ats: list[int]) -> dict[str, Any]:
        """Return what the requests of one line ask for together, where all addresses are known.

        With it go requests of other lines, and ranges, that are beside in each thread: the next
        member of a structure, the other half of a number.
        """
        if ".global." not in unit:
            return {}
        threads = self._looked_at(ats[0])
        own = self._known(ats, threads)
        if len(own) < len(ats):
            return {}
        every = self._alike[unit, self.flow.loop_of(ats[0])]
        others = [at for at in every if at not in ats] if len(every) <= _MOST_BESIDE else []
        beside = [
            one
            for one in self._known(others, threads)
            if any(_are_beside(mine, one) for mine in own)
        ]
        together, align = _together([*own, *beside], int(unit.rsplit(".", 1)[1]))
        return {"together": together, "align": align}

    def _asked_again(self, unit: str, ats: list[int]) -> dict[str, Any]:
        """Return what recorded requests of one line ask for that its block had not asked for."""
        some = [self.recorded[at] for at in ats if at in self.recorded]
        made = sum(one.requests for one in some)
        if ".global." not in unit or not made:
            return {}
        new = sum((one.cost or 0.0) * one.requests / max(one.reuse or 1.0, 1.0) for one in some)
        return {"together": round(new / made, 2)}

    @cached_property
    def _alike(self) -> dict[tuple[str, Loop | None], list[int]]:
        """The accesses of the kernel by their unit and the innermost loop around."""
        found: dict[tuple[str, Loop | None], list[int]] = defaultdict(list)
        for at, each in enumerate(self.flow.code.instructions):
            if at not in self.ours and ".global." in (unit := unit_of(each)):
                found[unit, self.flow.loop_of(at)].append(at)
        return found

    def _known(self, ats: list[int], threads: Numbers) -> list[tuple[Numbers, NDArray[np.bool_]]]:
        """Return the addresses that some threads' requests are at, if known, and who takes part."""
        known = ((at, self.values.address(at).bits) for at in ats)
        return [
            (bits[threads], self.values.active(at)[threads])
            for at, bits in known
            if bits is not None
        ]

    def _looked_at(self, at: int) -> Numbers:
        """Return the threads whose requests are looked at one by one: of the first blocks with any.

        The first blocks of a grid may lie in the margin of the data, where all is masked off.
        """
        each = self.shape.warps * LANES
        comes = np.asarray(self.values.active(at).reshape(-1, each).any(axis=1))
        late = comes.any() and not comes[:_SOME_BLOCKS].any()
        blocks = np.flatnonzero(comes) if late else np.arange(len(comes))
        return (blocks[:_SOME_BLOCKS, np.newaxis] * each + np.arange(each)).ravel()

    @cached_property
    def whole(self) -> LaneValues:
        """The values of its registers in all warps of some blocks."""
        warps = max(-(-math.prod(self.shape.block) // LANES), 1)
        if warps <= self.shape.warps:
            return self.values
        shape = replace(self.shape, warps=warps, blocks=_SOME_BLOCKS, spread=_SPREAD, rows=0)
        return LaneValues(self.flow, LaunchValues(shape, self.parameters, self.first_parameter))

    @cached_property
    def _uses(self) -> Uses:
        return Uses(self.flow, self.ours)

    def _of_block(self, unit: str, ats: list[int]) -> dict[str, Any]:
        """Return how many of a block's threads make a line's requests, and their own addresses."""
        if ".global." not in unit:
            return {}
        each = self.whole.launch.shape.warps * LANES
        active, addresses, known = [], [], True
        for at in ats:
            bits, mask = self.whole.address(at).bits, self._executes(at)
            if bits is None:
                return {}
            known &= mask is not None
            mask = self.whole.active(at) if mask is None else mask  # at most
            if unit.startswith("copy") and (last := self.whole.operand(at)).bits is not None:
                mask = mask & (last.bits != 0) if self._is_conditional(at) else mask
            active.append(mask.reshape(-1, each))
            addresses.append(bits.reshape(-1, each))
        on, bits = np.concatenate(active, axis=1), np.concatenate(addresses, axis=1)
        runs = on.any(axis=1)  # blocks without records run another copy of the code
        if not runs.any():
            return {}
        on, bits = on[runs], bits[runs]
        return {
            "threads": round(float(on.mean()), _DIGITS) if known else None,
            "own": round(float(np.mean(_distinct(bits, on))) / on.shape[1], _DIGITS),
        }

    def _executes(self, at: int) -> NDArray[np.bool_] | None:
        """Return the threads of whole blocks that execute an access; None where not known.

        Of those that a warp elects a lane for: one of each warp that may come there, at most.
        """
        mask = self.whole.executes(at)
        if mask is None and is_elected(self.flow, at):
            by_warp = self.whole.active(at).reshape(-1, LANES)
            mask = (by_warp & (np.cumsum(by_warp, axis=1) == 1)).ravel()
        return mask

    def _is_conditional(self, at: int) -> bool:
        """Whether the last operand of a copy is a predicate that it fills zeros by."""
        return self.flow.code.instructions[at].operands[-1].lstrip("!")[:1] == "P"

    @cached_property
    def _stored(self) -> list[tuple[int, Numbers]]:
        """The stores to global memory, with the sectors that the first block's warps store to."""
        found = []
        for at, each in enumerate(self.flow.code.instructions):
            if at not in self.ours and each.op == "STG" and len(mine := self.sectors(at)):
                found.append((at, mine))
        return found

    @cached_property
    def _all_stored(self) -> Numbers:
        """The sectors of all of these: most loads have none of them, and need no further look."""
        return np.unique(np.concatenate([np.empty(0, np.int64), *(own for _, own in self._stored)]))

    def sectors(self, at: int) -> Numbers:
        """Return the sectors that a block's warps access; none where they are not known."""
        bits = self.values.address(at).bits
        if bits is None:
            return np.empty(0, np.int64)
        active = self.values.active(at).reshape(-1, self.shape.warps * LANES)
        first = int(active.any(axis=1).argmax())  # others run another copy of the code
        return np.unique(bits.reshape(active.shape)[first][active[first]] // _SECTOR)

    def _reads_back(self, at: int, loop: Loop | None, *, moves: bool) -> bool:
        """Whether a load follows a store of its own block to the same addresses."""
        mine = self.sectors(at)
        if not len(mine) or np.isin(mine, self._all_stored).mean() < _OVERLAP:
            return False
        for stored, others in self._stored:
            again = loop is not None and not moves and stored in loop.body
            comes = stored < at and self._leads_to(stored, at)
            if (comes or again) and np.isin(mine, others).mean() >= _OVERLAP:
                return True
        return False

    def _leads_to(self, before: int, at: int) -> bool:
        """Whether any way leads from one instruction to a later one: not past the kernel's end."""
        graph = self.flow.graph
        first, last = graph.block(before), graph.block(at)
        return last in reached([first], graph.after.__getitem__)

    def bulk_bytes(self, how_often: Mapping[int, Often]) -> float | None:
        """Return the bytes that bulk copies are announced with; None where that is not known."""
        total = 0.0
        for at, often in how_often.items():
            each = self.flow.code.instructions[at]
            parts = each.opcode.split(".")
            if parts[:2] == ["SYNCS", "ARRIVE"] and "TRANS64" in parts and "A1T0" not in parts:
                bits = self.values.operand(at).bits
                if bits is None or np.ptp(bits) or often.looped:
                    return None
                total += int(bits[0]) * often.expected
        return total

    def _letters(self, at: int, loop: Loop | None, depends: int, *, moves: bool) -> str:
        """Return what an address depends on, a letter each."""
        found = "".join(letter for bit, letter in _LETTERS.items() if depends & bit)
        if loop is None:
            return found
        around = (each for each in self.flow.loops if each.header != loop.header)
        stays = (at in each.body and not self.values.moves(at, each.header) for each in around)
        return found + "i" * moves + "o" * any(stays)

    def _shares(
        self, bits: NDArray[np.int64], active: NDArray[np.bool_]
    ) -> tuple[float | None, float | None]:
        """Return the shares of sectors that neighbouring blocks load, too, and that far ones do."""
        warps, blocks = self.shape.warps, self.shape.blocks
        every, last = range(len(self.shape.numbers)), blocks + self.shape.spread
        far = [0, *every[blocks:last]]
        share = _shared_by_blocks(bits, active, warps, every[:blocks])
        if share is not None and self.shape.grid[0] <= _SHORT and len(every) > last:
            across = _shared_by_blocks(bits, active, warps, [0, *every[last:]])
            share = max(share, across or 0.0)
        return share, _shared_by_blocks(bits, active, warps, far) if len(far) > 1 else None

    def _one(self, at: int, each: Instruction, unit: str) -> tuple[tuple[object, ...], int]:
        """Return what is known of an access, and a key of its addresses."""
        value, active = self.values.address(at), self.values.active(at)
        loop = self.flow.loop_of(at)
        moves = loop is not None and self.values.moves(at, loop.header)
        letters = self._letters(at, loop, value.depends, moves=moves)
        cost, least, addresses, share, reused, key = None, None, None, None, None, 0
        lanes, span = 1.0 if is_elected(self.flow, at) else _lanes(active), None
        if value.bits is not None:
            mine = self._looked_at(at)
            cost, least, addresses = _of_warps(each, unit, value.bits[mine], active[mine])
            if ".global." in unit:
                share, reused = self._shares(value.bits, active)
                key = zlib.crc32(value.bits.tobytes())
                if each.op == "LDG" and self._reads_back(at, loop, moves=moves):
                    letters += "s"
                letters += "h" * self._is_far(int(value.bits[0]))
                if active.any():
                    span = int(np.ptp(value.bits[active])) + int(unit.rsplit(".", 1)[1])
        elif ".global." in unit and self.shape.far:
            letters += "h" * any(map(self._is_far, self._bases.of(at)))
        figures = self.recorded.get(at)
        if value.bits is None and figures is not None and figures.requests:
            cost, least, lanes = figures.cost, figures.least, round(figures.active or lanes, 1)
            addresses = 1 if (figures.same_address or 0) >= _ALL_LANES else None
            letters += RECORDED + SCATTERED * (figures.stride is None)
        line = f"{each.lines[-1].file}:{each.lines[-1].number}" if each.lines else ""
        return (
            unit,
            line,
            cost,
            least,
            addresses,
            letters,
            loop is not None,
            share,
            reused,
            lanes,
            span,
        ), key

    @cached_property
    def _bases(self) -> Bases:
        return Bases(DefUse(self.flow, self.ours), self.parameters)

    def _is_far(self, address: int) -> bool:
        """Whether an address is of memory that is not the device's."""
        return any(base <= address < base + size for base, size in self.shape.far)


def _lanes(active: NDArray[np.bool_]) -> float:
    """Return how many lanes of a warp are active, in those that have any; 32 where none has."""
    counts = active.reshape(-1, LANES).sum(axis=1)
    return round(float(counts[counts > 0].mean()), 1) if counts.any() else float(LANES)


def _of_warps(
    each: Instruction, unit: str, bits: NDArray[np.int64], active: NDArray[np.bool_]
) -> tuple[float | None, float | None, int | None]:
    """Return the cost of a warp's request, its least cost, and its distinct addresses: medians."""
    size = int(unit.rsplit(".", 1)[1])
    address, on = bits.reshape(-1, LANES), active.reshape(-1, LANES)
    address, on = address[on.any(axis=1)], on[on.any(axis=1)]
    if not len(address):
        return None, None, None
    distinct = _distinct(address, on)
    kind, space = unit.split(".")[:2]
    if each.op in ("LDSM", "STSM"):  # of each matrix, eight lanes give the rows
        on = on & (np.arange(LANES) < _ROWS * (size // _WORD))
        cost, least = request_costs(space, kind, _MATRIX_ROW, address, on)
    else:
        cost, least = request_costs(space, kind, size, address, on)
    if space == "global":  # lanes with one address need it once
        least = np.maximum(-(-distinct * size // _SECTOR), 1)
    middle = np.median(np.stack([cost, least, distinct]), axis=1).tolist()
    return float(middle[0]), float(middle[1]), int(middle[2])


def _are_beside(
    one: tuple[Numbers, NDArray[np.bool_]], other: tuple[Numbers, NDArray[np.bool_]]
) -> bool:
    """Whether two requests' addresses are as far apart in each thread, by less than a sector."""
    apart = other[0] - one[0]
    return bool(not np.ptp(apart) and abs(int(apart[0])) < _SECTOR)


def _together(
    bits: Sequence[tuple[NDArray[np.int64], NDArray[np.bool_]]], size: int
) -> tuple[float, int]:
    """Return the sectors that a request adds to those of the others, and the alignment of all.

    Args:
        bits: addresses of threads, and which of them take part, of each of some requests.
        size: bytes of a lane.
    """
    counts, lowest = [], []
    for warp in range(len(bits[0][0]) // LANES):
        lanes = slice(warp * LANES, (warp + 1) * LANES)
        some = [address[lanes][on[lanes]] for address, on in bits if on[lanes].any()]
        if some:
            every = np.concatenate(some)
            ends = np.concatenate([every // _SECTOR, (every + size - 1) // _SECTOR])
            counts.append(len(np.unique(ends)) / len(some))
            lowest.append(int(every.min()))
    if not counts:
        return 0.0, _WIDEST
    joint = int(np.bitwise_or.reduce(np.array(lowest, np.int64))) | _WIDEST
    return round(float(np.median(counts)), 2), joint & -joint


def _shared_by_blocks(
    bits: NDArray[np.int64], active: NDArray[np.bool_], warps: int, blocks: Sequence[int]
) -> float | None:
    """Return the share of sectors that an earlier one of some blocks has, too."""
    on = active.reshape(-1, warps * LANES)[[*blocks]]
    sectors = bits.reshape(-1, warps * LANES)[[*blocks]] // _SECTOR
    total = int(_distinct(sectors, on).sum())
    return round(1 - len(np.unique(sectors[on])) / total, 3) if total else None


def _distinct(numbers: Numbers, on: NDArray[np.bool_]) -> Numbers:
    """Return how many different numbers each row has, of those where a mask is set."""
    ordered = np.sort(np.where(on, numbers, _NONE), axis=1)
    new = ordered != _NONE
    new[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
    return np.asarray(new.sum(axis=1))
