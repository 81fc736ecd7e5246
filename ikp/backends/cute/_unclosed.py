"""A check of each traced CuTe kernel for ranges that it opens and never closes.

A start word that no record uses is one of a range never closed. Nothing has been optimised away
when the module has been traced, so that is certain. A word may be carried by loops and branches
before its record takes it.

CuTe reports an exception in its hook as a bug of its own. So the hook only notes the range, and the
constructor of the compiled function raises the error.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

from ikp.backends.cute import _foreign as foreign
from ikp.backends.cute import _state as state
from ikp.errors import KernelError
from ikp.probing import Untyped
from ikp.targets import ptx
from ikp.verbs.dsl import DslValue, never_closed

_ADVANCE = foreign.go_on()


def watch() -> None:
    """Check every module that is traced from now on; a second call changes nothing."""
    foreign.on_traced(check)


def check(owner: object, module: Untyped, name: str) -> None:  # noqa: ARG001 - as CuTe calls it
    """Note the error messages of a traced module's ranges that are never closed."""

    def look(operation: Untyped) -> object:
        region = _opens(operation.operation)
        if region is not None and not _recorded(operation.operation.results[0]):
            unclosed.append(never_closed(region, state.place_of(operation.operation)))
        return _ADVANCE

    unclosed: list[str] = []
    module.operation.walk(look)
    _traced.unclosed = unclosed


def refuse() -> None:
    """Refuse the module that this thread traced last, if a range is never closed there.

    Raises:
        KernelError: a range is not closed; the message has the line that opens it.
    """
    if _traced.unclosed:
        raise KernelError(_traced.unclosed[0])


class _Traced(threading.local):
    """The error messages of the module that a thread traced last."""

    def __init__(self) -> None:
        self.unclosed: list[str] = []


_traced = _Traced()


def _opens(operation: Untyped) -> str | None:
    if operation.name != "llvm.inline_asm":
        return None
    return ptx.opened(foreign.assembly_in(operation))


def _recorded(word: DslValue) -> bool:
    """Return whether a value reaches anything but the ends of loops and branches.

    Values are not compared: CuTe's equality of two would be an instruction of the kernel.
    """
    seen: set[tuple[int, int]] = set()
    ahead = [word]
    while ahead:
        for use in ahead.pop().uses:
            user, at = use.owner.operation, use.operand_number
            into = _carried(user, at)
            if into is None:
                return True
            if (hash(user), at) not in seen:
                seen.add((hash(user), at))
                ahead.extend(into)
    return False


def _carried(user: Untyped, at: int) -> list[DslValue] | None:
    """Return the values that an operand becomes; None where the operation does more than carry."""
    if user.name == "scf.for":  # operands: lower, upper, step, the carried values
        return [user.regions[0].blocks[0].arguments[at - 2], user.results[at - 3]]
    if user.name == "scf.while":
        return [user.regions[0].blocks[0].arguments[at]]
    if user.name == "scf.condition":  # the first operand says whether to go on
        loop = _parent(user)
        return [loop.regions[1].blocks[0].arguments[at - 1], loop.results[at - 1]] if at else None
    if user.name == "scf.yield":
        return list(_yielded(_parent(user), user, at))
    return None


def _yielded(parent: Untyped, user: Untyped, at: int) -> Iterator[DslValue]:
    if parent.name == "scf.while":
        yield parent.regions[0].blocks[0].arguments[at]
        return
    if parent.name == "scf.for":
        yield user.block.arguments[at + 1]
    yield parent.results[at]


def _parent(operation: Untyped) -> Untyped:
    return operation.parent.operation
