"""Labels of a program's kernels: ``Labels`` gives each kernel one that no other kernel has."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from itertools import chain, count


class Labels:
    """Gives each kernel a label, the first that is free, and the same one ever after."""

    def __init__(self) -> None:
        self._given: dict[str, str] = {}  # by kernel
        self._taken: set[str] = set()
        self._lock = threading.Lock()

    def of(self, kernel: str, labels: Iterable[str]) -> str:
        """Return a kernel's label.

        Args:
            kernel: its key, which no other kernel has.
            labels: candidates, best first; where all are taken, it is the first of them with a
                number.
        """
        known = self._given.get(kernel)
        if known is not None:
            return known
        with self._lock:
            if kernel not in self._given:
                wanted = list(labels)
                numbered = (f"{wanted[0]}#{number}" for number in count(2))
                free = (each for each in chain(wanted, numbered) if each not in self._taken)
                self._given[kernel] = next(free)
                self._taken.add(self._given[kernel])
            return self._given[kernel]
