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
_UNHASHABLE: Final = (list, dict, set)
_LEFT_OUT: Final = object()
_LONGEST: Final = 60
"""Characters of a label's values."""


def values(kernel: Kernel, args: tuple[object, ...], kwargs: dict[str, object]) -> Values:
    """Return what a launch specialises a function to: each launch asks, so nothing is made of it.

    Args:
        kernel: the jitted function.
        args: what its ``run`` takes.
        kwargs: what its ``run`` takes.
    """
    (names, fixed), given = parameters(kernel), len(args)
    found: list[tuple[str, object]] = []
    for at, name in enumerate(names):
        value = args[at] if at < given else kwargs.get(name, _LEFT_OUT)
        if at not in fixed:
            value = getattr(value, "dtype", _LEFT_OUT)
        if value is not _LEFT_OUT:
            found.append((name, str(value) if isinstance(value, _UNHASHABLE) else value))
    found += [(name, kwargs[name]) for name in _OPTIONS if name in kwargs]
    return tuple(found)


def _with_defaults(kernel: Kernel, given: Values) -> Values:
    """Return the same with the constants that a launch leaves to the function."""
    names, fixed = parameters(kernel)
    last = getattr(kernel.fn, "__defaults__", None) or ()
    defaults = dict(zip(names[len(names) - len(last) :], last, strict=True))
    defaults |= getattr(kernel.fn, "__kwdefaults__", None) or {}
    every = {names[at]: defaults[names[at]] for at in fixed if names[at] in defaults} | dict(given)
    return tuple((name, every[name]) for name in (*names, *_OPTIONS) if name in every)


class Special:
    """A jitted function with what it is specialised to; in all else, it is that function."""

    def __init__(self, kernel: Kernel, full_name: str, labels: list[str], known: Labels) -> None:
        self.jitted, self.full_name = kernel, full_name
        self._labels, self._known = labels, known

    @property
    def names(self) -> tuple[str]:
        """What a pattern may fit."""
        return (module_and_name(self.jitted),)

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
        self._named: dict[tuple[str, Values], tuple[str, list[str]]] = {}

    def of(
        self, kernel: Kernel, args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None
    ) -> Special:
        """Return a function as a launch specialises it."""
        key = module_and_name(kernel), values(kernel, args, kwargs or {})
        if key not in self._named:
            self._named[key] = self._names(kernel, key[0], _with_defaults(kernel, key[1]))
        return Special(kernel, *self._named[key], self._known)

    def _names(self, kernel: Kernel, name: str, given: Values) -> tuple[str, list[str]]:
        """Return what tells a specialisation from all others, and its labels, best first."""
        first = self._first.setdefault(name, given)
        own = [kernel.__name__, name]
        if given == first:
            return _full(name, given), own
        base = self._known.of(_full(name, first), own)
        differ = ", ".join(
            f"{key}={_text(each)}" for key, each in given if (key, each) not in first
        )
        return _full(name, given), [f"{base}<{differ[:_LONGEST]}>"]


def _full(name: str, given: Values) -> str:
    texts = ", ".join(f"{key}={_text(each)}" for key, each in given)
    return f"{name}<{texts}>" if texts else name


def module_and_name(kernel: Kernel) -> str:
    """Return a function's module and name: two may share the name."""
    python: Untyped = getattr(kernel, "fn", kernel)
    return f"{python.__module__}.{python.__qualname__}"


def _text(value: object) -> str:
    return str(getattr(value, "__name__", value)).removeprefix("torch.")
