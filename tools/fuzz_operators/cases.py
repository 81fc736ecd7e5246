"""What is run: a case is one call of an operator, with inputs made anew for each run of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Case:
    """One call that can be repeated.

    ``make`` returns fresh, always equal inputs, and seeds random numbers; it is never recorded.
    ``run`` computes with them and returns arrays; it is what is recorded.
    """

    name: str
    make: Callable[[], Any]
    run: Callable[[Any], Sequence[Any]]
    varies: str = ""  # why results may differ from run to run, where that is known before


class Suite(Protocol):
    """A list of operators, each of which has cases."""

    def prepare(self) -> None:
        """Import what is slow to import, before processes are forked; CUDA stays untouched."""

    def names(self) -> list[str]:
        """Return the operators, those with the most different kernels first."""

    def cases(self, name: str) -> Iterator[Case]:
        """Yield an operator's cases, in a process that may use the GPU."""

    def wait(self) -> None:
        """Wait for the GPU.

        Raises:
            Exception: a kernel has failed.
        """
