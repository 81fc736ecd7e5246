"""The recording options (``Spec``) of each Triton kernel being compiled, from ``init`` on.

A kernel is compiled as one tree. The compiler makes a new code generator for every jitted helper,
and passes all of them the same options object. That object identifies the compilation, so ``init``
in the kernel is seen by verbs in its helpers, and by no others.
"""

from __future__ import annotations

import sys
import weakref
from dataclasses import dataclass
from types import FrameType

from ikp.backends.triton import _hooks as hooks
from ikp.backends.triton import foreign
from ikp.backends.triton.gpu_targets import NVIDIA, target
from ikp.core.segment import Spec
from ikp.errors import KernelError
from ikp.probing import Untyped
from ikp.verbs.dsl import init_twice, no_init


@dataclass(frozen=True, slots=True)
class TritonRecording:
    """How a kernel records: ``spec`` is None where recording is off (``prof`` was None)."""

    spec: Spec | None


_recordings: dict[int, TritonRecording] = {}


def begin(semantic: Untyped, recording: TritonRecording) -> None:
    """Remember how the kernel being compiled records.

    Raises:
        KernelError: the kernel has called ``init`` before, or this is a ``noinline`` function.
    """
    options = semantic.builder.options
    if id(options) in _recordings:
        raise init_twice()
    if _in_noinline():
        raise _not_in_noinline("init", "sets up the kernel that is launched", "Call it there.")
    if recording.spec is not None:
        _check_passes(options, recording.spec)
    _recordings[id(options)] = recording
    weakref.finalize(options, _recordings.pop, id(options), None)


def _check_passes(options: Untyped, spec: Spec) -> None:
    """Refuse a kernel that needs ikp's passes, if they don't run over it."""
    if options.backend_name != NVIDIA:
        hooks.need(options, f"records on {target(options.backend_name).gpus}")
    if spec.totals:
        hooks.need(options, "totals (mode='totals')")
    hooks.marks(options)


def current(semantic: Untyped, verb: str) -> Spec | None:
    """Return the spec of the kernel being compiled; None where recording is off.

    Raises:
        KernelError: no ``init`` came before, or the verb can't be in a ``noinline`` function.
    """
    recording = _recordings.get(id(semantic.builder.options))
    if recording is None:
        raise no_init(verb)
    if _in_noinline():
        _check_in_noinline(semantic, verb, recording.spec)
    return recording.spec


def _check_in_noinline(semantic: Untyped, verb: str, spec: Spec | None) -> None:
    """Refuse verbs that a ``noinline`` function can't do with the registers passed to it."""
    if verb == "finish":
        raise _not_in_noinline(verb, "ends the kernel that is launched", "Call it there.")
    inline = "Remove noinline=True, or put the range around the call."
    if spec is not None and spec.totals:
        reason = "can't add to the kernel's totals (mode='totals'), which are in its registers"
        raise _not_in_noinline(verb, reason, inline)
    if semantic.builder.options.backend_name != NVIDIA:
        reason = "can be handed the kernel's registers on NVIDIA GPUs only"
        raise _not_in_noinline(verb, reason, inline)
    if spec is not None:
        hooks.need(semantic.builder.options, "verbs in a function marked noinline")


def _not_in_noinline(verb: str, reason: str, remedy: str) -> KernelError:
    return KernelError(f"ikp.{verb} is used in a function marked noinline, and {reason}. {remedy}")


def _in_noinline() -> bool:
    # Only the code generator knows, and builtins don't get it: look for it in the callers' frames.
    kind: Untyped = foreign.code_generator()
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        generator = frame.f_locals.get("self")
        if isinstance(generator, kind):
            return bool(generator.noinline)
        frame = frame.f_back
    return False
