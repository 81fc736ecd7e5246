"""The adapter of Triton and Gluon on a plugin's GPUs: the verbs become its target's assembly."""

from __future__ import annotations

from ikp.backends.triton import gpu_targets
from ikp.backends.triton.adapter import Compiled
from ikp.core.abi import Kind, Language
from ikp.core.segment import Spec
from ikp.plugins import TritonTarget
from ikp.probing import Untyped
from ikp.targets.ptx import Asm
from ikp.verbs.dsl import DslValue, Payload, Place, Region
from ikp.verbs.inline_ptx import comment, record


class ForTarget(Compiled):
    """The ``Dsl`` whose verbs emit a target's assembly, with the operands that PTX takes."""

    def __init__(self, semantic: Untyped, language: Language = Language.TRITON) -> None:
        super().__init__(semantic, language)
        self._options: Untyped = semantic.builder.options

    @property
    def _target(self) -> TritonTarget:
        return gpu_targets.target(self._options.backend_name)

    def store_range(self, region: Region, start: DslValue, payload: Payload, place: Place) -> None:
        """Read the clock and store one range record."""
        asm = self._target.end(record(region, Kind.RANGE, payload.type, place))
        tag = self._tag(Kind.RANGE, payload.type, region, place)
        self._emit(asm, [*tag, start, self._word(payload), *self._place(place)])

    def store_instant(self, region: Region, payload: Payload, place: Place) -> None:
        """Read the clock and store one instant record."""
        asm = self._target.instant(record(region, Kind.INSTANT, payload.type, place))
        tag = self._tag(Kind.INSTANT, payload.type, region, place)
        self._emit(asm, [*tag, self._word(payload), *self._place(place)])

    def store_role(self, region: Region) -> None:
        """Write the warp's role to its slot's header."""
        self._emit(self._target.role(region.number or 0, comment(region)), [])

    def store_whole(self, region: Region) -> None:
        """Have the kernel's finish record a range from init to finish."""
        self._emit(self._target.whole(comment(region)), [])

    def finish(self) -> None:
        """Write the counts and the second clock anchor."""
        self._emit(self._target.finish(), [])

    def _checked(self, spec: Spec) -> Spec:
        return self._target.checked(spec, self._options.arch)

    def _set_up(self, spec: Spec) -> Asm:
        return self._target.init(spec, self._language)

    def _read_clock(self, region: Region) -> DslValue:
        return self._emit(self._target.start(comment(region)), [])
