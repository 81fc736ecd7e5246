"""Faults put into the library before the driver: random programs find each of them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.backends.driver.model.building import HOOK, build

ALONE, THREADS, FORKS, OLD = "alone", "threads", "forks", "old driver"


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault: what of a file becomes what, and which programs find it."""

    name: str
    file: str
    old: str
    new: str
    found_by: str = ALONE


_LOCK: Final = re.compile(r" *pthread_rwlock_(?:wr|rd)lock\(&lock\);")
_UNLOCK: Final = "pthread_rwlock_unlock(&lock);"


def _without_locks() -> Iterator[Mutant]:
    """Yield a mutant for each place that takes the lock: what it does there, without."""
    for file in sorted(HOOK.glob("*.c")):
        text = file.read_text()
        for found in _LOCK.finditer(text) if file.name != "python.c" else ():
            end = text.index(_UNLOCK, found.end())
            old = text[found.start() : end + len(_UNLOCK)]
            line = text.count("\n", 0, found.start()) + 1
            name = f"no lock is taken in line {line} of {file.name}"
            yield Mutant(name, file.name, old, f";{text[found.end() : end]};", THREADS)


MUTANTS: Final = (
    *_without_locks(),
    Mutant(
        "a stock's buffer is taken in another context",
        "stock.c",
        "each->context == context->id && ",
        "",
    ),
    Mutant(
        "a stock's buffer is taken after a function's settings changed",
        "stock.c",
        "           each->changes == __atomic_load_n(&changes, __ATOMIC_ACQUIRE) &&\n",
        "",
    ),
    Mutant(
        "a stock's buffer is taken after Python has revoked it",
        "stock.c",
        "each->revoked == __atomic_load_n(&revoked, __ATOMIC_SEQ_CST)",
        "1",
    ),
    Mutant(
        "a stock has more buffers than Python took",
        "stock.c",
        "each->taken < each->count && ",
        "",
    ),
    Mutant(
        "a node of a stock's launch shows the copy with records",
        "stock.c",
        "        launched_for(made->instead, each);\n",
        "",
    ),
    Mutant(
        "parts stay where what they are of is dropped",
        "known.c",
        "    while (gone->parts) forget(gone->parts);\n",
        "    for (Known *each = gone->parts; each; each = each->sibling) each->parent = NULL;\n",
    ),
    Mutant(
        "a module that is unloaded stays known",
        "loads.c",
        "GONE(cuModuleUnload, Handle, leave(gone))",
        "GONE(cuModuleUnload, Handle, ((Leaving){0, NULL}))",
    ),
    Mutant(
        "a library that is unloaded stays known",
        "loads.c",
        "GONE(cuLibraryUnload, Handle, leave(gone))",
        "GONE(cuLibraryUnload, Handle, ((Leaving){0, NULL}))",
    ),
    Mutant(
        "what is not unloaded is forgotten",
        "loads.c",
        "        left(leaving, !result);",
        "        left(leaving, 1);",
    ),
    Mutant(
        "a function is known by its name alone",
        "known.c",
        "!had || !above || had->parent != above || had->context != own",
        "!had || !name || !had->name || strcmp(had->name, name)",
    ),
    Mutant(
        "a function of another context is the same",
        "known.c",
        " || had->context != own) {",
        ") {",
    ),
    Mutant(
        "a function of another context is launched",
        "launches.c",
        "(strange && !is_still(function))",
        "(strange && 0)",
    ),
    Mutant(
        "a new entry has the old one's id",
        "known.c",
        "    made->id = ids++;\n",
        "    static uint64_t last[4096];\n"
        "    uint64_t *old = &last[(uintptr_t)handle / 16 % 4096];\n"
        "    made->id = *old ? *old : (*old = ids++);\n",
    ),
    Mutant(
        "a context that ended unseen stays known",
        "known.c",
        "each->kind == CONTEXT && each->unique == now->unique",
        "each->kind == CONTEXT",
    ),
    Mutant(
        "a context that is destroyed stays known",
        "loads.c",
        "GONE(cuCtxDestroy_v2, Handle, leave_context(current_or(gone)))",
        "GONE(cuCtxDestroy_v2, Handle, ((Leaving){0, NULL}))",
        OLD,
    ),
    Mutant(
        "a context that is reset stays known",
        "loads.c",
        "GONE(cuDevicePrimaryCtxReset_v2, int, begin_reset(gone))",
        "GONE(cuDevicePrimaryCtxReset_v2, int, ((Leaving){0, NULL}))",
        OLD,
    ),
    Mutant(
        "a context that is given back stays known",
        "loads.c",
        "    left(leave_context(primary(device)), 1);\n",
        "",
        OLD,
    ),
    Mutant(
        "a green context that is destroyed stays known",
        "loads.c",
        "gone ? leave_context(gone->context) : (Leaving){0, NULL};",
        "{0, NULL};",
        OLD,
    ),
    Mutant(
        "what belongs to an ended context stays known",
        "known.c",
        "each->context == context ||",
        "0 ||",
    ),
    Mutant(
        "what was half answered is launched",
        "launches.c",
        "        launch->instead = function;\n        launch->decided = launch->bytes = 0;\n",
        "        launch->decided = 0;\n",
    ),
    Mutant(
        "a decided function is asked about",
        "launches.c",
        "    return quiet || leaving;\n",
        "    return (quiet && !launch->id) || leaving;\n",
    ),
    Mutant(
        "an entry stays where its handle is given out again",
        "known.c",
        "    if (had) forget(had);\n",
        "",
    ),
    Mutant(
        "a launch is recorded while its module is being unloaded",
        "launches.c",
        "    return quiet || leaving;\n",
        "    return quiet;\n",
        THREADS,
    ),
    Mutant(
        "an unloading drops what another one is to drop",
        "known.c",
        "if (!each || each->leaving != leaving) return 0;",
        "if (!each) return 0;",
        THREADS,
    ),
    Mutant(
        "a node shows the patched function",
        "nodes.c",
        "        if (!result) show_plain(node, has_kernels);            \\\n",
        "        (void)show_plain;                                      \\\n",
    ),
    Mutant(
        "what the driver refuses with records does not run",
        "launches.c",
        "    return plain;\n}\n",
        "    return chosen;\n}\n",
    ),
    Mutant(
        "a forked child has the lock as it was",
        "python.c",
        "    lock = fresh;\n",
        "    (void)fresh;\n",
        FORKS,
    ),
)


def survives(mutant: Mutant, folder: Path, programs: int = 500_000) -> bool:
    """Return whether random programs find nothing wrong with a mutant."""
    sources = folder / "sources"
    shutil.copytree(HOOK, sources)
    file = sources / mutant.file
    text = file.read_text()
    assert text.count(mutant.old) == 1, f"{mutant.name}: {mutant.file} has changed"
    file.write_text(text.replace(mutant.old, mutant.new))
    threads = mutant.found_by == THREADS
    made = build(folder, sources, old=mutant.found_by == OLD, races=threads)
    if threads:
        return not made.run(0, 12_000, "threads", timeout=300)
    if mutant.found_by == FORKS:
        return not made.run(0, 1 << 20, "forks", timeout=60)
    return not made.run(0, programs)
