"""The Gluon backend: a subclass of Triton's, as Triton compiles Gluon."""

from __future__ import annotations

from typing import ClassVar

from ikp.backends.triton import TritonBackend
from ikp.core.abi import Language as Written
from ikp.plugins import Language


class GluonBackend(TritonBackend):
    """The host's side is Triton's own: the hooks, the buffers, the compiled code."""

    languages: ClassVar[tuple[Language, ...]] = (Language("Gluon", "@gluon.jit"),)
    rank: ClassVar[int] = 2
    written: ClassVar[Written] = Written.GLUON
    semantics: ClassVar[str] = "gluon"
