"""What blocks run that do not record: the kernel's own code, with or without a header stored."""

from __future__ import annotations

from dataclasses import replace

from ikp.core import abi
from ikp.core.abi import Language
from ikp.errors import PatchError
from ikp.machine.cubins.cubin import Cubin
from ikp.machine.moving.insert import insert
from ikp.machine.moving.plain_code import PlainCode
from ikp.machine.woven.weave import Weaver


def plain(cubin: bytes, name: str) -> tuple[PlainCode | None, list[str]]:
    """Return a kernel's own code, to be there once more; what to say where it can't be."""
    file = Cubin.read(cubin)
    try:
        return PlainCode.of(file, file.kernel(name)), []
    except PatchError as error:
        said = f"{error} So blocks that are not chosen run the code with records, and keep none."
        return None, [said]


def with_headers(
    cubin: bytes, name: str, language: Language, weaver: Weaver
) -> tuple[PlainCode | None, list[str]]:
    """Return the same where each warp leaves its header, and nothing else.

    Args:
        cubin: the file, as the compiler wrote it.
        name: the kernel's.
        language: what it was written in.
        weaver: who has put records into the kernel: what that keeps, these warps keep, too.
    """
    beside = abi.DENSE_HEADER_BYTES + abi.RECORD_BYTES * weaver.margin
    frame = replace(weaver.frame, blocks=None, behind=beside, gathers=False, threads=())
    alone = Weaver(weaver.room, frame, [], weaver.full, weaver.chip, weaver.regions)
    file = Cubin.read(cubin)
    try:
        insert(file, name, alone.woven(name, language))
        return PlainCode.of(file, file.kernel(name)), []
    except PatchError as error:
        return None, [f"{error} So blocks that are not chosen don't leave when they ran."]
