"""Kernels of one symbol, numbered by their code: a kernel loaded twice has one number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256

from ikp.sass.cubins.cubin import Cubin

Digest = bytes | None
"""The digest of a kernel's code; None where the code can't be read."""


def digest(code: bytes, symbol: str) -> bytes:
    """Return the digest of a kernel's instructions.

    Raises:
        PatchError: the file's format is not known.
    """
    return sha256(Cubin.read(code).kernel(symbol).text.data).digest()


@dataclass(slots=True)
class _One:
    """A kernel: the function that reads its digest, the digest, and the modules that hold it."""

    read: Callable[[], Digest]
    digest: Digest = None
    holders: set[int] = field(default_factory=set)

    def known(self) -> Digest:
        """Return the digest, read once."""
        if self.digest is None:
            self.digest = self.read()
        return self.digest


@dataclass(slots=True)
class Same:
    """Numbers the kernels of each symbol, in the order in which they are launched.

    Code is read where a second module has the symbol, and where the kernel is patched. Code that
    can't be read any more is taken for the same.
    """

    _of: dict[str, list[_One]] = field(default_factory=dict)

    def number(self, symbol: str, holder: int, read: Callable[[], Digest]) -> int:
        """Return a kernel's number, from 1.

        Args:
            symbol: its name.
            holder: the id of the module or library that it is in.
            read: returns the digest of its code.
        """
        known = self._of.setdefault(symbol, [])
        for number, one in enumerate(known, 1):
            if holder in one.holders:
                return number
        new = _One(read)
        for number, one in enumerate(known, 1):
            if one.known() is None or new.known() is None or one.digest == new.digest:
                one.holders.add(holder)
                return number
        new.holders.add(holder)
        known.append(new)
        return len(known)

    def seen(self, symbol: str, number: int, read: Callable[[], Digest]) -> None:
        """Keep a kernel's digest: its module may be gone when another comes."""
        if len(self._of.get(symbol, ())) >= number and self._of[symbol][number - 1].digest is None:
            self._of[symbol][number - 1].digest = read()
