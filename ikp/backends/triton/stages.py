"""``hook_on``: ikp's passes over TTGIR and PTX, wrapped around the stages of Triton's compiler."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Protocol

from ikp.backends.triton import _specialised as specialised
from ikp.backends.triton import gpu_targets
from ikp.backends.triton.gpu_targets import NVIDIA
from ikp.backends.triton.passes import callees, entry, schedule
from ikp.probing import Untyped
from ikp.ptx.weaving import held_back
from ikp.signals import pass_on
from ikp.targets.ptx_slot import INIT_MARK

TTGIR_PASSES: list[Callable[[Untyped, object], Untyped]] = []
"""Passes over TritonGPU IR: each takes a module and its metadata, and returns a module. They act on
kernels that ask for it in their own source, and so in their cache key."""

_Stage = Callable[..., Untyped]


class StageCompilation(Protocol):
    """The compilation that a stage is part of."""

    wrong: str
    marked: bool

    def lose(self, wrong: str) -> None:
        """Report that the passes don't run; raise KernelError for a kernel that needs them."""

    def need(self, what: str) -> None:
        """Note a feature that needs the passes; raise KernelError if they don't run."""


def hook_on(stages: object, backend: str, compilation: StageCompilation) -> str:
    """Wrap the stages of one compilation; return what is wrong with them, "" if nothing.

    Args:
        stages: the compiler's own dict.
        backend: Triton's name of the backend that compiles.
        compilation: what it is a part of.
    """
    if not isinstance(stages, MutableMapping):
        return f"hands stages over as {type(stages).__name__}"
    if "ttgir" in stages:
        stages["ttgir"] = _passed_on(stages["ttgir"], compilation)
    if backend != NVIDIA:
        return gpu_targets.hook_on(backend, stages)
    if "ptx" in stages:
        stages["ptx"] = _placed(stages["ptx"], compilation)
        return ""
    return f"has no compiler stage 'ptx' (it has: {', '.join(map(str, stages))})"


def _passed_on(make_ttgir: _Stage, compilation: StageCompilation) -> _Stage:
    def stage(source: Untyped, *args: object, **kwargs: object) -> Untyped:
        before = str(source) if compilation.marked else ""
        try:
            module = make_ttgir(source, *args, **kwargs)
        except Exception as error:
            pass_on(error)
            specialised.explain(before, source, error, lambda s: make_ttgir(s, *args, **kwargs))
            raise
        for each in TTGIR_PASSES:
            module = each(module, args[0] if args else None)
        if compilation.marked and "ttg.warp_specialize" in str(module):
            compilation.need("warp-specialised partitions")
        return module

    return stage


def _placed(make_ptx: _Stage, compilation: StageCompilation) -> _Stage:
    def stage(*args: object, **kwargs: object) -> object:
        made = make_ptx(*args, **kwargs)
        if not isinstance(made, str):
            compilation.lose(f"has a compiler stage 'ptx' that returns {type(made).__name__}")
            return made
        placed = schedule.schedule(callees.pass_on(entry.complete(made)))
        return held_back(placed) if INIT_MARK in made else placed

    return stage
