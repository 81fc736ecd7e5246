"""Kernels of which no later launch is recorded: each passes with one look, and is counted."""

from __future__ import annotations

import weakref

from ikp.backends.triton.unedited._foreign import Kernel
from ikp.backends.triton.unedited._launching import Launcher


class Over:
    """What launches such kernels, and by what their launches are counted."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._counted: dict[int, tuple[str, str]] = {}  # by id: Triton hashes a kernel's source

    def counts(self, caller: object) -> bool:
        """Count a launch by ``caller``; return whether no later one of its is recorded."""
        counted = self._counted.get(id(caller))
        if counted is None:
            return False
        self._launcher.plain[counted] += 1
        return True

    def look(self, caller: object, kernel: Kernel) -> None:
        """See whether no later launch of a kernel by ``caller`` is recorded."""
        counted = self._launcher.counted(kernel)
        if counted is not None:
            self._counted[id(caller)] = counted
            weakref.finalize(caller, self._counted.pop, id(caller), None).atexit = False
