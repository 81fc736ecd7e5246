"""Recording inside one process, as ``ikp run`` sets it up: one detail after the other."""

from __future__ import annotations

import ctypes
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Protocol

DETAILS = ("kernel", "loops", "waits", "ops")

RECORDED = "recorded"
Kernels = dict[str, dict[str, int]]
"""Launches of each kernel, by ``library.name``: recorded ones, and others by their reason."""


class Records(Protocol):
    """What records, or seems to in a test."""

    def begin(self, detail: str) -> None:
        """Have what follows recorded with another detail."""

    def recording(self, kernels: Kernels) -> AbstractContextManager[None]:
        """Record what is launched in this block, and add what was launched to ``kernels``."""

    def trace(self) -> dict[str, int]:
        """Decode what was recorded with this detail, and give its memory back."""


def load_before_driver() -> None:
    """Load the library that sees the driver's calls; it must be there before the driver is.

    Raises:
        PatchError: there is no driver, or it is in the process already.
    """
    from ikp.backends.driver._library import install

    install()


_NOT_INITIALISED = 3


def check_untouched() -> None:
    """Check that nothing has initialised CUDA here: a forked process could not use it.

    Raises:
        RuntimeError: something has.
    """
    count = ctypes.c_int()
    driver = ctypes.CDLL("libcuda.so.1")  # the hook's, or the driver itself
    if (code := driver.cuDeviceGetCount(ctypes.byref(count))) != _NOT_INITIALISED:
        raise RuntimeError(
            f"CUDA is initialised before processes are forked (cuDeviceGetCount: {code}): an "
            "import has asked for the GPU. Find it, and have it asked later."
        )


class Recorder:
    """Records all kernels, torch's and the libraries', with the options that ``ikp run`` takes."""

    def __init__(self, words: Sequence[str]) -> None:
        """Set up the recording; words are options of ``ikp run``."""
        self._options = options(words)
        self._session = self._options.session().start()
        self._launcher: Any = self._options.launcher()
        self._on = False
        self._launcher.session = lambda: self._session if self._on else None
        self._stack = ExitStack()
        self._asks = False

    def begin(self, detail: str) -> None:
        """Have what follows recorded with another detail, and forget what was refused before.

        The first call makes the driver's hook ask, which it does only once of a kernel that can't
        be recorded at all: what runs before is not asked about.
        """
        self._launcher.plan = replace(self._options, detail=detail).plan()
        for each in ("seen", "recorded", "plain", "failed"):
            getattr(self._launcher, each).clear()
        if not self._asks:
            from ikp import registry

            self._asks = True
            self._stack.enter_context(self._launcher.stepping_in())
            for backend in registry.own().values():
                if hasattr(backend, "beside"):
                    self._stack.enter_context(backend.beside(self._launcher))

    @contextmanager
    def recording(self, kernels: Kernels) -> Iterator[None]:
        """Record what is launched in this block, and add what was launched to ``kernels``."""
        launcher = self._launcher
        recorded, plain = Counter(launcher.recorded), Counter(launcher.plain)
        self._on = True
        try:
            yield
        finally:
            self._on = False
            full = _full_names([*launcher.seen, *launcher.failed])
            for name, count in (launcher.recorded - recorded).items():
                kernels.setdefault(full.get(name, name), {})[RECORDED] = count
            for (name, reason), count in (launcher.plain - plain).items():
                kernels.setdefault(full.get(name, name), {})[reason] = count

    def trace(self) -> dict[str, int]:
        """Decode what was recorded with this detail, and give its memory back.

        Raises:
            DecodeError: something else has written over it.
        """
        trace = self._session.trace
        launches = trace.launches
        found = {
            "launches": len(launches),
            "kept": sum(each.kept for each in launches),
            "dropped": sum(each.dropped for each in launches),
            "unfinished": sum(each.unfinished for each in launches),
        }
        self._session.reset()
        return found


def _full_names(names: Iterable[str]) -> dict[str, str]:
    """Return names with what holds the kernel, by the names that launches are counted by.

    A kernel of a library is called ``library.name``, Triton's ``package.module.name``.
    """
    full: dict[str, str] = {}
    for each in names:
        full[each.rpartition(".")[2]] = each
        full[each.partition(".")[2]] = each
    return full


def options(words: Sequence[str]) -> Any:
    """Return what ``ikp run`` makes of a command line."""
    from ikp.cli._run import command
    from ikp.running.run_options import Options

    path = Path(tempfile.gettempdir()) / "fuzz-never-written.pftrace"
    every = ["--kernel", "*", "--launch", ":", "--out", str(path), *words, "program.py"]
    given = command.make_context("run", every).params
    own = {each.name for each in fields(Options)} - {"force"}
    chosen = {name: value for name, value in given.items() if name in own}
    return Options(path=str(path), force=True, explain=False, **chosen)
