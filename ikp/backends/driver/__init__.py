"""The driver's backend: records kernels of any language, where the CUDA driver launches them.

It serves the kernels that no other backend launches: those of CuTe and CUDA C++, and those that
``torch.compile`` launches by itself. Probes go into their machine code; nothing of their languages
is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar

from ikp.core.segment import Segment
from ikp.plugins import Language

if TYPE_CHECKING:
    from ikp.backends.argument import Argument
    from ikp.backends.driver._seen_kernels import Chooser
    from ikp.verbs.dsl import Dsl


class DriverBackend:
    """The host's side; such a kernel has no verbs."""

    interface: ClassVar[int] = 2
    languages: ClassVar[tuple[Language, ...]] = ()
    rank: ClassVar[int] = 0
    tensorless: ClassVar[bool] = True
    """No kernel takes its buffers as an argument of its language: launches get addresses alone."""

    @staticmethod
    def adapter(semantic: Any, verb: str) -> Dsl | None:  # noqa: ARG004 - it takes none
        """Return None: this backend traces and interprets no kernel."""
        return None

    @staticmethod
    def beside(launcher: Chooser) -> AbstractContextManager[None]:
        """Record launches that reach the driver past the launcher's own hooks, as it chooses."""
        from ikp.backends.driver.launches import stepping_in

        return stepping_in(launcher)

    def device_type(self) -> str:
        """Return "cuda"."""
        return "cuda"

    def argument(self, segment: Segment) -> Argument:
        """Return a buffer's memory and size; nothing of any language is imported for it."""
        from ikp.backends.argument import bare

        return bare(segment)

    @staticmethod
    def repeated(prof: Argument) -> Callable[[Any], Argument]:
        """Return a function that makes the argument of another buffer like that of ``prof``."""
        from ikp.backends.argument import repeated

        return repeated(prof)

    def names(self) -> Mapping[int, str]:
        """Return the regions of the kernels that were recorded in this process."""
        from ikp.verbs.dsl import known

        return known()
