"""What a language's backend gives ``ikp run`` to launch a program's kernels with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ikp.profiling.profile import profile
    from ikp.unedited.plan import Plan


class Watched(Protocol):
    """Launches the kernels of a program with marks, or plain, and counts both."""

    session: Callable[[], profile | None]  # the session that records now
    plan: Plan
    recorded: Counter[str]  # launches, by kernel
    plain: Counter[tuple[str, str]]  # launches that are not recorded, by kernel and reason
    aside: set[str]  # libraries whose kernels run plain, because nobody has named them

    def stepping_in(self) -> AbstractContextManager[None]:
        """Have every launch in this process go through this, until that is left.

        The language need not be imported, and is not by this: the program may want to set its
        environment first.
        """
