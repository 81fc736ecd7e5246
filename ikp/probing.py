"""Checks that other packages' undocumented names exist; a feature whose names are gone is off.

``ikp`` works inside compilers, on names that are not part of their API. Each is listed in a module
``foreign`` beside its users, under the feature that needs it. A feature whose names do not all
exist, in the form that ``ikp`` knows, is off: one warning says so, and the program runs on.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeAlias

from ikp.warning import warn

Untyped: TypeAlias = Any
"""An object of a package that ships no types to check by: of Triton, CuTe or torch.

Its names that are not part of an API are listed in a module ``foreign``, and probed at run time.
"""


@dataclass(frozen=True, slots=True)
class Private:
    """One undocumented name: its module and path, and the parameters that ``ikp`` relies on."""

    module: str  # "triton.runtime.jit"
    path: str  # inside the module: "JITFunction.run"
    takes: tuple[str, ...] = ()  # parameters that it must have, by name
    of_instances: bool = False  # the last part is known of objects alone, see ``Foreign.fits``

    def __str__(self) -> str:
        return f"{self.module}.{self.path}"

    def find(self) -> Untyped:
        """Return the object; of an attribute of instances, their class.

        Raises:
            ImportError: the module is not there.
            AttributeError: the name is not there.
            TypeError: it takes other arguments.
        """
        found: Untyped = import_module(self.module)
        parts = self.path.split(".")
        for part in parts[:-1] if self.of_instances else parts:
            found = getattr(found, part)
        if lacking := [name for name in self.takes if name not in _parameters(found)]:
            raise TypeError(f"no parameter {', '.join(lacking)}")
        return found


def _parameters(function: Callable[..., object]) -> set[str]:
    return set(inspect.signature(function).parameters)


@dataclass(frozen=True, slots=True, eq=False)
class Feature:
    """A feature of ``ikp``: the names that it needs, and the words on what is lost without them."""

    names: tuple[Private, ...]
    lost: str  # sentences: what does not work without them
    without: str = "The program itself runs as it does without ikp."


@dataclass(slots=True)
class Foreign:
    """The features of ``ikp`` that need one package; a warning is given once for each lost one."""

    package: str  # its name for users
    distribution: str  # its name for pip
    known: tuple[str, str]  # the first and the last version that ikp supports: "3.6", "3.9"
    features: tuple[Feature, ...]
    _works: dict[Feature, bool] = field(default_factory=dict)
    _fitting: set[tuple[Feature, type]] = field(default_factory=set)
    _lock: AbstractContextManager[bool] = field(default_factory=threading.RLock)

    def has(self, feature: Feature) -> bool:
        """Return whether a feature's names are all there; warn the first time they are not."""
        if (works := self._works.get(feature)) is not None:
            return works
        with self._lock:
            if feature not in self._works:
                wrong = next(filter(None, map(_wrong, feature.names)), "")
                if wrong:
                    self.lose(feature, wrong)
                else:
                    self._works[feature] = True
            return self._works[feature]

    def fits(self, feature: Feature, value: object) -> bool:
        """Return whether ``has``, and whether an object has the attributes that ``ikp`` uses."""
        if not self.has(feature):
            return False
        if (feature, type(value)) in self._fitting:
            return True
        kinds = {kind.__name__ for kind in type(value).__mro__}
        for name in feature.names:
            owner, _, attribute = name.path.rpartition(".")
            if name.of_instances and owner in kinds and not hasattr(value, attribute):
                self.lose(feature, f"has no {name}")
                return False
        self._fitting.add((feature, type(value)))
        return True

    def lose(self, feature: Feature, wrong: str) -> None:
        """Turn a feature off, and warn once: ``wrong`` is what the package lacks or does."""
        with self._lock:
            warned = self._works.get(feature) is False
            self._works[feature] = False
        if not warned:
            warn(self._text(feature, wrong), stacklevel=3)

    def forget(self) -> None:
        """Probe again: for tests, which remove names."""
        self._works.clear()
        self._fitting.clear()

    def installed(self) -> str:
        """Return the version that is installed."""
        try:
            return version(self.distribution)
        except PackageNotFoundError:  # built from source, and put on the path
            return "of an unknown version"

    def _text(self, feature: Feature, wrong: str) -> str:
        first, last = self.known
        installed = self.installed()
        known = f"ikp knows {self.package} {first} to {last}"
        if _numbers(installed) > _numbers(last):
            known = f"it is newer than what ikp knows, {self.package} {first} to {last}"
        return (
            f"{self.package} {installed} {wrong}, which ikp uses; {known}. {feature.lost} "
            f"{feature.without} Upgrade ikp, or install {self.package} {last}."
        )


def _wrong(name: Private) -> str:
    """Return the fault of a name, as "has no ..."; "" if it has none."""
    try:
        name.find()
    except ModuleNotFoundError as error:
        if error.name == name.module.partition(".")[0]:
            raise  # the package itself is not installed
        return f"has no {name.module}"
    except (ImportError, AttributeError):
        return f"has no {name}"
    except TypeError as error:
        return f"has another {name} ({error})"
    except ValueError:  # it is there: a property that has no value now
        return ""
    return ""


def _numbers(text: str) -> tuple[int, ...]:
    """Return major and minor version; nothing where they are unknown."""
    parts = text.split(".")[:2]
    return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else ()
