"""Kernels of any language, met where the CUDA driver loads and launches them.

For what no other backend knows how to meet: CuTe, CUDA C++, what ``torch.compile`` launches by
itself. Their machine code is recorded; nothing of their languages is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar

from ikp.core.segment import Segment
from ikp.plugins import Language

if TYPE_CHECKING:
    from ikp.backends.argument import Argument
    from ikp.backends.driver._seen_kernels import Chooser
    from ikp.verbs.dsl import Dsl


class DriverBackend:
    """The host's side; no verb stands in such a kernel."""

    interface: ClassVar[int] = 2
    languages: ClassVar[tuple[Language, ...]] = ()
    rank: ClassVar[int] = 0

    @staticmethod
    def adapter(semantic: Any, verb: str) -> Dsl | None:  # noqa: ARG004 - it takes none
        """Return None: nothing is traced or run here."""
        return None

    @staticmethod
    def beside(launcher: Chooser) -> AbstractContextManager[None]:
        """Record what reaches the driver in other ways than the launcher knows, as it chooses."""
        from ikp.backends.driver.launches import stepping_in

        return stepping_in(launcher)

    def device_type(self) -> str:
        """Return "cuda"."""
        return "cuda"

    def argument(self, segment: Segment) -> Argument:
        """Return a buffer's memory and size."""
        from ikp.backends.argument import argument

        return argument(segment)

    def names(self) -> Mapping[int, str]:
        """Return the regions of the kernels that were recorded in this process."""
        from ikp.verbs.dsl import known

        return known()
