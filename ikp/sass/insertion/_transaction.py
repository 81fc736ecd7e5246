"""``attempt``: a context manager that rolls back changes to a kernel if one is refused."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

from ikp.errors import PatchError
from ikp.sass.cubins.cubin import Cubin, Kernel


@contextmanager
def attempt(cubin: Cubin, kernel: Kernel) -> Iterator[None]:
    """Roll back all changes to a cubin's sections and a kernel if one is refused.

    The cubin can then still be written.

    Raises:
        PatchError: also where parts of the cubin contradict each other.
    """
    sections = [(each, each.data, each.info) for each in cubin.elf.sections]
    attributes = [(each, each.value) for each in kernel.attributes]
    registers, done = kernel.registers, False
    try:
        yield
        done = True
    except (struct.error, ValueError, LookupError, OverflowError) as error:
        raise PatchError(
            f"The cubin with {kernel.name} is damaged: its parts contradict each other ({error}). "
            "Compile it again."
        ) from error
    finally:
        if not done:
            kernel.registers = registers
            for section, data, info in sections:
                section.data, section.info = data, info
            for attribute, value in attributes:
                attribute.value = value
