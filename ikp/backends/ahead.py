"""``PatchesAhead``: kernels that run plain between windows, patched before the next window opens.

A patch takes some tenths of a second of Python, for which a server's threads would wait. So
a process of its own makes it while nothing is recorded, and leaves it in the cache of patches
(``ikp.probes.kept_patch``). A window that opens before it is done patches as without it.
"""

from __future__ import annotations

import os
import pickle
import sys
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from ikp.backends.patch_input import PatchInput, changes_code
from ikp.children import behind, give_way, leave_behind
from ikp.errors import IkpError

QUIET_S: Final = 0.5
"""Kernels are patched once so long none came that ran plain for the first time."""
MOST: Final = 256
"""Kernels of a process that are patched ahead. Each takes some tenths of a second."""
_LARGE: Final = 64 << 20
"""Bytes of cubins that one process is sent, at most: it is sent what is left next."""
_NICE: Final = 10
_LIMIT_S: Final = 600
"""Seconds of processor time that the process may take."""
_CODE: Final = behind("ikp.backends.ahead")


@dataclass(slots=True)
class PatchesAhead:
    """The kernels of this process that are to be patched ahead."""

    _noted: list[Callable[[], PatchInput | None]] = field(default_factory=list)
    _known: set[Hashable] = field(default_factory=set)  # what was noted so far
    _latest: float = 0.0

    def note(self, key: Hashable, kernel: Callable[[], PatchInput | None]) -> None:
        """Note a kernel that was launched plain; the launching thread does no more.

        Args:
            key: identifies the kernel, and what of the launch its patch depends on.
            kernel: returns it, for any thread; None where a later launch has no such patch.
        """
        if key not in self._known and len(self._known) < MOST:
            self._known.add(key)
            self._noted.append(kernel)
            self._latest = time.monotonic()

    @property
    def is_due(self) -> bool:
        """Whether kernels were noted, and no more came since for a while."""
        return bool(self._noted) and time.monotonic() > self._latest + QUIET_S

    def take(self) -> list[PatchInput]:
        """Return kernels that were noted, once each; called by a thread that launches none.

        It imports what that needs. None is to be patched where the user wants no machine code to be
        changed.
        """
        found, size = list[PatchInput](), 0
        if not changes_code():
            self._noted.clear()
            return found
        from ikp.probes import kept_patch

        kept_patch.prepare()  # the window's first launch is not to wait for that
        while self._noted and size < _LARGE:
            kernel = self._noted.pop(0)
            with suppress(IkpError, AttributeError, TypeError, ValueError):  # unloaded, or unknown
                if (made := kernel()) is not None:
                    found.append(made)
                    size += len(made.code)
        return found

    @staticmethod
    def send(kernels: list[PatchInput], paths: list[str]) -> None:
        """Start a process that patches kernels, and send it these.

        It imports modules from the paths alone: in a program's folder, those of an installed
        package's name would be the program's.

        They lie in memory. A pipe would have this thread wait for the process while a window is to
        open. Where that has died, a program that does not ignore SIGPIPE would end.

        Raises:
            OSError: it can't be started.
        """
        with os.fdopen(os.memfd_create("ikp"), "w+b") as sent:
            pickle.dump(paths, sent)
            pickle.dump(kernels, sent)
            sent.seek(0)
            command = [sys.executable, "-I", "-S", "-c", _CODE]
            leave_behind(command, {0: sent.fileno()}, {**os.environ, "IKP_FOLLOW": "0"})


def main() -> None:
    """Patch kernels into the cache: what the process is for."""
    give_way(_NICE, _LIMIT_S)
    for each in pickle.load(sys.stdin.buffer):  # noqa: S301 - of the process that started this one
        with suppress(IkpError):
            each.patched()
