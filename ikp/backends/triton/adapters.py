"""Choice of a verb's adapter: of a kernel that Triton compiles, or of a program it interprets.

Importing this module loads nothing of Triton.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ikp.backends.triton.gpu_targets import NVIDIA
from ikp.core.abi import Language as Written
from ikp.probing import Untyped

if TYPE_CHECKING:
    from ikp.backends.triton.adapter import Compiled
    from ikp.verbs.dsl import Dsl
    from ikp.verbs.off import Off


def compiling(semantic: Untyped, language: Written = Written.TRITON) -> Compiled | Off:
    """Return the adapter of the kernel that Triton traces with ``semantic``, for its GPU."""
    from ikp.backends.triton.foreign import TRITON, VERBS

    if not TRITON.has(VERBS):
        from triton.language import constexpr

        from ikp.verbs.off import Off

        return Off(lambda: constexpr(0))
    if semantic.builder.options.backend_name != NVIDIA:
        from ikp.backends.triton.adapter import ForTarget

        return ForTarget(semantic, language)
    from ikp.backends.triton.adapter import Compiled

    return Compiled(semantic, language)


def running() -> Dsl | None:
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
