"""Takes undocumented names away from ``ikp``, as another version of their package would."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import pytest

from ikp import probing
from ikp.backends.triton.unedited import _foreign as launches
from ikp.errors import IkpWarning
from ikp.probing import Feature, Foreign, Private

_builtins = {"getattr": getattr, "hasattr": hasattr}


def packages() -> list[Foreign]:
    """Return every list of names."""
    from ikp.backends.cute._foreign import CUTE
    from ikp.backends.triton.foreign import TRITON

    return [TRITON, CUTE, launches.TRITON, launches.TORCH]


def named(package: Foreign, *features: Feature) -> list[Any]:
    """Return parameters of a test: each name of some features, with its feature."""
    return [
        pytest.param(package, feature, name, id=str(name))
        for feature in features
        for name in feature.names
    ]


@contextmanager
def renamed(package: Foreign, name: Private) -> Iterator[None]:
    """Have ``ikp`` not find a name where it looks, neither on a module, a class nor an object."""
    within, _, hidden = name.path.rpartition(".")
    parent = Private(name.module, within).find() if within else import_module(name.module)

    def gone(owner: Any, attribute: str) -> bool:
        kind = isinstance(parent, type) and isinstance(owner, parent)
        return attribute == hidden and (owner is parent or kind)

    def get(owner: Any, attribute: str, *default: Any) -> Any:
        if gone(owner, attribute) and not default:
            raise AttributeError(f"renamed: {attribute}")
        return _builtins["getattr"](owner, attribute, *default)

    def has(owner: Any, attribute: str) -> bool:
        return not gone(owner, attribute) and bool(_builtins["hasattr"](owner, attribute))

    package.forget()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probing, "getattr", get, raising=False)
        patch.setattr(probing, "hasattr", has, raising=False)
        try:
            yield
        finally:
            package.forget()


@contextmanager
def told_once(package: Foreign, feature: Feature, name: Private) -> Iterator[None]:
    """Expect one warning of ``ikp``, which says what is gone, what that means and what to do."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    texts = [str(each.message) for each in caught if each.category is IkpWarning]
    (told,) = (text for text in texts if feature.lost in text)
    assert all(f" has no {name}, " in text for text in texts)  # others may need it, too
    assert told.startswith(f"{package.package} {package.installed()} has no {name}, ")
    assert "ikp knows" in told
    assert told.endswith(f"Upgrade ikp, or install {package.package} {package.known[1]}.")
