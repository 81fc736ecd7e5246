"""Errors that refuse a patch, with the kernel's readable name; ikp's own faults among them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ikp.errors import IkpError, PatchError
from ikp.signals import pass_on


class SpecError(PatchError):
    """A session asks for what records in machine code can't do; the next one may not."""


@contextmanager
def in_words(name: str, shown: str) -> Iterator[None]:
    """Have errors that refuse a kernel use its readable name, and turn ikp's faults into refusals.

    Args:
        name: the kernel's symbol, as the compiler wrote it: a C++ one can fill a page.
        shown: the kernel's name in traces; "" where that is the same.

    Raises:
        PatchError: it is refused, or reading it failed where it should not have.
    """
    try:
        yield
    except IkpError as error:
        text = str(error)
        if not shown or name not in text:
            raise
        error.__traceback__ = None  # else the cause and a frame of contextlib's hold each other
        raise type(error)(text.replace(name, shown)) from error
    except Exception as error:
        pass_on(error)
        error.__traceback__ = None
        raise PatchError(
            f"{shown or name} could not be read ({type(error).__name__}: {error}). That is a "
            "mistake of ikp's: please report it with the kernel's cubin."
        ) from error
