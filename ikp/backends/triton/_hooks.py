"""Hooks on Triton: passes over marked code, regions of loaded kernels, autotuning unrecorded.

The first two are Triton's own hooks, chained with other tools' hooks. They act on kernels that
``ikp.init`` marked, and change no other kernel's code or cache key.

A kernel's cache key doesn't say whether the passes ran over it, so code without them must not get
into the cache. A compilation is identified by its options object, which Triton passes to the hook
and to the verbs alike. ``init`` refuses to go on without the hook (docs/decisions/0021).

An autotuner's trials of a kernel with marks in its source run with recording off. They would all
write to the launch's one buffer, and each would overwrite the records before. And the configuration
would be chosen by times that include the cost of recording.
"""

from __future__ import annotations

import functools
import re
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import ClassVar

from ikp.backends.argument import Argument
from ikp.backends.triton import _load_checks as load_checks
from ikp.backends.triton import foreign, stages
from ikp.backends.triton.foreign import STAGES, TRITON
from ikp.backends.triton.gpu_targets import NVIDIA, last_text
from ikp.core.regions import merge
from ikp.errors import KernelError
from ikp.probing import Untyped

_REGION = re.compile(r"(?://|;) ikp\.(?:store|role|whole) (\d+) (\".*\")$", re.MULTILINE)
_loaded: set[Path] = set()


@dataclass(slots=True)
class Compilation:
    """One compilation that the hook saw."""

    stages: object  # the compiler's own dict
    wrong: str = ""  # why the passes can't run over its code
    marked: bool = False
    needs: list[str] = field(default_factory=list)  # features that record wrongly without them

    def lose(self, wrong: str) -> None:
        """Report that the passes don't run; refuse a kernel that needs them.

        Raises:
            KernelError: it would record wrongly.
        """
        self.wrong = wrong
        if self.needs:
            raise _refused(self.needs[0], f"{_triton()} {wrong}", "Upgrade ikp.")
        if self.marked:
            TRITON.lose(STAGES, wrong)

    def need(self, what: str) -> None:
        """Note a feature that would record wrongly without the passes.

        Raises:
            KernelError: they don't run over this kernel.
        """
        self.needs.append(what)
        if self.wrong:
            self.lose(self.wrong)


_compilations: dict[int, Compilation] = {}


def _triton() -> str:
    return f"Triton {TRITON.installed()}"


def _refused(what: str, reason: str, remedy: str) -> KernelError:
    return KernelError(
        f"this kernel has {what}, which ikp completes in the compiler's output; but {reason}. "
        f"{remedy}"
    )


def install() -> bool:
    """Install all three, around other tools' hooks; return whether kernels can record.

    A second call changes nothing.
    """
    return foreign.install(_loading, _StagesHook, _bare)


def is_first() -> bool:
    """Return whether no other tool has set a hook on the compiler's stages since ``install``."""
    return isinstance(foreign.stages_hook(), _StagesHook)


def _bare(trial: Callable[..., object]) -> Callable[..., object]:
    """Return a function that runs a configuration as ``trial`` does, with recording off."""

    @functools.wraps(trial)
    def bare(self: object, /, *args: object, **kwargs: object) -> object:
        off = {name: _off(value) for name, value in kwargs.items()}
        return trial(self, *map(_off, args), **off)

    bare.is_ikp = True  # type: ignore[attr-defined]
    return bare


def marks(options: object) -> None:
    """Note that the compilation with these options is one of a kernel that records.

    Raises:
        KernelError: it began without ikp's hook.
    """
    compilation = _of(options)
    compilation.marked = True
    if compilation.wrong:
        compilation.lose(compilation.wrong)


def need(options: object, what: str) -> None:
    """Note a feature that would record wrongly if the passes did not run over the kernel.

    Raises:
        KernelError: they don't run.
    """
    _of(options).need(what)


def _of(options: object) -> Compilation:
    found = _compilations.get(id(options))
    if found is not None:
        return found
    if not TRITON.has(STAGES):
        return Compilation(None, "has no hook on the compiler's stages")
    raise KernelError(
        "Triton compiles this kernel without ikp's hook on the compiler, which another tool took "
        "away after the buffer was made (it set triton.knobs.runtime.add_stages_inspection_hook), "
        "or which was never set in this process. Without it the kernel would lack parts, and "
        "later programs would get it so from Triton's cache. Set the other tool up before "
        "prof.buffer(...): ikp's hook goes around the one that it finds. A process that only "
        "compiles must open a session, too."
    )


@dataclass(frozen=True)
class _StagesHook:
    """A hook on the compiler's stages that runs the passes over marked code, after ``previous``."""

    previous: Callable[..., object] | None
    is_ikp: ClassVar[bool] = True

    def __call__(self, *args: object, **kwargs: object) -> object:
        previous = self.previous
        if not args and not kwargs:  # Triton asks for a cache key; a kernel's spec is in its own
            return previous() if previous else ("", "")
        if previous:
            previous(*args, **kwargs)
        found = args[1] if len(args) > 1 else kwargs.get("stages")
        options = args[2] if len(args) > 2 else kwargs.get("options")
        _hook_on(found, options)
        return None


def _hook_on(found: object, options: object) -> None:
    known = _compilations.get(id(options))
    if known is not None and known.stages is found:
        return  # another tool's hook has ikp's own inside
    made = Compilation(found)
    made.wrong = stages.hook_on(found, getattr(options, "backend_name", NVIDIA), made)
    _compilations[id(options)] = made
    weakref.finalize(options, _compilations.pop, id(options), None)


def _loading(*about: Untyped) -> None:
    """Take Triton's (module, function, name, files, hash) of a kernel that it is about to load.

    Raises:
        KernelError: its code lacks the passes, and would record wrongly.
    """
    files: dict[str, str] = about[3]
    texts = {Path(file).suffix: Path(path) for file, path in files.items()}
    if last := last_text(texts):
        _loaded.add(texts[last])
    load_checks.check_marks(str(about[2]), texts)
    load_checks.check_closed(str(about[2]), texts)


def loaded_names() -> dict[int, str]:
    """Return the regions named in the code of every kernel loaded since ``install``."""
    return merge(_names_in(path) for path in tuple(_loaded))


def loaded_code() -> list[Path]:
    """Return the machine code beside the texts of loaded kernels with marks, if it is there."""
    texts = [path for path in tuple(_loaded) if path.suffix == ".ptx" and _names_in(path)]
    found = (path.with_suffix(".cubin") for path in texts)
    return sorted(path for path in found if path.exists())


def names_in_code(text: str) -> dict[int, str]:
    """Return the regions that marks in ``text`` name, by id."""
    import json

    return merge({int(number): json.loads(name)} for number, name in _REGION.findall(text))


@cache
def _names_in(path: Path) -> dict[int, str]:
    try:
        return names_in_code(path.read_text())
    except FileNotFoundError:  # the cache folder was emptied meanwhile; the trace shows ids
        return {}


def _off(value: object) -> object:
    """Return a buffer's argument with recording off at run time; other values as they are."""
    return value._replace(slots_bytes=0) if isinstance(value, Argument) else value
