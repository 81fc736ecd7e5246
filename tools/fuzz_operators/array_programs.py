"""Suites of small programs over two arrays: a matrix of numbers, and one of whole numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from tools.fuzz_operators.cases import Case

Program = Callable[[Any, Any], Any]
"""Takes a matrix of floats and one of whole numbers from 0 to 99; returns an array, or several."""

_SHAPE = (513, 1031)
_SEED = 7


class ArrayPrograms(ABC):
    """Programs of an array library, each run with two types of floats."""

    types: Sequence[str] = ("float32", "float64")

    @abstractmethod
    def load(self) -> Mapping[str, Program]:
        """Import the library, in a process that may use the GPU; return its programs."""

    @abstractmethod
    def listed(self) -> list[str]:
        """Return the programs' names, with nothing imported."""

    @abstractmethod
    def array(self, values: Any) -> Any:
        """Return numpy's values on the GPU."""

    @abstractmethod
    def wait(self) -> None:
        """Wait for the GPU."""

    def compiled(self, program: Program) -> Program:
        """Return what is run, from what is written."""
        return program

    def prepare(self) -> None:
        """Import torch, in whose memory records lie; the library comes when it may use the GPU."""
        import torch  # noqa: F401

    def names(self) -> list[str]:
        """Return the programs in the order in which they are written."""
        return self.listed()

    def cases(self, name: str) -> Iterator[Case]:
        """Yield a program's cases."""
        program = self.compiled(self.load()[name])
        for each in self.types:
            yield Case(each, partial(self._inputs, each), partial(_run, program))

    def _inputs(self, name: str) -> tuple[Any, Any]:
        random = np.random.default_rng(_SEED)
        floats = random.standard_normal(_SHAPE).astype(name)
        whole = random.integers(0, 100, _SHAPE).astype(np.int32)
        return self.array(floats), self.array(whole)


def _run(program: Program, inputs: tuple[Any, Any]) -> list[Any]:
    made = program(*inputs)
    return list(made) if isinstance(made, (tuple, list)) else [made]


def functions(module: ModuleType | type) -> list[str]:
    """Return the names of what a class has of programs, in their order."""
    return [name for name in vars(module) if not name.startswith("_")]
