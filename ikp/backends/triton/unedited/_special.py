"""What a jitted function is specialised to: constants, types and options that a user has written.

Triton specialises further, by whether an integer is a multiple of 16. That is not told apart:
nobody has written it, and it changes from one launch to the next.
"""

from __future__ import annotations

from typing import Final

from ikp.backends.labels import Labels
from ikp.backends.triton.unedited._foreign import Kernel, parameters
from ikp.probing import Untyped

Values = tuple[tuple[str, object], ...]
_OPTIONS: Final = ("num_warps", "num_stages", "num_ctas", "maxnreg")
_LONGEST: Final = 60
"""Characters of a label's values."""


def values(kernel: Kernel, args: tuple[object, ...], kwargs: dict[str, object]) -> Values:
    """Return what a launch specialises a function to: each launch asks, so nothing is made of it.

    Args:
        kernel: the jitted function.
        args: what its ``run`` takes.
        kwargs: what its ``run`` takes.
    """
    (names, fixed), found = parameters(kernel), []
    for at, name in enumerate(names):
        value = args[at] if at < len(args) else kwargs.get(name)
        if at not in fixed:
            value = getattr(value, "dtype", None)
        if value is not None:
            found.append((name, str(value) if isinstance(value, list | dict | set) else value))
    found += [(name, kwargs[name]) for name in _OPTIONS if kwargs.get(name) is not None]
    return tuple(found)


class Special:
    """A jitted function with what it is specialised to; in all else, it is that function."""

    def __init__(self, kernel: Kernel, given: Values, labels: list[str], known: Labels) -> None:
        self.jitted, self._labels, self._known = kernel, labels, known
        self.names = (module_and_name(kernel),)
        texts = ", ".join(f"{name}={_text(value)}" for name, value in given)
        self.full_name = f"{self.names[0]}<{texts}>" if texts else self.names[0]

    @property
    def __name__(self) -> str:
        """The label; it is given when somebody asks for it: trials of an autotuner take none."""
        return self._known.of(self.full_name, self._labels)

    def __getattr__(self, name: str) -> Untyped:
        return getattr(self.jitted, name)


class Specials:
    """The specialisations that were launched.

    The first of a function has its name. Another one has that with the values that differ from the
    first one's: ``softmax<BLOCK=4096>``.
    """

    def __init__(self, labels: Labels) -> None:
        self._known = labels
        self._first: dict[str, Values] = {}

    def of(
        self, kernel: Kernel, args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None
    ) -> Special:
        """Return a function as a launch specialises it."""
        given, name = values(kernel, args, kwargs or {}), module_and_name(kernel)
        first = self._first.setdefault(name, given)
        if given == first:
            return Special(kernel, given, [kernel.__name__, name], self._known)
        base = Special(kernel, first, [kernel.__name__, name], self._known).__name__
        differ = (f"{key}={_text(each)}" for key, each in given if (key, each) not in first)
        return Special(kernel, given, [f"{base}<{', '.join(differ)[:_LONGEST]}>"], self._known)


def module_and_name(kernel: Kernel) -> str:
    """Return a function's module and name: two may share the name."""
    python: Untyped = getattr(kernel, "fn", kernel)
    return f"{python.__module__}.{python.__qualname__}"


def _text(value: object) -> str:
    return str(getattr(value, "__name__", value)).removeprefix("torch.")
