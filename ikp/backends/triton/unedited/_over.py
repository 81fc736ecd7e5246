"""``Over``: kernels that have no launch left to record; later launches are only counted."""

from __future__ import annotations

import weakref
from typing import cast

from ikp.backends.triton.unedited._foreign import Kernel
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
            counted = known.get(values(cast("Kernel", caller), args, kwargs))
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
        kernel: Kernel,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> None:
        """Note a caller and a kernel's specialisation of which no later launch is recorded."""
        counted = self._launcher.counted(self._launcher.special(kernel, args, kwargs))
        if counted is None:
            return
        if id(caller) not in self._counted:
            weakref.finalize(caller, self._counted.pop, id(caller), None).atexit = False
        every = kwargs is None or counted[1] == NOT_NAMED
        key = None if every else values(kernel, args, kwargs or {})
        self._counted.setdefault(id(caller), {})[key] = counted
