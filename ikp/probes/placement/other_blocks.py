"""The code of blocks that do not record: the plain kernel's, with or without a slot header."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ikp.core import abi
from ikp.core.abi import Language
from ikp.core.segment import EVERYTHING, Selection
from ikp.errors import PatchError
from ikp.probes.placement.by_role import ByRole
from ikp.probes.placement.instrumentation import Instrumenter
from ikp.sass.cubins.cubin import Cubin, Kernel
from ikp.sass.insertion.insert import PlainCode, insert

_TOGETHER = "So blocks that are not chosen run the code with records, and keep none."
_ALL = "So all its blocks record: no sample is taken of them."


@dataclass(frozen=True)
class Apart:
    """The code of blocks that are not chosen, and whether the choice of blocks still holds.

    Where a kernel can't be in the cubin twice, all its blocks run the code with probes. Those that
    are not chosen keep no record then. But a sample is dropped: all blocks record.
    """

    chosen: Selection | None = None  # the choice, if the other blocks have code of their own
    code: PlainCode | None = None
    together: bool = False  # all blocks run one code, which heeds the choice
    notes: tuple[str, ...] = ()

    @property
    def sample(self) -> Selection:
        """The choice, if it is a sample."""
        chosen = self.chosen
        return chosen if chosen is not None and chosen.others else EVERYTHING

    def with_headers(
        self, cubin: bytes, name: str, language: Language, instrumenter: Instrumenter | ByRole
    ) -> Apart:
        """Return the same with code in which each warp stores its header, if a sample is taken.

        Args:
            cubin: the file, as the compiler wrote it.
            name: the kernel's.
            language: the kernel language that it was written in.
            instrumenter: that of the recording blocks; this code reserves the same registers.
        """
        if self.sample == EVERYTHING:
            return self
        beside = abi.DENSE_HEADER_BYTES + abi.RECORD_BYTES * instrumenter.margin
        alone = instrumenter.alone(beside)
        file = Cubin.read(cubin)
        try:
            insert(file, name, alone.insertions(name, language))
            return replace(self, code=PlainCode.of(file, file.kernel(name)))
        except PatchError as error:
            return Apart(notes=(f"{error} {_ALL}",))


def apart(file: Cubin, kernel: Kernel, chosen: Selection | None) -> Apart:
    """Return the code of blocks that are not chosen, by a choice that is made once.

    Args:
        file: the plain cubin.
        kernel: its kernel.
        chosen: the blocks that record; None where there is no choice.
    """
    if chosen is None:
        return Apart()
    try:
        return Apart(chosen, PlainCode.of(file, kernel))
    except PatchError as error:
        if chosen.others:
            return Apart(notes=(f"{error} {_ALL}",))
        return Apart(together=True, notes=(f"{error} {_TOGETHER}",))
