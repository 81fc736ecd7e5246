"""CuTe functions, compiled once with a buffer and once without."""

from collections.abc import Callable
from typing import Any

from cutlass import cute


class Compiled:
    """Launches ``function(*operands, *constants, prof)``.

    Args:
        function: the host function.
        operands: what it takes at run time.
        constants: what it is compiled for.
    """

    def __init__(
        self, function: Callable[..., None], operands: tuple[Any, ...], *constants: Any
    ) -> None:
        self._function, self._operands, self._constants = function, operands, constants
        self._made: dict[bool, Callable[..., None]] = {}

    def __call__(self, prof: Any) -> None:
        """Launch it, recorded or not."""
        recorded = prof is not None
        if recorded not in self._made:
            arguments = (*self._operands, *self._constants, prof)
            self._made[recorded] = cute.compile(self._function, *arguments)
        self._made[recorded](*self._operands, prof)
