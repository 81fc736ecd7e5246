"""Launches at the driver that repeat recorded ones, and buffers that are taken ahead for them.

A launch that repeats a recorded one finds nothing out (``KnownLaunches``). So does the next one,
unless something has changed: with ``Stocks``, the library launches it without asking Python. What
may change is asked by the library at each launch, or else revokes all stocks.
"""

from __future__ import annotations

import ctypes
import threading
import time
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Final

from ikp.backends import patched
from ikp.backends.driver._hook import Hook, InterposedLaunch, StockedLaunches
from ikp.backends.driver._seen_kernels import Chooser
from ikp.backends.repeats import KnownLaunch, Repeat
from ikp.driver import cuda, cuda_functions
from ikp.session.current import Session
from ikp.session.known_launch import LASTS_S, revokers
from ikp.session.stock import StockPace

_MOST: Final = 4096
"""The most launches that are kept."""
_KEPT: Final = 1024
"""The most stocks that are kept."""


@dataclass(slots=True)
class KnownLaunches:
    """The recorded launches of this process, by what launches that repeat each other share."""

    _known: dict[tuple[int, ...], KnownLaunch] = field(default_factory=dict)

    def find(self, launch: InterposedLaunch, session: Session) -> KnownLaunch | None:
        """Return the launch that this one repeats in a session; None where there is none."""
        known = self._known.get(shared(launch))
        return known if known is not None and known.session() is session else None

    def keep(
        self, launch: InterposedLaunch, meant: patched.RecordedLaunch, plain: int, repeat: Repeat
    ) -> KnownLaunch | None:
        """Have later launches repeat one, if there is nothing more to find out; return it then.

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
            return None
        if len(self._known) >= _MOST:
            self._known.clear()
        known = KnownLaunch(meant.session, meant.label, plain, argument, repeat)
        self._known[shared(launch)] = known
        return known


def shared(launch: InterposedLaunch) -> tuple[int, ...]:
    """Return what a launch shares with those that repeat it; thread and context are last."""
    return (
        *(launch.id, launch.stream or 0, *launch.grid, *launch.block),
        *(launch.cooperative, launch.extensible, launch.overlaps),
        *(threading.get_ident(), cuda.context_number()),
    )


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
