"""AMD GPUs as a target of Triton's compiler: loaded when the first AMD kernel is compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from typing import ClassVar

from ikp_amd import _marks as marks
from ikp_amd import stages as wrapped


class AmdTarget:
    """The verbs for AMD GPUs: marks in the IR, which become code before LLVM generates code."""

    interface: ClassVar[int] = 2
    gpus: ClassVar[str] = "AMD GPUs"
    stages: ClassVar[tuple[str, ...]] = ("llir", "amdgcn")
    options: ClassVar[Mapping[str, bool]] = marks.OPTIONS

    checked = staticmethod(marks.checked)
    init = staticmethod(marks.init)
    start = staticmethod(marks.start)
    end = staticmethod(marks.end)
    instant = staticmethod(marks.instant)
    role = staticmethod(marks.role)
    whole = staticmethod(marks.whole)
    finish = staticmethod(marks.finish)

    @staticmethod
    def hook_on(stages: MutableMapping[str, Callable[..., str]]) -> None:
        """Wrap the stages of one compilation."""
        wrapped.hook_on(stages)
