"""Store instructions for a warp's records and header, with uniform or per-thread addresses.

A uniform address is a pair of uniform registers, to which a register of each thread's is added, or
RZ. A per-thread address is two registers of each thread's own.
"""

from __future__ import annotations

from typing import Final

from ikp.core import abi
from ikp.probes.code.reserved_registers import Frame
from ikp.sass.assembly import forms
from ikp.sass.assembly.assembler import Step
from ikp.sass.assembly.forms import RZ

RECORD_BITS: Final = abi.RECORD_BYTES.bit_length() - 1
QUAD: Final = 16
"""Bytes of four registers, the most that one store takes."""
_BEYOND: Final = abi.LAUNCH_HEADER_BYTES
"""Addresses in uniform registers are too low by so much: the size of a launch header."""


def elected(frame: Frame, predicate: int) -> list[Step]:
    """Return the code that sets a predicate in one thread of a warp that records."""
    f = forms
    return [f.elect(predicate), f.below(predicate, RZ, frame.room, where=predicate)]


def put_header(frame: Frame, address: int, beyond: int, value: int, words: int = 4) -> Step:
    """Return a store into a warp's header, so many bytes behind the address in registers."""
    return _put(frame, frame.header, address, beyond, value, words)


def put_record(frame: Frame, address: int, beyond: int, value: int, words: int) -> Step:
    """Return a store into a warp's records, so many bytes behind the address in registers."""
    return _put(frame, frame.records, address, beyond, value, words)


def _put(frame: Frame, pair: int, address: int, beyond: int, value: int, words: int) -> Step:
    if frame.near:
        return forms.store_near(address, pair, _BEYOND + beyond, value, words)
    return forms.store(address, beyond, value, words, frame.descriptor)
