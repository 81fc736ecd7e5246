"""The CuTe DSL backend (nvidia-cutlass-dsl): adapter, buffers and machine code of its kernels.

Importing this package loads nothing of CuTe.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar

from ikp.core.segment import Segment
from ikp.errors import UsageError
from ikp.plugins import Image, Language
from ikp.verbs.dsl import known

if TYPE_CHECKING:
    from ikp.backends.argument import Argument
    from ikp.verbs.dsl import Dsl
    from ikp.verbs.off import Off


def _running(verb: str) -> Dsl | None:
    """Return the adapter of the kernel that CuTe traces now; None where it traces no code."""
    from ikp.backends.cute import _state as state
    from ikp.backends.cute._adapter import Traced

    return Traced(verb) if state.tracing() else None


def _off() -> Off:
    """Return an adapter that records nothing, where ikp can't see whether CuTe traces a kernel."""
    from ikp.backends.cute._state import CuteContext
    from ikp.verbs.off import Off

    return Off(lambda: CuteContext(()))


class CuteBackend:
    """The host's side of the CuTe verbs."""

    interface: ClassVar[int] = 2
    languages: ClassVar[tuple[Language, ...]] = (
        Language("CuTe DSL", "@cute.kernel", "CuTe's cute.compile(...)"),
    )
    distribution: ClassVar[str] = "nvidia-cutlass-dsl"
    rank: ClassVar[int] = 1

    def __init__(self) -> None:
        import cutlass  # noqa: F401 - this backend is there only where CuTe is

    @staticmethod
    def adapter(semantic: Any, verb: str) -> Dsl | None:
        """Return the adapter of the traced kernel; one that records nothing if CuTe has changed."""
        if semantic is not None:
            return None
        from ikp.backends.cute import _foreign as foreign

        return _running(verb) if foreign.recording() else _off()

    @staticmethod
    def image(kernel: Any) -> Image | None:
        """Return the machine code of a function that ``cute.compile`` returned."""
        from ikp.backends.cute._image import image

        return image(kernel)

    @staticmethod
    def loaded_images() -> Iterator[Image]:
        """Yield the machine code that CuTe keeps on request: ikp does not see its loads."""
        from ikp.backends.cute._image import kept_images

        return kept_images()

    @staticmethod
    def mark(kernel: Any, *_: object, **__: object) -> None:
        """Raise UsageError for a kernel of CuTe's: it can't be marked from outside."""
        what = f"{type(kernel).__module__}.{type(kernel).__qualname__}"
        if "cutlass" in f"{getattr(kernel, '__module__', '')}{what}" or hasattr(kernel, "_dsl_cls"):
            raise UsageError(
                "CuTe DSL kernels can't be marked from outside: their Python runs once, as the "
                "kernel is built, with control flow that CuTe rewrites itself. Write "
                "ikp.init(prof) and with ikp.range(name) into the kernel."
            )

    @staticmethod
    def beside(_: object) -> AbstractContextManager[None]:
        """Have kernels compiled with source lines and the calls that inlined code comes from.

        The driver's backend records their launches.
        """
        from ikp.backends.cute.lines import with_lines

        return with_lines()

    def device_type(self) -> str:
        """Return "cuda": CuTe has no interpreter."""
        return "cuda"

    def argument(self, segment: Segment) -> Argument | None:
        """Return the ``prof`` argument for one launch that records into ``segment``."""
        from ikp.backends.argument import argument
        from ikp.backends.cute import _foreign as foreign

        return argument(segment) if foreign.recording() else None

    def names(self) -> dict[int, str]:
        """Return the regions of the kernels traced in this process."""
        return known()
