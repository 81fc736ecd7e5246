"""``Stocks``: buffers taken ahead, with which the library launches without asking Python.

A launch that repeats a recorded one finds nothing out. So does the next one, unless something has
changed. What may change is asked by the library at each launch, or else revokes all stocks.
"""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Final

from ikp.backends import patched
from ikp.backends.driver._hook import Hook, InterposedLaunch, StockedLaunches
from ikp.backends.driver._known_launches import shared
from ikp.backends.driver._seen_kernels import Chooser
from ikp.backends.repeats import KnownLaunch
from ikp.driver import cuda_functions
from ikp.session.current import Session
from ikp.session.known_launch import LASTS_S, revokers
from ikp.session.stock import StockPace

_KEPT: Final = 1024
"""The most stocks that are kept."""


@cache
def look_after(hook: Hook) -> None:
    """Revoke stocks as sessions and the environment change; say what Python decides alone."""
    ctypes.pythonapi.PySys_AddAuditHook(hook.audited, None)
    revokers.append(hook.revoke)
    patched.set_aside(hook.aside)


@dataclass(slots=True)
class _Stocked:
    """Buffers of launches alike: None where these are too rare."""

    pace: StockPace = field(default_factory=StockPace)
    made: StockedLaunches | None = None


@dataclass(slots=True)
class Stocks:
    """The stocks of this process, by what launches that repeat each other share."""

    hook: Hook
    chooser: Chooser
    _held: dict[tuple[int, ...], _Stocked] = field(default_factory=dict)

    def renew(
        self, launch: InterposedLaunch, kernel: Any, session: Session, known: KnownLaunch
    ) -> None:
        """Take buffers for launches like one that Python was asked about, if they come soon.

        Args:
            launch: it repeats ``known``.
            kernel: the launched kernel, as its launcher counts it.
            session: records it.
            known: the recorded launch.
        """
        key, now = shared(launch), time.monotonic()
        revoked, changes = self.hook.revoked, self.hook.changes  # before anything is looked at
        held = self._held.pop(key, None) or _Stocked()
        used = 0 if held.made is None else self.hook.end_stock(held.made)
        most, held.made = held.pace.wanted(now, used), None
        made = None
        if most and not launch.overlaps and self.chooser.lasts(kernel, session):
            made = self._made(launch, kernel, known, most, key[-1])
        if made is not None:
            made.revoked, made.changes = revoked, changes
            if self.hook.stock(made):
                held.made = made
        if len(self._held) >= _KEPT:
            self.end_all()
        self._held[key] = held

    def end_all(self) -> None:
        """Have no launch take a buffer any more: in a child that was forked, say."""
        for held in self._held.values():
            if held.made is not None:
                self.hook.end_stock(held.made)
        self._held.clear()

    def _made(
        self,
        launch: InterposedLaunch,
        kernel: Any,
        known: KnownLaunch,
        most: int,
        context: int,
    ) -> StockedLaunches | None:
        stream, module, argument = launch.stream or 0, known.repeat.module, known.argument
        cuda_functions.like(module.function, known.plain)
        taken = known.repeat.ahead(stream, most)
        if taken is None:
            return None
        stock, behind = taken
        made = StockedLaunches(
            function=launch.function,
            id=launch.id,
            context=context,
            thread=shared(launch)[-2],
            stream=stream,
            grid=launch.grid,
            block=launch.block,
            cooperative=launch.cooperative,
            extensible=launch.extensible,
            ordinal=argument.ordinal,
            offset=argument.offset,
            bytes=argument.size,
            replaces=known.replaces,
            instead=module.function,
            until=time.monotonic_ns() + int(LASTS_S * 1e9),
            count=stock.count,
            words=(0, *behind),
            addresses=stock.addresses,
            times=stock.times,
        )
        stock.stop = partial(self.hook.end_stock, made)
        stock.launched = partial(self.chooser.count_more, kernel)
        return made
