"""``KernelLaunches``: a kernel's earlier launches in a session, whose preparation later launches
of the same grid and stream reuse, to be recorded faster.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ikp.backends import repeats
from ikp.backends.patched import RecordedLaunch, is_hooked
from ikp.backends.repeats import Ahead, LeftLaunch, Repeat
from ikp.backends.timed import timed
from ikp.backends.triton.unedited import _foreign as foreign
from ikp.driver import cuda, cuda_functions, cuda_memory
from ikp.probing import Untyped
from ikp.session.known_launch import revocations
from ikp.session.stock import StockPace

if TYPE_CHECKING:
    from collections import Counter

    from ikp.backends.loaded import Module
    from ikp.backends.triton.unedited._foreign import JittedFunction
    from ikp.core.segment import Selection
    from ikp.session.current import Session
    from ikp.unedited.plan import Plan

__tracebackhide__ = True  # pytest shows a launch that fails as it does without ikp
_MOST_KNOWN: Final = 1024
"""The most launches of one kernel that are kept to be repeated."""


@dataclass(slots=True)
class KernelLaunches:
    """What launches of a kernel in one session need, and those that later ones repeat."""

    session: weakref.ref[Session]
    label: str
    kernel: JittedFunction
    make: Callable[[], RecordedLaunch]  # a launch that repeats none
    recorded: Counter[str]  # launches by label
    known: dict[tuple[int, ...], KnownLaunch] = field(default_factory=dict)
    left: dict[tuple[int, ...], KnownLaunch] = field(default_factory=dict)
    """Those that may be left to the driver's hook, by function, stream, thread and grid. Which
    context there is, the hook asks."""


@dataclass(slots=True)
class NextLaunch:
    """This thread's next launch of a kernel, which is to be recorded."""

    launches: KernelLaunches
    reached: bool = False  # the launch was made
    recorded: RecordedLaunch | None = None  # where it repeats none
    key: tuple[int, ...] = ()  # identifies the launches that it repeats
    reaches: ClassVar[None] = None  # it was decided on before it reached Triton's launcher

    def made(self) -> RecordedLaunch:
        """Return the launch to record, which has reached a launcher."""
        self.reached = True
        self.recorded = self.launches.make()
        return self.recorded

    def known(
        self, compiled: Untyped, plain: object, stream: int, function: int, grid: tuple[int, ...]
    ) -> KnownLaunch | None:
        """Return the launch that this one repeats; None where there is none."""
        self.reached = True
        self.key = (
            *(function, stream, threading.get_ident(), cuda.context_number()),
            *grid,
        )
        known = self.launches.known.get(self.key)
        return known if known is not None and known.is_of(compiled, plain) else None

    def keep(self, known: KnownLaunch) -> None:
        """Have later launches repeat this one."""
        if self.key and known.repeat.lasts:
            if len(self.launches.known) >= _MOST_KNOWN:
                self.launches.known.clear()
                self.launches.left.clear()
            self.launches.known[self.key] = known
            function, stream, thread, context, *grid = self.key
            plan = self.recorded.plan if self.recorded is not None else None
            if plan is not None and known.may_be_left(self.launches, function, context, plan):
                self.launches.left[function, stream, thread, *grid] = known


class KnownLaunch:
    """A launch that was recorded, by Triton's launcher.

    Args:
        compiled: Triton's kernel.
        plain: its launcher.
        module: the patched kernel.
        prof: the launch's buffer.
        shape: blocks, warps of a block, and which of them record.
    """

    __slots__ = ("_ahead", "_cache", "_compiled", "_pace", "_plain", "_untimed", "left", "repeat")

    def __init__(
        self,
        compiled: Untyped,
        plain: Callable[..., object],
        module: Module,
        prof: object,
        shape: tuple[tuple[int, int, int], int, Selection],
    ) -> None:
        self._compiled, self._plain = weakref.ref(compiled), plain
        self._cache = foreign.cache_of(compiled)
        self.repeat = Repeat(module, prof, shape, cuda.device())
        self._ahead: Ahead | None = None
        self._pace = StockPace()
        self._untimed = 0  # the report up to which enough launches are timed
        self.left: LeftLaunch | None = None
        """Launches like it, as the driver's hook is to make them; None where it can't."""

    def may_be_left(
        self, launches: KernelLaunches, function: int, context: int, plan: Plan
    ) -> bool:
        """Return whether launches like it may be left to the driver's hook.

        Args:
            launches: of the kernel.
            function: the plain one.
            context: the number of the driver's context.
            plan: by which it was recorded.
        """
        argument = self.repeat.module.patch.argument
        if argument is None or not is_hooked():
            return False
        known = repeats.KnownLaunch(
            *(launches.session, launches.label, function, argument, self.repeat), replaces=2
        )
        self.left = LeftLaunch(launches.kernel, known, context, plan, launches.make)
        timed.repeats(function, self.repeat.shape[0], known, cuda.seen_number(function))
        return True

    def is_of(self, compiled: object, plain: object) -> bool:
        """Return whether it was a launch of this kernel, by this launcher."""
        return self._compiled() is compiled and self._plain is plain

    def launch(self, launches: KernelLaunches, *args: Any) -> object:
        """Launch the kernel with records once more; plain, where the session records no more.

        Args:
            launches: of the kernel.
            args: of Triton's launcher: grid, stream, function, ...

        Raises:
            SlowError: nothing was launched: it is to be recorded as the first one was.
        """
        session, function = launches.session(), args[4]
        facts = None if session is None else session.facts
        timing = self._untimed != timed.reports and timed.recorded(
            function, self.repeat.shape[0], launches.label, facts
        )
        if not timing and facts is not None:
            self._untimed = timed.reports
        made, records = None, False
        try:
            made, records = self._launch(launches, *args)
        finally:
            if timing:
                timed.ended(failed=not records)
        return made if records else self._plain(*args)

    def _launch(self, launches: KernelLaunches, *args: Any) -> tuple[object, bool]:
        """Launch the kernel with records; return what its launcher did, and whether it records.

        Raises:
            SlowError: nothing was launched.
        """
        x, y, z, stream, function, *rest = args
        module = self.repeat.module
        cuda_functions.like(module.function, function, cache=self._cache)
        ahead = self._ahead
        number = None if ahead is None else ahead.take()
        if ahead is not None and number is not None:
            words = (ahead.stock.addresses[number], *ahead.behind)
            launched = -1  # refused
            try:
                made = self._launched(module, words, x, y, z, stream, *rest)
                launched = time.monotonic_ns()
            finally:
                ahead.stock.times[number] = launched
            launches.recorded[launches.label] += 1
            return made, True
        self._renew(stream)
        taken = self.repeat.take(stream)
        if taken is None:
            return None, False
        launches.recorded[launches.label] += 1
        return self._launched(module, taken[1], x, y, z, stream, *rest), True

    def _renew(self, stream: int) -> None:
        """Take buffers ahead, if launches like this come soon, and the driver's hook does not."""
        if self.left is not None:
            return
        revoked, ahead = revocations[0], self._ahead
        most = self._pace.wanted(time.monotonic(), 0 if ahead is None else ahead.used)
        taken = self.repeat.ahead(stream, most) if most else None
        self._ahead = None if taken is None else Ahead(*taken, revoked)

    def _launched(
        self,
        module: Module,
        words: tuple[int, ...],
        x: int,
        y: int,
        z: int,
        stream: int,
        *rest: Any,
    ) -> object:
        if module.patch.argument is None:
            cuda_memory.write(module.cell, words, stream)
        return passing(module, self._plain, words)(x, y, z, stream, module.function, *rest)


def passing(
    module: Module, plain: Callable[..., object], words: tuple[int, ...]
) -> Callable[..., object]:
    """Return the launcher of a patched kernel, which passes the launch parameters.

    Args:
        module: the patched kernel.
        plain: Triton's launcher of the plain one.
        words: the launch parameters, in words of 64 bits.
    """
    if module.patch.argument is None:
        return plain
    if module.launcher is None or module.launcher.plain is not plain:
        module.launcher = foreign.Passing(plain)
    module.launcher.words = words
    launcher: Callable[..., object] = module.launcher
    return launcher
