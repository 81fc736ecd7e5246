"""Shell patterns for names, such as ``load*``, of regions, launches, roles and kernels.

A pattern is a name, or has the shell's wildcards: ``load*``, ``?``, ``[ab]``. A name that exists
exactly as written goes first, so ``a[0]`` means the region ``a[0]`` if there is one. Upper and
lower case differ. The library and every command use this one pattern language.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase, translate

from ikp.errors import UsageError
from ikp.terminal import shortened

Names = str | Iterable[str] | Callable[[str], bool]
"""A choice of names: a pattern like ``"load*"``, several, or a predicate of a name."""
_MOST_LISTED = 20


def choose(names: Sequence[str], wanted: Names, what: str) -> list[bool]:
    """Return which of ``names`` are wanted; ``what``, the word for one of them, is for the error.

    Raises:
        UsageError: none is; the message lists all names.
    """
    if callable(wanted):
        chosen = [bool(wanted(name)) for name in names]
    else:
        patterns = [wanted] if isinstance(wanted, str) else list(wanted)
        chosen = _chosen(names, patterns, what)
    if names and not any(chosen):
        raise UsageError(f"no {what} matches {_text(wanted)}; there are: {_listed(names)}.")
    return chosen


def _texts(patterns: Sequence[object], what: str) -> list[str]:
    """Return patterns, which are texts, or refuse the first that is none."""
    for one in patterns:
        if not isinstance(one, str):
            raise UsageError(f"a {what} is chosen by a pattern like 'load*', not by {one!r}.")
    return [one for one in patterns if isinstance(one, str)]


def _chosen(names: Sequence[str], patterns: Sequence[object], what: str) -> list[bool]:
    texts = _texts(patterns, what)
    exact = set(texts) & set(names)
    globs = [one for one in texts if one not in exact]
    return [name in exact or any(fnmatchcase(name, one) for one in globs) for name in names]


def dotted(pattern: str) -> re.Pattern[str]:
    """Return the regular expression of a pattern for dotted names, as ``package.module.name``.

    The pattern means a whole name, or the part behind a dot: ``matmul``, ``ops.mm*``, ``*mm*``.
    Names in code hold no wildcards, so no exact name has to go first.
    """
    return re.compile(rf"\A(?:.*\.)?(?:{translate(pattern)})")


def _listed(names: Iterable[str]) -> str:
    """Return distinct names for a message, sorted; of many, the first ones and how many more."""
    known = sorted(set(names))
    texts = [f"'{shortened(name)}'" for name in known[:_MOST_LISTED]]
    more = len(known) - _MOST_LISTED
    return ", ".join(texts) + (f" and {more:,} more" if more > 0 else "") or "none"


def _text(wanted: Names) -> str:
    if callable(wanted):
        return getattr(wanted, "__qualname__", None) or repr(wanted)
    return repr(wanted) if isinstance(wanted, str) else " or ".join(map(repr, wanted))
