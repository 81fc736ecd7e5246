"""What ``ikp`` asks of Triton's compiler: the names in loaded kernels, and passes over their code.

Both are Triton's own hooks, chained with whatever else is installed. They act on kernels that
``ikp.init`` marked, and change no other kernel's code or cache key.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from triton import knobs

from ikp.core.regions import merge
from ikp.targets import amdgcn_ir, amdgcn_registers, ptx_calls, ptx_entry, ptx_schedule, ptx_stage

_REGION = re.compile(r"(?://|;) ikp\.(?:store|role|whole) (\d+) (\".*\")$", re.MULTILINE)
_TEXTS = (".ptx", ".amdgcn")
_loaded: set[Path] = set()

SCHEDULED_PASSES: list[Callable[[Any, Any], Any]] = []
"""Functions of a TritonGPU module and its metadata that return the module to go on with. They act
on kernels that ask for it in their own source, and so in their cache key."""


def install() -> None:
    """Install both hooks; a second call changes nothing."""
    knobs.runtime.kernel_load_end_hook.add(_remember)
    previous = knobs.runtime.add_stages_inspection_hook
    if not getattr(previous, "is_ikp", False):
        knobs.runtime.add_stages_inspection_hook = _stages_hook(previous)


def installed() -> bool:
    """Return whether the hook on compilation is still there: others may replace it."""
    return hasattr(knobs.runtime.add_stages_inspection_hook, "is_ikp")


def loaded_names() -> dict[int, str]:
    """Return the regions named in the code of every kernel loaded since ``install``."""
    return merge(_names_in(path) for path in tuple(_loaded))


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


def _remember(*loaded: Any) -> None:
    """Take Triton's (module, function, name, files, hash) of a kernel it has just loaded."""
    files: dict[str, str] = loaded[3]
    _loaded.update(Path(path) for file, path in files.items() if file.endswith(_TEXTS))


def _stages_hook(previous: Any) -> Callable[..., Any]:
    """Return a stages hook that works on marked code, after ``previous`` had its turn."""

    def hook(*args: Any, **kwargs: Any) -> Any:
        if not args and not kwargs:  # Triton asks for a cache key; a kernel's spec is in its own
            return previous() if previous else ("", "")
        if previous:
            previous(*args, **kwargs)
        stages = args[1] if len(args) > 1 else kwargs["stages"]
        if "ttgir" in stages:
            stages["ttgir"] = _passed_on(stages["ttgir"])
        if "ptx" in stages:
            stages["ptx"] = _placed(stages["ptx"])
        if "amdgcn" in stages:
            stages["llir"] = _completed(stages["llir"])
            stages["amdgcn"] = _with_registers(stages["amdgcn"])
        return None

    hook.is_ikp = True  # type: ignore[attr-defined]
    return hook


def _passed_on(make_ttgir: Callable[..., Any]) -> Callable[..., Any]:
    def stage(source: Any, metadata: Any) -> Any:
        module = make_ttgir(source, metadata)
        for each in SCHEDULED_PASSES:
            module = each(module, metadata)
        return module

    return stage


def _placed(make_ptx: Callable[..., str]) -> Callable[..., str]:
    def stage(source: Any, metadata: Any) -> str:
        text, metadata["shared"] = ptx_stage.extend(make_ptx(source, metadata), metadata["shared"])
        return ptx_schedule.schedule(ptx_calls.pass_on(ptx_entry.complete(text)))

    return stage


def _completed(make_llir: Callable[..., str]) -> Callable[..., str]:
    def stage(source: Any, metadata: Any) -> str:
        return amdgcn_ir.complete(make_llir(source, metadata), metadata["num_warps"])

    return stage


def _with_registers(make_amdgcn: Callable[..., str]) -> Callable[..., str]:
    def stage(source: str, metadata: Any) -> str:
        def again(registers: int) -> str:
            return make_amdgcn(amdgcn_ir.limited(source, registers), metadata)

        return amdgcn_registers.reserve(make_amdgcn(source, metadata), again)

    return stage
