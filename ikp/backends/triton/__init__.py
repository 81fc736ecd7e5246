"""The Triton backend: adapters and buffers for kernels on GPUs, or interpreted.

Importing this package loads nothing of Triton: ``ikp run`` waits for the program to do so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ikp.core.abi import Language as Written
from ikp.core.regions import merge
from ikp.core.segment import Segment
from ikp.plugins import Image, Language
from ikp.verbs.dsl import known

if TYPE_CHECKING:
    import re

    from ikp.backends.argument import Argument
    from ikp.backends.triton.unedited.everything import Everything
    from ikp.profiling.profile import profile
    from ikp.unedited.plan import Plan
    from ikp.verbs.dsl import Dsl


class TritonBackend:
    """The host's side of the Triton verbs; its constructor installs the hooks on Triton."""

    interface: ClassVar[int] = 2
    languages: ClassVar[tuple[Language, ...]] = (
        Language("Triton", "@triton.jit", "Triton's kernel[grid](...)"),
    )
    distribution: ClassVar[str] = "triton"
    rank: ClassVar[int] = 3
    written: ClassVar[Written] = Written.TRITON
    semantics: ClassVar[str] = "triton"
    """A part of the module name of the class whose objects callers pass as ``_semantic``."""

    def __init__(self) -> None:
        import triton  # noqa: F401 - this backend is there only where Triton is

        from ikp.backends.triton import _hooks as hooks

        hooks.install()

    @classmethod
    def adapter(cls, semantic: Any, verb: str) -> Dsl | None:  # noqa: ARG003 - it takes them all
        """Return the adapter of the function that is compiled, or of the program that runs."""
        if semantic is None:
            return _interpreting()
        if not any(cls.semantics in kind.__module__.split(".") for kind in type(semantic).__mro__):
            return None
        from ikp.backends.triton.adapter import compiling

        return compiling(semantic, cls.written)

    @staticmethod
    def image(kernel: Any) -> Image | None:
        """Return the machine code of the compiled kernel that a launch returned."""
        from ikp.backends.triton._image import image

        return image(kernel)

    @staticmethod
    def loaded_images() -> Iterator[Image]:
        """Yield the machine code of the loaded kernels with marks, sorted by path."""
        from ikp.backends.triton._hooks import loaded_code
        from ikp.backends.triton._image import at

        return map(at, loaded_code())

    @staticmethod
    def mark(
        kernel: Any,
        plan: Plan,
        *,
        launches: range,
        session: Callable[[], profile | None],
        buffer: Mapping[str, Any],
    ) -> Any:
        """Return a jitted function that records by a plan; None where ``kernel`` is none."""
        from ikp.backends.triton.unedited.instrument import mark

        return mark(kernel, plan, launches, session, buffer)

    @staticmethod
    def watch(
        plan: Plan,
        *,
        launches: Sequence[int],
        buffer: Mapping[str, Any],
        kernels: re.Pattern[str] | None,
        room: int,
    ) -> Everything:
        """Return the launcher of a whole program's kernels, for use as a context manager."""
        from ikp.backends.triton.unedited.everything import Everything

        return Everything(plan, lambda: None, launches, dict(buffer), kernels=kernels, room=room)

    def device_type(self) -> str:
        """Return "cpu" where Triton interprets kernels or there is no GPU."""
        import torch

        from ikp.backends.triton import foreign

        return "cuda" if torch.cuda.is_available() and not foreign.interprets() else "cpu"

    def argument(self, segment: Segment) -> Argument | None:
        """Return the ``prof`` argument for one launch that records into ``segment``.

        The compiler hooks go around those that were set since the session began.
        """
        from ikp.backends.argument import argument
        from ikp.backends.triton import _hooks as hooks

        return argument(segment) if hooks.install() else None

    @staticmethod
    def repeated(prof: Argument) -> Callable[[Any], Argument | None]:
        """Return a function that makes the argument of another buffer like that of ``prof``."""
        from ikp.backends.argument import repeated
        from ikp.backends.triton import _hooks as hooks

        again = repeated(prof)

        def made(data: Any) -> Argument | None:
            return again(data) if hooks.is_first() or hooks.install() else None

        return made

    def names(self) -> dict[int, str]:
        """Return the regions known from kernels traced or loaded in this process."""
        from ikp.backends.triton import _hooks as hooks

        return merge([known(), hooks.loaded_names()])


def _interpreting() -> Dsl | None:
    """Return the adapter of the program that Triton interprets now; None where it compiles."""
    from ikp.backends.triton import foreign

    if not foreign.interprets():
        return None
    if not foreign.TRITON.has(foreign.INTERPRETER):
        from ikp.verbs.off import Off

        return Off(tuple)
    from ikp.backends.triton import _structure as structure
    from ikp.backends.triton._interpreted import Interpreted

    # The interpreter keeps its state of a program after that has ended.
    here = structure.standing()
    return None if here is None else Interpreted(here)
