"""What blocks run that do not record: the kernel's own code, with or without a header stored."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ikp.core import abi
from ikp.core.abi import Language
from ikp.core.segment import EVERYTHING, Selection
from ikp.errors import PatchError
from ikp.probes.placement.by_role import ByRole
from ikp.probes.placement.instrumentation import Instrumenter
from ikp.sass.cubins.cubin import Cubin, Kernel
from ikp.sass.insertion.insert import insert
from ikp.sass.insertion.original_code import PlainCode

_TOGETHER = "So blocks that are not chosen run the code with records, and keep none."
_ALL = "So all its blocks record: no sample is taken of them."


@dataclass(frozen=True)
class Apart:
    """What blocks run that are not chosen, and what becomes of the choice.

    Where a kernel can't be there twice, all its blocks run the code with records. Those that are
    not chosen keep none then, but for a sample: of that, nothing is left.
    """

    chosen: Selection | None = None  # that choice, if it is heeded by code of its own
    code: PlainCode | None = None
    together: bool = False  # one code is to heed it
    notes: tuple[str, ...] = ()

    @property
    def sample(self) -> Selection:
        """The choice, if it is a sample."""
        chosen = self.chosen
        return chosen if chosen is not None and chosen.others else EVERYTHING

    def with_headers(
        self, cubin: bytes, name: str, language: Language, weaver: Instrumenter | ByRole
    ) -> Apart:
        """Return the same where each warp leaves its header, if that is asked for.

        Args:
            cubin: the file, as the compiler wrote it.
            name: the kernel's.
            language: what it was written in.
            weaver: who has put records into the kernel: what that keeps, these warps keep, too.
        """
        if self.sample == EVERYTHING:
            return self
        alone = weaver.alone(abi.DENSE_HEADER_BYTES + abi.RECORD_BYTES * weaver.margin)
        file = Cubin.read(cubin)
        try:
            insert(file, name, alone.woven(name, language))
            return replace(self, code=PlainCode.of(file, file.kernel(name)))
        except PatchError as error:
            return Apart(notes=(f"{error} {_ALL}",))


def apart(file: Cubin, kernel: Kernel, chosen: Selection | None) -> Apart:
    """Return what blocks run that are not chosen, by a choice that is made once.

    Args:
        file: the cubin, into which nothing was put yet.
        kernel: its.
        chosen: who records; None where nobody has chosen.
    """
    if chosen is None:
        return Apart()
    try:
        return Apart(chosen, PlainCode.of(file, kernel))
    except PatchError as error:
        if chosen.others:
            return Apart(notes=(f"{error} {_ALL}",))
        return Apart(together=True, notes=(f"{error} {_TOGETHER}",))
