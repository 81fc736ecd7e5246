"""What code that is put into a kernel may use: what nobody needs there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ikp.machine.control import SCOREBOARDS
from ikp.machine.flight import Flight
from ikp.machine.liveness import Liveness
from ikp.machine.resources import UP, UR, P, R


@dataclass(frozen=True, slots=True)
class Spare:
    """What is free at a place, or at several. Registers go by their numbers."""

    registers: tuple[int, ...]
    pairs: tuple[int, ...]  # the first of two that are free; a multiple of 2
    quads: tuple[int, ...]  # the first of four; a multiple of 4
    predicates: tuple[int, ...]
    uniform_registers: tuple[int, ...]
    uniform_predicates: tuple[int, ...]
    scoreboards: tuple[int, ...]  # that nobody holds there, and no wait counts


@dataclass(frozen=True)
class Room:
    """The room in one kernel. Instructions go by their index; a place is right before one."""

    liveness: Liveness

    @cached_property
    def flight(self) -> Flight:
        """What is still under way."""
        return Flight(self.liveness)

    @cached_property
    def free(self) -> NDArray[np.bool_]:
        """Whether a register is dead and nothing is under way to or from it: rows of
        instructions, a column for each bit of ``resources``.
        """
        return ~(self.liveness.table | self.flight.table)

    @cached_property
    def unused_scoreboards(self) -> tuple[int, ...]:
        """Those that the kernel never takes nor waits for."""
        return tuple(sorted(set(range(SCOREBOARDS)) - self.flight.used))

    @cached_property
    def highest(self) -> int:
        """The number of the highest register that the kernel names, -1 for none."""
        named = [at for at in range(R.count) if self.liveness.used >> at & 1]
        return max(named, default=-1)

    def at(self, place: int, registers: int | None = None) -> Spare:
        """Return what is free before an instruction; see ``through``."""
        return self.through([place], registers)

    def through(self, places: Iterable[int], registers: int | None = None) -> Spare:
        """Return what is free before each of some instructions.

        Args:
            places: their indices.
            registers: how many registers the kernel may use; by default, up to the highest one
                that it names.
        """
        rows = list(places)
        free: NDArray[np.bool_] = np.all(self.free[rows], axis=0, keepdims=True)[0]
        limit = self.highest + 1 if registers is None else registers
        own = free[R.columns][:limit]
        taken: NDArray[np.bool_] = np.any(self.flight.taken[rows], axis=0, keepdims=True)[0]
        return Spare(
            _numbers(own),
            _runs(own, 2),
            _runs(own, 4),
            _numbers(free[P.columns]),
            _numbers(free[UR.columns][: self._uniform]),
            _numbers(free[UP.columns]),
            tuple(b for b in range(SCOREBOARDS) if not taken[b] and b not in self.flight.counted),
        )

    @property
    def _uniform(self) -> int:
        """How many uniform registers there are: from sm_100 on, more than are counted on here."""
        return 63


def _numbers(free: NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(np.flatnonzero(free).tolist())


def _runs(free: NDArray[np.bool_], length: int) -> tuple[int, ...]:
    whole = free[: len(free) // length * length].reshape(-1, length)
    return tuple((np.flatnonzero(whole.all(axis=1)) * length).tolist())
