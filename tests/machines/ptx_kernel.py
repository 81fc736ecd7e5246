"""Kernels in PTX around ikp's assembly blocks, written as LLVM would print them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ikp.core.abi import ClockKind, Kind, OverflowMode, PayloadType, tag
from ikp.core.segment import Spec
from ikp.targets import ptx, ptx_slot, ptx_totals
from ikp.targets.ptx import Asm, RecordCode
from ikp.targets.ptx_totals import Counter

NO_PAYLOAD = "0"


class Kernel:
    """Collects lines; operands and results are PTX registers or immediates."""

    def __init__(
        self,
        overflow: OverflowMode = OverflowMode.STOP,
        clock: ClockKind = ClockKind.CYCLES,
        schedule: bool = True,
        *,
        select: bool = False,
        totals: bool = False,
    ) -> None:
        self.spec = Spec(
            clock=clock,
            overflow=overflow,
            schedule=schedule,
            select=select,
            totals=totals,
        )
        self.lines: list[str] = []
        self._results = 0

    def add(self, *lines: str) -> None:
        """Add instructions of the user's."""
        self.lines += [f"\t{line}" for line in lines]

    def init(self) -> None:
        """Add ``init`` on the kernel's two parameters: segment address, bytes for slots."""
        self.add("ld.param.b64 %rd1, [k_param_0];", "ld.param.b32 %r1, [k_param_1];")
        self._emit(ptx_slot.init(self.spec), "%rd1", "%r1")

    def start(self, into: str = "") -> str:
        """Add ``start``; return the register of its word, which is ``into`` if given."""
        return self._emit(ptx.start(self.spec), result=into)

    def end(
        self,
        region: int | str,
        start: str,
        payload: str = NO_PAYLOAD,
        name: str = "",
        where: str = "",
        index: str = "",
    ) -> None:
        """Add ``end`` of a region's id, or of a register that holds the tag."""
        kind = Kind.PLACED_RANGE if index else Kind.RANGE
        fixed, operands = self._tag(region, kind, payload)
        comment = ptx.region_comment(region, name) if isinstance(region, int) else "run-time region"
        asm = ptx.end(self.spec, RecordCode(fixed, comment, bool(where), bool(index)))
        self._emit(asm, *operands, start, payload, *filter(None, (where, index)))

    def instant(
        self,
        region: int | str,
        payload: str = NO_PAYLOAD,
        name: str = "",
        where: str = "",
        index: str = "",
    ) -> None:
        """Add ``instant``."""
        kind = Kind.PLACED_INSTANT if index else Kind.INSTANT
        fixed, operands = self._tag(region, kind, payload)
        comment = ptx.region_comment(region, name) if isinstance(region, int) else "run-time region"
        asm = ptx.instant(self.spec, RecordCode(fixed, comment, bool(where), bool(index)))
        self._emit(asm, *operands, payload, *filter(None, (where, index)))

    def count_range(self, region: int, start: str, where: str = "") -> None:
        """Add ``end`` where totals are kept."""
        counter = Counter(Kind.RANGE, region)
        comment = ptx.region_comment(region, f"region {region}")
        asm = ptx_totals.end(self.spec, counter, comment, bool(where))
        self._emit(asm, start, *filter(None, [where]))

    def count_instant(self, region: int, where: str = "") -> None:
        """Add ``instant`` where totals are kept."""
        comment = ptx.region_comment(region, f"region {region}")
        asm = ptx_totals.instant(Counter(Kind.INSTANT, region), comment, bool(where))
        self._emit(asm, *filter(None, [where]))

    def role(self, number: int) -> None:
        """Add ``role``."""
        self._emit(ptx.role(number, ptx.region_comment(number, "role")))

    def finish(self) -> None:
        """Add ``finish``."""
        self._emit(ptx_slot.finish(self.spec))

    def text(self) -> str:
        """Return the whole PTX module."""
        return _MODULE.format(body="\n".join(self.lines))

    def _tag(self, region: int | str, kind: Kind, payload: str) -> tuple[int | None, Sequence[str]]:
        if isinstance(region, str):
            return None, (region,)
        kind_of_payload = PayloadType.NONE if payload == NO_PAYLOAD else PayloadType.U32
        return tag(kind, kind_of_payload, region), ()

    def _emit(self, asm: Asm, *operands: str, result: str = "") -> str:
        self._results += 1
        result = result or f"%r{'d' * (asm.bits[0] == 64)}{1000 + self._results}"
        values = [result, *operands]
        if asm.constraints.count(",") != len(operands):
            raise ValueError(f"{len(operands)} operands for {asm.constraints}")
        code = re.sub(r"\$(\d)", lambda match: values[int(match[1])], asm.code)
        self.lines += ["\t// begin inline asm", f"\t{code}", "", "\t// end inline asm"]
        return result


_MODULE = """//
// Generated for a test
//

.version 7.8
.target sm_80
.address_size 64

.visible .entry k(
	.param .u64 .ptr .global .align 1 k_param_0,
	.param .u32 k_param_1
)
{{
	.reg .pred 	%p<100>;
	.reg .b32 	%r<2000>;
	.reg .b64 	%rd<2000>;
{body}
	ret;
}}
"""
