"""``Watched``: the interface of each backend's launcher, which makes a program's own launches under
``ikp run``, recorded or plain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ikp.profiling.profile import profile
    from ikp.unedited.plan import Plan


class Counts(Protocol):
    """The launches that a launcher has counted."""

    recorded: Counter[str]  # launches, by kernel
    plain: Counter[tuple[str, str]]  # launches that are not recorded, by kernel and reason
    aside: set[str]  # libraries whose kernels run plain, because ``--kernel`` does not name them


class Patching(Protocol):
    """The patches of kernels that run plain between windows, made by another process."""

    @property
    def is_due(self) -> bool:
        """Whether there are kernels to patch now."""

    def take(self) -> list[Any]:
        """Return some of them, once each; import what that needs."""

    def send(self, kernels: list[Any], paths: list[str]) -> None:
        """Have them patched by a process that finds modules in some paths.

        Raises:
            OSError: no process can be started.
        """


class Watched(Counts, Protocol):
    """A launcher of a program's kernels, with probes or plain, which counts both."""

    session: Callable[[], profile | None]  # the session that records now
    plan: Plan
    idle: bool  # nothing is recorded now
    ahead: Patching | None  # of kernels that run plain meanwhile
    standby: Callable[[], profile | None] | None  # gives captured launches buffers meanwhile
    profiler: Callable[[bool], None]  # called at cudaProfilerStart (True) and cudaProfilerStop
    exits: Callable[[], None]  # called as the program calls C's exit()

    def look_ahead(self) -> None:
        """Note kernels that run plain while nothing is recorded, to have them patched."""

    def begin_anew(self) -> None:
        """Count all launches from zero, and decide anew on each kernel."""

    def stepping_in(self) -> AbstractContextManager[None]:
        """Have every launch in this process go through this launcher, until the context is left.

        This does not import the language: the program may want to set its environment first.
        """
