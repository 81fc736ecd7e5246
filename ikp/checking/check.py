"""Entry point of the A/B check: a launch is checked in another process, with a verdict."""

from __future__ import annotations

from typing import Final

from ikp.checking.comparison import Verdict, size_of
from ikp.checking.messages import Timed
from ikp.checking.process import AgainError, CannotError, LostError, process_for
from ikp.checking.request import Request
from ikp.driver import cuda

_LIMIT: Final = 2 << 30
"""The most bytes of memory that are copied: the device must have room for three times as many."""
_MIB: Final = 1 << 20
_TRIES: Final = 5
"""How many processes are tried until the addresses are free in one."""


def check(request: Request, limit: int = _LIMIT) -> Verdict:
    """Compare a kernel with records with the plain one; see ``run_apart``."""
    answer = run_apart(request, limit)[0]
    assert isinstance(answer, Verdict)  # noqa: S101 - no times were asked for
    return answer


def run_apart(request: Request, limit: int = _LIMIT) -> tuple[Verdict | Timed, bytes]:
    """Run a kernel's other form and the plain one, on copies of the memory that both reach.

    The program's memory is only read. All launches before must have ended.

    Args:
        request: the launch.
        limit: the most bytes that are copied.

    Returns:
        The verdict, or times if the request asks for these; and the result that it asks for, b""
        where there is none.

    Raises:
        PatchError: the driver refuses to read memory.
    """
    if sum(each.nbytes for each in request.memory) > limit:
        text = (
            f"not checked: its {size_of(request.memory)} are more than the {limit / _MIB:,.0f} MiB "
            "that are copied to compare them"
        )
        return Verdict(text), b""
    device, refused = cuda.identity(), ""
    for _ in range(_TRIES):
        try:
            with process_for(device) as process:
                return process.check(request)
        except AgainError as error:
            refused = str(error)
        except CannotError as error:
            return Verdict(f"not checked: {error}"), b""
        except LostError as error:
            if error.recorded:
                return Verdict(f"with records, {error}", refused=True), b""
            return Verdict(f"not checked: {error}"), b""
    return Verdict(f"not checked: {refused}"), b""
