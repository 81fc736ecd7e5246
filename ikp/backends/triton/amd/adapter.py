"""The adapter of Triton and Gluon kernels compiled for AMD GPUs: the verbs become marks."""

from __future__ import annotations

from ikp.backends.triton.adapter import Compiled
from ikp.backends.triton.amd import _marks as marks
from ikp.core.abi import Kind
from ikp.core.segment import Spec
from ikp.targets.ptx import Asm
from ikp.verbs.dsl import DslValue, Payload, Place, Region
from ikp.verbs.inline_ptx import comment, record


class CompiledAmd(Compiled):
    """The ``Dsl`` whose verbs emit marks, with the operands of PTX, for a later compiler stage."""

    def store_range(self, region: Region, start: DslValue, payload: Payload, place: Place) -> None:
        """Read the clock and store one range record."""
        asm = marks.end(record(region, Kind.RANGE, payload.type, place))
        tag = self._tag(Kind.RANGE, payload.type, region, place)
        self._emit(asm, [*tag, start, self._word(payload), *self._place(place)])

    def store_instant(self, region: Region, payload: Payload, place: Place) -> None:
        """Read the clock and store one instant record."""
        asm = marks.instant(record(region, Kind.INSTANT, payload.type, place))
        tag = self._tag(Kind.INSTANT, payload.type, region, place)
        self._emit(asm, [*tag, self._word(payload), *self._place(place)])

    def store_role(self, region: Region) -> None:
        """Write the wave's role to its slot's header."""
        self._emit(marks.role(region.number or 0, comment(region)), [])

    def store_whole(self, region: Region) -> None:
        """Have the kernel's finish record a range from init to finish."""
        self._emit(marks.whole(comment(region)), [])

    def finish(self) -> None:
        """Leave a mark: finish runs at every exit."""
        self._emit(marks.finish(), [])

    def _checked(self, spec: Spec) -> Spec:
        return marks.checked(spec, self._semantic.builder.options.arch)

    def _set_up(self, spec: Spec) -> Asm:
        return marks.init(spec, self._language)

    def _read_clock(self, region: object) -> DslValue:
        return self._emit(marks.start(comment(self.region(region, "start"))), [])
