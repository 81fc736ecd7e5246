"""Gluon kernels: Triton's compiler under another language, for NVIDIA and AMD GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ikp.backends.triton import TritonBackend, compiling
from ikp.core.abi import Language as Written
from ikp.plugins import Language

if TYPE_CHECKING:
    from ikp.verbs.dsl import Dsl


class GluonBackend(TritonBackend):
    """The host's side is Triton's own: the hooks, the buffers, the compiled code."""

    languages: ClassVar[tuple[Language, ...]] = (Language("Gluon", "@gluon.jit"),)
    rank: ClassVar[int] = 2

    @staticmethod
    def adapter(semantic: Any, verb: str) -> Dsl | None:  # noqa: ARG004 - it takes them all
        """Return the adapter of the function that is compiled; nothing interprets Gluon."""
        if semantic is None or "gluon" not in type(semantic).__module__:
            return None
        return compiling(semantic, Written.GLUON)
