"""Leads ikp into a program that ``ikp run`` starts, and leaves no other trace of itself there.

``ikp run`` starts Python with this folder first in ``PYTHONPATH``. Python's ``site`` module then
imports this file before the program begins. It takes the folder and ikp's variables away again, has
the ``sitecustomize`` imported that Python would have found without it, and leaves two things: a
finder that waits for Triton to be imported, and a function for the end of the process. Before
Triton is imported, nothing of ikp is: a program without kernels is Python's alone (docs/decisions).

It imports little, because the program would see that its own modules of those names are passed by.
"""

from __future__ import annotations

import atexit
import os
import sys
from importlib import import_module
from importlib.machinery import PathFinder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

    from ikp.cli.recording import Recording

FOLDER = os.path.dirname(__file__)  # noqa: PTH120 - pathlib is more than this file may import
PACKAGE = os.path.dirname(os.path.dirname(FOLDER))  # noqa: PTH120
OPTIONS = "IKP_RUN"
OLD_PATH = "IKP_RUN_PYTHONPATH"
"""What ``PYTHONPATH`` was, if it was set; ``ikp.cli.program`` sets all three."""
AWAITED = ("triton", "torch._inductor.runtime.triton_heuristics")
"""Whoever launches a kernel imports one of these first, and a class to step into after it."""


class Wait:
    """A finder that finds nothing: it begins the recording when the program imports Triton."""

    def __init__(self, options: str) -> None:
        self.options = options
        self.process = os.getpid()
        self.recording: Recording | None = None
        self._first = [True]

    def find_spec(self, name: str, *_: object) -> None:
        """Begin at the first of the awaited imports, in whichever thread."""
        if name in AWAITED and self._first:
            self._first.clear()  # and stays in sys.meta_path, which importlib goes through now
            self.begin()

    def begin(self) -> None:
        """Step in; on any surprise say so, and let the program run plain."""
        try:
            forked = os.getpid() != self.process
            self.recording = _recording().begin(self.options, forked=forked)
        except Exception as error:  # noqa: BLE001 - whatever it is, the program did not ask for it
            _say(f"nothing is recorded: {error or type(error).__name__}")

    def end(self) -> None:
        """Write the trace and report. A process that the program forked has nothing to write."""
        if os.getpid() == self.process:
            _recording().end(self.options, self.recording)


def _recording() -> ModuleType:
    """Import ikp from where this file lies, even if the program could not."""
    if "ikp" not in sys.modules:
        from importlib.util import module_from_spec

        spec = PathFinder.find_spec("ikp", [os.path.dirname(PACKAGE)])  # noqa: PTH120
        if spec is None or spec.loader is None:
            raise ImportError(f"{PACKAGE} is gone")
        sys.modules["ikp"] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules["ikp"])
    return import_module("ikp.cli.recording")


def _say(text: str) -> None:
    if sys.__stderr__ is not None:
        sys.__stderr__.write(f"ikp: {text}\n")


def _hide() -> None:
    """Give back the search path and the environment that the user's shell has."""
    sys.path[:] = [each for each in sys.path if each != FOLDER]
    sys.path_importer_cache.pop(FOLDER, None)
    old = os.environ.pop(OLD_PATH, None)
    if old is not None:
        os.environ["PYTHONPATH"] = old
    else:
        os.environ.pop("PYTHONPATH", None)


def _wait(options: str) -> None:
    wait = Wait(options)
    atexit.register(wait.end)  # registered first, so it runs after the program's own
    if any(name in sys.modules for name in AWAITED):  # a .pth file has imported it
        wait.begin()
    else:
        sys.meta_path.insert(0, wait)


if (_options := os.environ.pop(OPTIONS, None)) is not None:
    _hide()
    _wait(_options)
    # If there is none, the error goes on to `site`, which expects it.
    del sys.modules["sitecustomize"]
    import_module("sitecustomize")
