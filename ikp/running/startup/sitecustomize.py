"""Leads ikp into a program that ``ikp run`` starts, and leaves no other trace of itself there.

``ikp run`` starts Python with this folder first in ``PYTHONPATH``. Python's ``site`` module then
imports this file before the program begins. It takes the folder and ikp's variables away again, has
the ``sitecustomize`` imported that Python would have found without it, and leaves two things: a
finder that waits for Triton to be imported, and a function for the end of the process. Before
Triton is imported, nothing of ikp is: a program without kernels is Python's alone (decision 22).

It imports little: what is imported here, no program finds in its own folder any more.
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

    from ikp.running.recording import Recording

_FOLDER = os.path.dirname(__file__)  # noqa: PTH120 - pathlib is more than this file may import
_PACKAGE = os.path.dirname(os.path.dirname(_FOLDER))  # noqa: PTH120
WISH = "IKP_RUN"
OLD_PATH = "IKP_RUN_PYTHONPATH"
"""Variables: what ``ikp run`` was asked for, and what ``PYTHONPATH`` was, if it was set."""
AWAITED = ("triton", "torch._inductor.runtime.triton_heuristics")
"""Whoever launches a kernel imports one of these first, and a class to step into after it."""
DRIVEN = ("torch", "cuda", "cutlass", "cupy", "tilelang", "numba", "jax", "pycuda", "tvm_ffi")
"""Whoever comes to the CUDA driver otherwise imports one of these, and it must not be there yet."""
NO_KERNEL = (
    "no Triton or Gluon kernel was launched in this process. Kernels of child processes are not "
    "seen: put `ikp run` in front of the child's own command."
)


class Wait:
    """A finder that finds nothing: it begins the recording when the program imports Triton."""

    def __init__(self, wish: str) -> None:
        self.options, _, self.path = wish.partition("\n")
        self.process = os.getpid()
        self.recording: Recording | None = None
        self.failure = ""
        asked = '"level": "machine"' in self.options
        unasked = '"level": null' in self.options
        self.awaited = AWAITED + DRIVEN * driven("machine" if asked else None if unasked else "")
        self._first = [True]

    def find_spec(self, name: str, *_: object) -> None:
        """Begin at the first of the awaited imports, in whichever thread."""
        if name in self.awaited and self._first:
            self._first.clear()  # and stays in sys.meta_path, which importlib goes through now
            try:
                self.begin()
            except BaseException:  # a signal handler has raised: the next import tries again
                if self.recording is None:
                    self._first.append(True)
                raise

    def begin(self) -> None:
        """Step in; on any surprise let the program run plain, and say so at its end."""
        try:
            forked = os.getpid() != self.process
            _import_ikp()
            with import_module("ikp.signals").deferred():
                self.recording = _recording().begin(self.options, self.path, forked=forked)
        except Exception as error:  # noqa: BLE001 - whatever it is, the program did not ask for it
            if (signals := sys.modules.get("ikp.signals")) is not None:
                signals.pass_on(error)
            self.failure = f"nothing is recorded: {type(error).__name__}: {error}"

    def end(self) -> None:
        """Write the trace and report. A process that the program forked has nothing to write."""
        if os.getpid() != self.process:
            if self.recording is not None:
                self.recording.step_out()
            return
        try:  # noqa: SIM105 - contextlib is more than this file may import
            sys.stdout.flush()  # what the program has printed comes first
        except Exception:  # noqa: BLE001, S110 - Python tries again, and says what is wrong
            pass
        if self.recording is None:
            say(self.failure or NO_KERNEL)
            say_nothing_written(self.path)
        else:
            self.recording.end()


def driven(level: str | None) -> bool:
    """Whether kernels are met at the CUDA driver, where a level is asked for, or none."""
    if level is None:  # where there is no GPU, a program without Triton is left alone
        return any(map(os.path.exists, ("/dev/nvidiactl", "/dev/dxg")))
    return level == "machine"


def _recording() -> ModuleType:
    return import_module("ikp.running.recording")


def _import_ikp() -> None:
    """Import ikp from where this file lies, even if the program could not."""
    there = sys.modules.get("ikp")
    own = PathFinder.find_spec("ikp") if there is None else there.__spec__
    if own is not None and own.origin and own.submodule_search_locations is None:
        raise ImportError(
            f"the program has a module of its own that is called ikp, {own.origin}, and one "
            "process can't have both: give it another name"
        )
    if there is None:
        from importlib.util import module_from_spec

        spec = PathFinder.find_spec("ikp", [os.path.dirname(_PACKAGE)])  # noqa: PTH120
        if spec is None or spec.loader is None:
            raise ImportError(f"{_PACKAGE} is gone")
        sys.modules["ikp"] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules["ikp"])


def say(text: str) -> None:
    """Print one line of ikp's own among the program's."""
    put(f"ikp: {text}")


def put(text: str) -> None:
    """Print on the stderr that Python began with, whatever the program made of it since."""
    try:
        if sys.__stderr__ is not None:
            sys.__stderr__.write(f"{text}\n")
            sys.__stderr__.flush()
    except (OSError, ValueError):  # closed, or its reader has gone
        pass


def say_nothing_written(path: str) -> None:
    """Say that a trace that is there is of another run."""
    if os.path.exists(path):  # noqa: PTH110
        say(f"nothing was written: {path} is of an earlier run.")


def _hide() -> None:
    """Give back the search path and the environment that the user's shell has."""
    sys.path[:] = [each for each in sys.path if each != _FOLDER]
    sys.path_importer_cache.pop(_FOLDER, None)
    old = os.environ.pop(OLD_PATH, None)
    if old is not None:
        os.environ["PYTHONPATH"] = old
    else:
        os.environ.pop("PYTHONPATH", None)


def _wait(wish: str) -> None:
    wait = Wait(wish)
    atexit.register(wait.end)  # registered first, so it runs after the program's own
    if any(name in sys.modules for name in wait.awaited):  # a .pth file has imported it
        wait.begin()
    else:
        sys.meta_path.insert(0, wait)


if (_wish := os.environ.pop(WISH, None)) is not None:
    _hide()
    _wait(_wish)
    # If there is none, the error goes on to `site`, which expects it.
    del sys.modules["sitecustomize"]
    import_module("sitecustomize")
