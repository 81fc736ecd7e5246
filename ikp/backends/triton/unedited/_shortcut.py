"""``Shortcuts``: functions of which no launch is recorded any more are launched by Triton alone.

A launch costs 4 us less so, which is a quarter of what Triton takes. A function has its shortcut
until Triton compiles it anew: that is another specialisation, of which launches may be recorded.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from types import CodeType
from typing import Any, Final

from ikp.backends.patched import passing
from ikp.backends.triton.unedited import _foreign as foreign
from ikp.backends.triton.unedited._foreign import COMPILES, TRITON
from ikp.backends.triton.unedited._launching import Launcher
from ikp.backends.triton.unedited._over import Over
from ikp.unedited.plan import NOT_NAMED

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
