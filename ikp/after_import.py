"""An import hook that patches modules of other packages once the program imports them."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TypeAlias

__tracebackhide__ = True  # pytest shows a launch that fails as it does without ikp
Step: TypeAlias = Callable[[ModuleType], Callable[[], None]]
"""Changes a module, and returns the function that changes it back."""


@contextmanager
def stepping_into(steps: Mapping[str, Step]) -> Iterator[None]:
    """Change modules, by their names, until the context is left.

    No module is imported for it: the program may want to set its environment first. Modules that
    are imported already are changed at once.
    """
    undo: list[Callable[[], None]] = []
    finder = _AfterImport({name: _noted(step, undo) for name, step in steps.items()})
    sys.meta_path.insert(0, finder)
    for name, step in finder.steps.items():
        if name in sys.modules:
            step(sys.modules[name])
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for restore in undo:
            restore()


def _noted(step: Step, undo: list[Callable[[], None]]) -> Callable[[ModuleType], None]:
    return lambda module: undo.append(step(module))


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls a function with a module as soon as the program has imported it."""

    def __init__(self, steps: dict[str, Callable[[ModuleType], None]]) -> None:
        self.steps = steps
        self._finding = False

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - importlib's signature
        target: ModuleType | None = None,  # noqa: ARG002 - importlib's signature
    ) -> ModuleSpec | None:
        """Find a module as Python would, with a loader that calls its function afterwards."""
        if self._finding or fullname not in self.steps:
            return None
        self._finding = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._finding = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self.steps[fullname])
        return spec


class _Loader(importlib.abc.Loader):
    """A module's own loader, which calls a function once the module has been executed."""

    def __init__(self, loader: importlib.abc.Loader, step: Callable[[ModuleType], None]) -> None:
        self._loader, self._step = loader, step

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._step(module)
