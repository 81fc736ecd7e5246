"""Kernels as launches know them: specialisations with their labels, names, and the levels that they
take.

A jitted function is specialised by constants, types and launch options. Triton specialises further,
by whether an integer is a multiple of 16. That is not distinguished here: it is not in the source,
and it changes from one launch to the next.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import cache
from typing import Final

from ikp.backends.labels import Labels
from ikp.backends.triton.unedited._foreign import JittedFunction, parameters
from ikp.errors import KernelError
from ikp.probing import Untyped
from ikp.session.storage import drives_cuda
from ikp.unedited.plan import Plan

Values = tuple[tuple[str, object], ...]
_OPTIONS: Final = ("num_warps", "num_stages", "num_ctas", "maxnreg")
_UNHASHABLE: Final = (list, dict, set)
_LEFT_OUT: Final = object()
_LONGEST: Final = 60
"""The most characters of the values in a label."""


def values(kernel: JittedFunction, args: tuple[object, ...], kwargs: dict[str, object]) -> Values:
    """Return the values that a launch specialises a function to; cheap, as each launch calls it.

    Args:
        kernel: the jitted function.
        args: arguments of its ``run``.
        kwargs: arguments of its ``run``.
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


def _with_defaults(kernel: JittedFunction, given: Values) -> Values:
    """Return the values with the function's defaults of constants that a launch does not pass."""
    names, fixed = parameters(kernel)
    last = getattr(kernel.fn, "__defaults__", None) or ()
    defaults = dict(zip(names[len(names) - len(last) :], last, strict=True))
    defaults |= getattr(kernel.fn, "__kwdefaults__", None) or {}
    every = {names[at]: defaults[names[at]] for at in fixed if names[at] in defaults} | dict(given)
    return tuple((name, every[name]) for name in (*names, *_OPTIONS) if name in every)


class Special:
    """A jitted function with a specialisation's names; all other attributes are the function's."""

    def __init__(
        self, kernel: JittedFunction, full_name: str, labels: list[str], known: Labels
    ) -> None:
        self.jitted, self.full_name = kernel, full_name
        self._labels, self._known = labels, known

    @property
    def names(self) -> tuple[str]:
        """The names that a pattern may match."""
        return (module_and_name(self.jitted),)

    @property
    def __name__(self) -> str:
        """The label; it is assigned when first read, so that an autotuner's trials take none."""
        return self._known.of(self.full_name, self._labels)

    def __getattr__(self, name: str) -> Untyped:
        return getattr(self.jitted, name)


_Names = tuple[str, list[str]]


class _Launched:
    """A function's launches: names by what of the arguments specialises it, in any form."""

    def __init__(self, names: list[str], fixed: Sequence[int]) -> None:
        self.names: dict[tuple[object, ...], _Names] = {}
        self._fixed = tuple(fixed)
        self._whole = {*_OPTIONS, *(names[at] for at in fixed)}
        self._named = {*_OPTIONS, *names}

    def key(self, args: tuple[object, ...], kwargs: dict[str, object]) -> tuple[object, ...]:
        """Return a key that is equal for launches with equal ``values``."""
        key = [getattr(value, "dtype", None) for value in args]
        for at in self._fixed:
            if at < len(key):
                key[at] = args[at]
        for name, value in kwargs.items():
            if name in self._named:
                key.append(name)
                key.append(value if name in self._whole else getattr(value, "dtype", None))
        return tuple(key)


class Specials:
    """The specialisations that were launched.

    A function's first one has the function's name as its label. Another one has it with the values
    that differ from the first one's: ``softmax<BLOCK=4096>``. One that only lacks some is numbered:
    a kernel compiled ahead is launched without its constants.
    """

    def __init__(self, labels: Labels) -> None:
        self._known = labels
        self._first: dict[str, Values] = {}
        self._named: dict[tuple[str, Values], _Names] = {}
        self._launched: dict[int, _Launched] = {}  # by the function's id

    def of(
        self,
        kernel: JittedFunction,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> Special:
        """Return a function as a launch specialises it."""
        launched = self._launched.get(id(kernel)) or self._begin(kernel)
        key = launched.key(args, kwargs or {})
        try:
            names = launched.names.get(key)
        except TypeError:  # a constant can't be hashed
            names = self._named_by(kernel, args, kwargs or {})
        else:
            if names is None:
                names = launched.names[key] = self._named_by(kernel, args, kwargs or {})
        return Special(kernel, *names, self._known)

    def _begin(self, kernel: JittedFunction) -> _Launched:
        made = self._launched[id(kernel)] = _Launched(*parameters(kernel))
        weakref.finalize(kernel, self._launched.pop, id(kernel), None).atexit = False
        return made

    def _named_by(
        self, kernel: JittedFunction, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> _Names:
        """Return the unique name of what a launch specialises a function to, and its labels."""
        key = module_and_name(kernel), values(kernel, args, kwargs)
        if key not in self._named:
            self._named[key] = self._names(kernel, key[0], _with_defaults(kernel, key[1]))
        return self._named[key]

    def count(self, kernel: JittedFunction) -> int:
        """Return how many specialisations of a function were launched."""
        name = module_and_name(kernel)
        return sum(each == name for each, _ in self._named)

    def _names(self, kernel: JittedFunction, name: str, given: Values) -> tuple[str, list[str]]:
        """Return a specialisation's unique name, and its labels, best first."""
        first = self._first.setdefault(name, given)
        own = [kernel.__name__, name]
        if given == first:
            return _full(name, given), own
        base = self._known.of(_full(name, first), own)
        differ = ", ".join(
            f"{key}={_text(each)}" for key, each in given if (key, each) not in first
        )
        return _full(name, given), [f"{base}<{differ[:_LONGEST]}>" if differ else base]


def _full(name: str, given: Values) -> str:
    texts = ", ".join(f"{key}={_text(each)}" for key, each in given)
    return f"{name}<{texts}>" if texts else name


def module_and_name(kernel: JittedFunction) -> str:
    """Return a function's module and name: two may share the name."""
    python: Untyped = getattr(kernel, "fn", kernel)
    return f"{python.__module__}.{python.__qualname__}"


def _text(value: object) -> str:
    return str(getattr(value, "__name__", value)).removeprefix("torch.")


_NOTHING = "Triton's interpreter makes nothing"


def full_name(kernel: JittedFunction) -> str:
    """Return a kernel's unique name: of a jitted function, with its specialisation's values."""
    return getattr(kernel, "full_name", None) or module_and_name(kernel)


def names(kernel: JittedFunction) -> tuple[str, ...]:
    """Return the names that a pattern may match, the shortest first."""
    return getattr(kernel, "names", None) or (module_and_name(kernel),)


def is_compiled(kernel: JittedFunction) -> bool:
    """Whether a kernel is compiled, by Triton or for the driver's backend, and not interpreted."""
    own = kernel.jitted if isinstance(kernel, Special) else kernel
    if hasattr(type(own), "cache_key"):  # of an object, it takes long to make
        return True
    return hasattr(own, "cache_key") or hasattr(own, "launched")


def takes_source(kernel: JittedFunction) -> bool:
    """Whether a kernel is marked in its source: interpreted, or for no GPU of NVIDIA's."""
    return not is_compiled(kernel) or not drives_cuda()


def check_level(plan: Plan, kernel: JittedFunction) -> None:
    """Refuse a level that is not for a kernel.

    Raises:
        KernelError: it is not.
    """
    if plan.level == "source" and not takes_source(kernel):
        raise KernelError(
            "level='source' is for Triton's interpreter and other GPUs. On NVIDIA GPUs, records go "
            "into the finished machine code (level='machine'), where they change nothing else, or "
            "into the PTX that it is made of (level='ptx'): leave the level out for the better one."
        )
    if plan.afterwards and takes_source(kernel):
        other = "this kernel is compiled for other GPUs"
        raise KernelError(
            f"level={plan.level!r} puts records into what a compiler has made for NVIDIA GPUs, and "
            f"{other if is_compiled(kernel) else _NOTHING}. Use level='source'."
        )


@cache
def hook_the_compiler() -> None:
    """Set the hooks that a session sets, before Triton looks for the kernel among compiled ones.

    Triton's key of a compiled kernel has a part more while a hook on the stages is set. Set inside
    a launch, the hook would have the next launch compile, load and patch the kernel once more.
    """
    from ikp.backends.triton import _hooks as hooks

    hooks.install()
