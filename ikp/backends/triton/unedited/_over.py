"""Kernels that have no launch left to record: their launches are counted, and left to Triton.

With ``Shortcuts``, a function counts its launches itself, past the hook on its class. A launch
costs 4 us less so, which is a quarter of what Triton takes. A function has its shortcut until
Triton compiles it anew: that is another specialisation, of which launches may be recorded.
"""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from collections.abc import Callable
from types import CodeType
from typing import Any, Final, cast

from ikp.backends.patched import passing
from ikp.backends.triton.unedited import _foreign as foreign
from ikp.backends.triton.unedited._foreign import COMPILES, TRITON, JittedFunction
from ikp.backends.triton.unedited._launching import Launcher
from ikp.backends.triton.unedited._special import Values, values
from ikp.unedited.plan import NOT_NAMED

_Counted = dict[Values | None, tuple[str, str]]


class Over:
    """The callers that launch such kernels, and the keys that count their launches."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher, self._epoch = launcher, launcher.epoch
        # By id, since Triton hashes a kernel's source; then by specialisation, None for all.
        self._counted: dict[int, _Counted] = {}

    def counts(
        self, caller: object, args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None
    ) -> bool:
        """Count a launch by ``caller``; return whether no later one alike is recorded.

        Args:
            caller: the jitted function, where arguments are given, or an autotuner of one alone.
            args: of the launch.
            kwargs: of the launch.
        """
        if self._epoch != self._launcher.epoch:
            self._epoch = self._launcher.epoch
            self._counted.clear()
        known = self._counted.get(id(caller))
        if known is None:
            return False
        counted = known.get(None)
        if counted is None and kwargs is not None:
            counted = known.get(values(cast("JittedFunction", caller), args, kwargs))
        if counted is None:
            return False
        self._launcher.plain[counted] += 1
        return True

    def only(self, caller: object) -> tuple[str, str] | None:
        """Return the key of all launches by ``caller`` so far; None where there are several."""
        known = self._counted.get(id(caller), {})
        return next(iter(known.values())) if len(known) == 1 else None

    def look(
        self,
        caller: object,
        kernel: JittedFunction,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> None:
        """Note a caller and a kernel's specialisation of which no later launch is recorded."""
        if self._launcher.goes_on:
            return
        counted = self._launcher.counted(self._launcher.special(kernel, args, kwargs))
        if counted is None:
            return
        if id(caller) not in self._counted:
            weakref.finalize(caller, self._counted.pop, id(caller), None).atexit = False
        every = kwargs is None or counted[1] == NOT_NAMED
        key = None if every else values(kernel, args, kwargs or {})
        self._counted.setdefault(id(caller), {})[key] = counted


_PASSED: Final = 32
"""Launches in a row that are not recorded, from which on a function takes the shortcut."""
_FRAMES: Final = 6
"""Frames between Triton's compiler and the shortcut that has called Triton's own ``run``."""


class _Compiling(Exception):  # noqa: N818 - no error: it ends a launch that is made again
    """Triton is about to compile: a launch of another specialisation."""


class Shortcuts:
    """The shortcuts of a launcher: attributes of the functions, in front of the class's hook."""

    def __init__(self, launcher: Launcher, over: Over, original: Callable[..., object]) -> None:
        self._launcher, self._over, self._original = launcher, over, original
        self._passed: Counter[int] = Counter()
        self._taken: dict[int, Any] = {}

    def passed(self, kernel: Any) -> None:
        """Note a launch of which no later one alike is recorded; the last of many takes effect."""
        self._passed[id(kernel)] += 1
        if self._passed[id(kernel)] != _PASSED or not TRITON.has(COMPILES):
            return
        counted = self._over.only(kernel)
        if counted is None or not foreign.is_jitted(kernel):
            return
        # Another specialisation that is compiled already may still have launches to record.
        if counted[1] == NOT_NAMED or self._launcher.specials.count(kernel) == 1:
            self._take(kernel, counted)

    def _take(self, kernel: Any, counted: tuple[str, str]) -> None:
        original, plain = self._original, self._launcher.plain

        def run(*args: object, **kwargs: object) -> object:
            if not kwargs.get("warmup"):
                plain[counted] += 1
            try:
                return original(kernel, *args, **kwargs)
            except _Compiling:
                plain[counted] -= not kwargs.get("warmup")
            return kernel.run(*args, **kwargs)

        def compiling() -> None:
            self.end(kernel)
            if _called_by(run.__code__):
                raise _Compiling

        foreign.set_own_launch(kernel, run, compiling)
        self._taken[id(kernel)] = kernel
        passing[kernel.__name__] = lambda handle: handle in foreign.handles(kernel)

    def end(self, kernel: Any) -> None:
        """End a function's shortcut, if it has one."""
        if self._taken.pop(id(kernel), None) is None:
            return
        self._passed.pop(id(kernel), None)
        foreign.take_own_launch(kernel)
        passing.pop(kernel.__name__, None)

    def end_all(self) -> None:
        """End all shortcuts, as a session ends."""
        for kernel in list(self._taken.values()):
            self.end(kernel)


def _called_by(code: CodeType) -> bool:
    """Whether one of the calling frames runs ``code``."""
    frame = sys._getframe(1)
    for _ in range(_FRAMES):
        if frame.f_back is None:
            return False
        frame = frame.f_back
        if frame.f_code is code:
            return True
    return False
