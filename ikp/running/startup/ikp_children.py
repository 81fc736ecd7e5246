"""The Python children of a program under ``ikp run``, whose start-up imports ikp's hook, too; and
``Family``: notes of all processes.

A child that Python starts gets three environment variables, and so comes by ``sitecustomize`` as
the program did. Only commands that are Python, or scripts for it, get them: no other command sees
a difference, and none is in ``os.environ``. With ``--follow all`` they are in the environment of
the process itself, so that shells and other programs pass them on.

Like ``sitecustomize``, this module imports little.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

FOLLOW = "IKP_FOLLOW"
"""``IKP_FOLLOW=0`` in a child's environment: it is not recorded."""
PATH = "PYTHONPATH"
ROOT = "root"
"""The note of the first process."""
SWITCH = "on"
"""The file in the folder that opens a window in all processes, while it is there."""
_MOST_BYTES = 1 << 24
"""More than any note has."""
_TAKES_NEXT = "WX"
_ENDS = "cm"
_KEEPS_OUT = "IES"
"""Options of Python that keep environment variables, or ``sitecustomize``, out."""


class Family:
    """The processes of one ``ikp run``: the first one's pid, and the folder in which each is noted.

    ``every`` says that the variables are in the environment of all commands.
    """

    def __init__(self, root: int, folder: str, *, every: bool) -> None:
        self.root, self.folder, self.every = root, folder, every

    @classmethod
    def parse(cls, text: str) -> Family:
        """Return the family that ``str(family)`` names."""
        root, every, folder = text.split("\n", 2)
        return cls(int(root), folder, every=every == "all")

    def __str__(self) -> str:
        return f"{self.root}\n{'all' if self.every else 'python'}\n{self.folder}"

    @property
    def is_root(self) -> bool:
        """Whether this process is the first one."""
        return os.getpid() == self.root

    def notes(self) -> dict[str, str]:
        """Return all notes, by name; none where the first process has ended."""
        try:
            names = os.listdir(self.folder)  # noqa: PTH208
        except OSError:
            return {}
        return {name: self._read(name) for name in names}

    @property
    def is_alone(self) -> bool:
        """Whether the first process is the only one that is known of."""
        return not set(self.notes()) - {ROOT, SWITCH}

    @property
    def switch(self) -> str:
        """The file that opens a window while it is there."""
        return self._at(SWITCH)

    def _read(self, name: str) -> str:
        return _read(self._at(name), _MOST_BYTES).decode(errors="surrogateescape")

    def drop(self, name: str) -> None:
        """Take a note back."""
        os.unlink(self._at(name))  # noqa: PTH108

    def end(self) -> None:
        """Remove the folder: a process that ends later reports by itself."""
        for name in self.notes():
            self.drop(name)
        try:  # noqa: SIM105 - contextlib is more than this file may import
            os.rmdir(self.folder)  # noqa: PTH106
        except OSError:  # a note has come meanwhile
            pass

    def _at(self, name: str) -> str:
        return os.path.join(self.folder, name)  # noqa: PTH118

    def claim(self, kind: str, text: str) -> str | None:
        """Write a note under the first free number; return its name, None where it can't be."""
        for number in range(1, 1 << 20):
            name = f"{kind}{number}"
            try:
                self.put(name, text)
            except FileExistsError:
                continue
            except OSError:
                return None
            return name
        return None

    def put(self, name: str, text: str) -> None:
        """Write a note.

        Raises:
            FileExistsError: there is one of this name.
            OSError: the first process has ended, or the note can't be written.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        file = os.open(self._at(name), flags, 0o600)
        try:
            os.write(file, text.encode(errors="surrogateescape"))
        finally:
            os.close(file)


class Passing:
    """What a child's environment gets: the variables, and the folder in front of its PYTHONPATH."""

    def __init__(
        self, folder: str, old_path: str, variables: Mapping[str, str], *, every: bool
    ) -> None:
        self._folder, self._old_path, self._variables = folder, old_path, dict(variables)
        self._every = every

    def of(self, path: str | None) -> dict[str, str]:
        """Return the variables of a child whose own PYTHONPATH is ``path``."""
        made = dict(self._variables)
        made[PATH] = self._folder if not path else self._folder + os.pathsep + path
        if path is not None:
            made[self._old_path] = path
        return made

    def keep(self) -> None:
        """Have all commands of this process get them; ``os.environ`` stays as it is."""
        for name, value in self.of(os.environ.get(PATH)).items():
            os.putenv(name, value)

    def call(self, start: Callable[..., Any], *args: Any) -> Any:
        """Call a function that starts a child with this process's environment."""
        self.keep()
        try:
            return start(*args)
        finally:
            for name in self.of("") if not self._every else ():
                if name in os.environ:
                    os.putenv(name, os.environ[name])
                else:
                    os.unsetenv(name)


class Starts:
    """Python's functions that start a child or become another program, with what ikp passes on.

    Args:
        family: of this process.
        passing: what children get.
        leave: called before the process becomes another program by ``exec``.
        hide: has Python print errors without frames of ikp.
    """

    def __init__(
        self,
        family: Family,
        passing: Passing,
        leave: Callable[[], None],
        hide: Callable[[], None],
    ) -> None:
        self._family, self._passing, self._leave, self._hide = family, passing, leave, hide
        self._module: Any = import_module("_posixsubprocess")
        self._fork_exec = self._module.fork_exec
        self._spawn: Any = os.posix_spawn
        self._execve, self._execv = os.execve, os.execv

    def follow(self) -> None:
        """Have the Python children of this process recorded."""
        if self._family.every:
            self._passing.keep()
        self._module.fork_exec = self._like(self._fork_exec, self.fork_exec)
        if "subprocess" in sys.modules:
            sys.modules["subprocess"]._fork_exec = self._module.fork_exec  # type: ignore[attr-defined]  # noqa: SLF001
        for original in (self._spawn, self._execve, self._execv):
            function = self._like(original, getattr(self, original.__name__))
            function.__module__ = "os"  # where a pickle finds it
            setattr(os, original.__name__, function)

    def _like(self, original: Any, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that calls ours, and looks as Python's own where it can."""

        def function(*args: Any, **options: Any) -> Any:
            try:
                return call(*args, **options)
            except BaseException:
                self._hide()
                raise

        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            setattr(function, name, getattr(original, name))
        vars(function)["__wrapped__"] = original  # its signature
        return function

    def fork_exec(self, words: Any, files: Any, *rest: Any) -> Any:
        """Start a child, as ``subprocess`` and ``multiprocessing`` do."""
        env = rest[3]
        if not self._is_wanted(files, words, os.environ if env is None else _mapping(env)):
            return self._fork_exec(words, files, *rest)
        if env is None:
            return self._passing.call(self._fork_exec, words, files, *rest)
        made = [f"{name}={value}" for name, value in self._with_ours(_mapping(env)).items()]
        rest = (*rest[:3], [os.fsencode(each) for each in made], *rest[4:])
        return self._fork_exec(words, files, *rest)

    def posix_spawn(self, path: Any, argv: Any, env: Any, /, **options: Any) -> Any:
        """Start a child. None as ``env``, as of ``subprocess`` in Python 3.14, is ours."""
        own = os.environ if env is None else _decoded(env)
        if not self._is_wanted([path], argv, own):
            return self._spawn(path, argv, env, **options)
        if env is None:
            return self._passing.call(lambda: self._spawn(path, argv, env, **options))
        return self._spawn(path, argv, self._with_ours(own), **options)

    def execve(self, path: Any, argv: Any, env: Any) -> Any:
        """Become another program."""
        own = _decoded(env)
        wanted = not isinstance(path, int) and self._is_wanted([path], argv, own)
        self._leave()
        return self._execve(path, argv, self._with_ours(own) if wanted else env)

    def execv(self, path: Any, argv: Any, /) -> Any:
        """Become another program, with this process's environment."""
        wanted = self._is_wanted([path], argv, os.environ)
        self._leave()
        if wanted:
            return self._passing.call(self._execv, path, argv)
        return self._execv(path, argv)

    def _is_wanted(
        self, files: Sequence[Any], words: Sequence[Any], own: Mapping[str, str]
    ) -> bool:
        if own.get(FOLLOW) == "0":
            return False
        file = next((each for each in map(os.fsdecode, files) if os.access(each, os.X_OK)), "")
        if not is_python(file):
            return self._family.every
        return _comes_in(self._family, [os.fsdecode(each) for each in words])

    def _with_ours(self, own: Mapping[str, str]) -> dict[str, str]:
        return {**own, **self._passing.of(own.get(PATH))}


def is_python(file: str) -> bool:
    """Return whether a program is Python, or a script that names it in its first line."""
    name = os.path.basename(file)  # noqa: PTH119
    if name.startswith("python") and not name[6:].strip("0123456789."):
        return True
    try:
        line = _read(file, 256)
    except OSError:
        return False
    return line.startswith(b"#!") and b"python" in line.partition(b"\n")[0]


def _read(path: str, most: int) -> bytes:
    """Return a file's first bytes; not by ``open``, which a program's test may have replaced."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, most)
    finally:
        os.close(file)


def _comes_in(family: Family, words: list[str]) -> bool:
    """Return whether a command's Python imports ``sitecustomize``; note it where it does not."""
    kept_out = sorted(set("".join(_letters(words))) & set(_KEEPS_OUT))
    if not kept_out:
        return True
    shown = " ".join(words)
    shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
    family.claim("lost", f"{shown}: its option -{kept_out[0]} keeps ikp out")
    return False


def _letters(words: list[str]) -> Iterator[str]:
    """Yield the letters of a Python command line's options in front of the program."""
    rest = iter(words[1:])
    for word in rest:
        if not word.startswith("-") or word in ("-", "--"):
            return
        letters = "" if word.startswith("--") else word[1:]
        for at, letter in enumerate(letters):
            if letter in _ENDS:
                return
            if letter in _TAKES_NEXT:
                if at == len(letters) - 1:
                    next(rest, None)
                break
            yield letter


def _mapping(env: Sequence[bytes]) -> dict[str, str]:
    pairs = (os.fsdecode(each).partition("=") for each in env)
    return {name: value for name, _, value in pairs}


def _decoded(env: Mapping[Any, Any]) -> dict[str, str]:
    return {os.fsdecode(name): os.fsdecode(value) for name, value in env.items()}
