"""Start-up hook of ``ikp run``: recording begins at the import of Triton or a CUDA library.

``ikp run`` starts Python with this folder first in ``PYTHONPATH``. Python's ``site`` module then
imports this file before the program begins. The file removes the folder and ikp's variables again,
imports the ``sitecustomize`` that Python would have found without it, and leaves two things: a
finder that waits for Triton, or another way to the CUDA driver, to be imported, and a function for
the end of the process. Before that, nothing of ikp is imported: a program without kernels is
Python's alone (decision 22).

It imports little: a module imported here hides one of that name in the program's folder.
"""

from __future__ import annotations

import atexit
import os
import sys
from importlib import import_module
from importlib.machinery import PathFinder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Protocol

    from ikp.running.startup.ikp_children import Family

    class Recording(Protocol):
        """What the end of a process, or of the recording, asks of ``ikp.running.recording``."""

        def step_out(self) -> None:
            """Restore the program's launches."""

        def end(self) -> None:
            """Write the trace and report."""

        def leave(self) -> None:
            """Write the trace before the process becomes another program."""


_FOLDER = os.path.dirname(__file__)  # noqa: PTH120 - pathlib is more than this file may import
_PACKAGE = os.path.dirname(os.path.dirname(_FOLDER))  # noqa: PTH120
WISH = "IKP_RUN"
OLD_PATH = "IKP_RUN_PYTHONPATH"
FAMILY = "IKP_RUN_FAMILY"
STDERR = "IKP_RUN_STDERR"
TOOLS = "IKP_RUN_TOOLS"
"""Variables: the options of ``ikp run``; the former ``PYTHONPATH``, if it was set; where children
are recorded, the first process and the folder of notes, and that process's stderr; the socket that
``ikp.tool_starter`` listens at."""
AWAITED = ("triton", "torch._inductor.runtime.triton_heuristics")
"""A program that launches a Triton kernel imports one of these before the class to step into."""
DRIVEN = ("torch", "cuda", "cutlass", "cupy", "tilelang", "numba", "jax", "pycuda", "tvm_ffi")
"""A program that comes to the CUDA driver otherwise imports one of these, after ikp steps in."""
NO_GPU = " Where there is no GPU, TRITON_INTERPRET=1 runs Triton kernels on the CPU."
NAMED = (
    " Kernels of torch's and NVIDIA's libraries are recorded where they are named: --kernel '*'."
)
NO_KERNEL = (
    f"no kernel that ikp records was launched in this process.{NAMED} With --follow none, kernels "
    f"of child processes are not seen.{NO_GPU}"
)
NO_KERNELS = (
    "no kernel that ikp records was launched in this process, nor in a Python process that it "
    f"started.{NAMED} What shells and other programs start is recorded with --follow all.{NO_GPU}"
)


class Wait:
    """An import finder that finds no module: it begins the recording at an awaited import."""

    def __init__(self, wish: str, family: Family | None = None) -> None:
        self.options, _, self.path = wish.partition("\n")
        self.family = family
        self.process = os.getpid()
        self.recording: Recording | None = None
        self.failure = ""
        asked = '"level": "machine"' in self.options
        unasked = '"level": null' in self.options
        self.awaited = AWAITED + DRIVEN * driven("machine" if asked else None if unasked else "")
        self._first = [True]

    def find_spec(self, name: str, *_: object) -> None:
        """Begin at the first of the awaited imports, in any thread."""
        if name in self.awaited and self._first:
            self._first.clear()  # the finder stays in sys.meta_path, which importlib iterates now
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
                self.recording = _recording().begin(
                    self.options, self.path, forked=forked, family=self.family
                )
        except Exception as error:  # noqa: BLE001 - no error of ikp may stop the program
            if (signals := sys.modules.get("ikp.signals")) is not None:
                signals.pass_on(error)
            self.failure = f"nothing is recorded: {type(error).__name__}: {error}"

    def end(self) -> None:
        """Write the trace and report; in a process that the program forked, only step out.

        Where children are recorded, a forked process writes a trace, too.
        """
        child = os.getpid() != self.process
        if child or (self.family is not None and not self.family.is_root):
            self._end_child(forked=child)
            return
        _flush()  # what the program has printed comes first
        if self.recording is not None:
            self.recording.end()
            return
        alone = self.family is None or self.family.is_alone
        if alone:
            say(self.failure or (NO_KERNEL if self.family is None else NO_KERNELS))
        if not alone or '"output": "json"' in self.options:
            self._finish()
        elif self.family is not None:
            self.family.end()
        say_nothing_written(self.path)

    def _finish(self) -> None:
        """Report what children recorded."""
        _import_ikp()
        options = import_module("ikp.running.run_options").Options.parse(self.options, self.path)
        lines = [self.failure] if self.failure else []
        import_module("ikp.running.finishing").finish(options, self.path, self.family, lines=lines)

    def _end_child(self, *, forked: bool) -> None:
        if self.recording is None:
            if self.failure and self.family is not None:
                self.family.claim("lost", f"{' '.join(sys.argv)[:80]}: {self.failure}")
        elif self.family is None and forked:
            self.recording.step_out()
        else:
            self.recording.end()

    def leave(self) -> None:
        """Write the trace before this process becomes another program."""
        if self.recording is not None:
            self.recording.leave()


def driven(level: str | None) -> bool:
    """Return whether launches are intercepted at the CUDA driver, for a level, or none given."""
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
    # This file is a module of ikp's, too, with globals of its own.
    vars(import_module("ikp.running.startup.sitecustomize"))["stderr"] = stderr
    import_module("ikp.tool_starter").use(_tools)


class Stderr:
    """The stderr that the run began with, to which ikp's lines go.

    Descriptor 2 may be a file of the program's own meanwhile: it was closed or replaced, or a
    child was started with another. Then the first stderr is opened anew if it is a terminal or a
    file. If it is a pipe, the lines are lost: a copy of it, held open, would keep its reader
    waiting.
    """

    def __init__(self, text: str = "") -> None:
        """Take over what the first process has passed on as ``text``, or this one's stderr."""
        self.stream = sys.__stderr__
        self.place, _, self.path = (text or f"{_place(2)} {_path(2)}").partition(" ")

    def __str__(self) -> str:
        """Return the text for a child: where stderr is, and its path."""
        return f"{self.place} {self.path}"

    def put(self, text: str) -> None:
        """Write a line; nothing where there is no place for it."""
        try:
            if _place(2) != self.place:
                self._put_anew(text)
            elif self.stream is not None:
                self.stream.write(f"{text}\n")
                self.stream.flush()
        except (OSError, ValueError):  # closed, or its reader has gone
            pass

    def _put_anew(self, text: str) -> None:
        if not self.path.startswith("/"):
            return
        # A process without a terminal would get the one that it opens: O_NOCTTY.
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            if _place(file) == self.place:
                os.write(file, f"{text}\n".encode(errors="backslashreplace"))
        finally:
            os.close(file)


def _place(file: int) -> str:
    """Return which file a descriptor is; nothing if it is closed."""
    try:
        found = os.fstat(file)
    except OSError:
        return ""
    return f"{found.st_dev}:{found.st_ino}:{found.st_rdev}"


def _path(file: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{file}")  # noqa: PTH115
    except OSError:
        return ""


stderr: Stderr | None = None
"""The first process's, in the processes of a run."""


def say(text: str) -> None:
    """Print one line of ikp's own among the program's."""
    put(f"ikp: {text}")


def put(text: str) -> None:
    """Print on the stderr that the run began with, even if the program has replaced it since."""
    (stderr or Stderr()).put(text)


def _flush() -> None:
    try:  # noqa: SIM105 - contextlib is more than this file may import
        sys.stdout.flush()
    except Exception:  # noqa: BLE001, S110 - Python tries again, and says what is wrong
        pass


def say_nothing_written(path: str) -> None:
    """Say that an existing trace is of an earlier run."""
    if os.path.exists(path):  # noqa: PTH110
        say(f"nothing was written: {path} is of an earlier run.")


def _hide() -> None:
    """Restore the search path and the environment of the user's shell."""
    sys.path[:] = [each for each in sys.path if each != _FOLDER]
    sys.path_importer_cache.pop(_FOLDER, None)
    old = os.environ.pop(OLD_PATH, None)
    if old is not None:
        os.environ["PYTHONPATH"] = old
    else:
        os.environ.pop("PYTHONPATH", None)


def _follow(wish: str, text: str) -> tuple[Family, Callable[[Callable[[], None]], None]]:
    """Return the family, and a function that has its children recorded.

    It takes what is called before the process becomes another program.
    """
    module, frames = import_module("ikp_children"), import_module("ikp_frames")
    del sys.modules["ikp_children"], sys.modules["ikp_frames"]
    family = module.Family.parse(text)
    variables = {WISH: wish, FAMILY: text, STDERR: str(stderr), TOOLS: _tools}
    passing = module.Passing(_FOLDER, OLD_PATH, variables, every=family.every)
    return family, lambda leave: module.Starts(family, passing, leave, frames.hide).follow()


def _wait(wish: str, family: Family | None) -> Wait:
    wait = Wait(wish, family)
    atexit.register(wait.end)  # registered first, so it runs after the program's own
    if any(name in sys.modules for name in wait.awaited):  # a .pth file has imported it
        wait.begin()
    else:
        sys.meta_path.insert(0, wait)
    return wait


_tools = os.environ.pop(TOOLS, "")

if (_wish := os.environ.pop(WISH, None)) is not None:
    _family = os.environ.pop(FAMILY, None)
    stderr = Stderr(os.environ.pop(STDERR, ""))
    _followed = None if _family is None else _follow(_wish, _family)
    _hide()
    _waiting = _wait(_wish, None if _followed is None else _followed[0])
    if _followed is not None:
        _followed[1](_waiting.leave)
    # If there is none, the error goes on to `site`, which expects it.
    del sys.modules["sitecustomize"]
    import_module("sitecustomize")
