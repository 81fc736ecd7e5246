"""The processes of one ``ikp run``: paths of their traces, notes that each leaves for the first,
the first one's lines on all.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ikp.paths import shown
from ikp.running.startup.ikp_children import ROOT, SWITCH
from ikp.running.startup.sitecustomize import say
from ikp.session.current import PID, PLACE, STEP, current_rank

if TYPE_CHECKING:
    from ikp.running.process_parts import Part
    from ikp.running.startup.ikp_children import Family

LOST: Final = "lost"
_END: Final = "end of "
_PARTS: Final = "parts of "
_WRITING: Final = "writing of "
_WITHOUT: Final = "nothing of rank "
_WINDOW: Final = ", window "


def claimed(family: Family, path: str, template: str) -> tuple[str, str]:
    """Return the name of this process's note, and the path of its trace; both are its own.

    Args:
        family: the processes of the run.
        path: of the first process's trace.
        template: the path as the user wrote it.

    Raises:
        OSError: the folder of notes is gone: the first process has ended.
    """
    from ikp.session.provenance import program_name  # imports numpy

    rank = current_rank()
    names = [ROOT] if family.is_root else [] if rank is None else [f"rank{rank}"]
    who = f"{os.getpid()}\n{program_name()}"
    for name in names:
        try:
            family.put(name, who)
        except FileExistsError:
            continue
        return name, path if name == ROOT else _path(template, name, str(rank))
    made = family.claim("child", who)
    if made is None:
        raise OSError(f"{family.folder} is gone")
    return made, _path(template, made, made)


def _path(template: str, name: str, place: str) -> str:
    """Return the path of a process's trace: with its rank or number, or in the template's places.

    ``x.pftrace`` is ``x.child1.pftrace``; ``x.{rank}.pftrace`` is ``x.1.pftrace``.
    """
    if PLACE in template or PID in template:
        return template.replace(PLACE, place).replace(PID, str(os.getpid()))
    path = Path(template)
    return str(path.with_name(f"{path.stem}.{name}{path.suffix}"))


def of_window(path: str, number: int) -> str:
    """Return the path of a window's trace: with its number, or that in the place of the step."""
    if STEP in path:
        return path.replace(STEP, str(number))
    at = Path(path)
    return str(at.with_name(f"{at.stem}.window{number}{at.suffix}"))


def ended(family: Family, name: str, lines: list[str], parts: list[Part]) -> None:
    """Leave what a process recorded for the first one; say its lines where that has ended.

    The first process, which is to become another program, has said its lines.
    """
    from ikp.running.process_parts import as_note
    from ikp.session.provenance import program_name

    try:
        family.put(_PARTS + name, as_note(parts))
        if not family.is_root:
            family.put(_END + name, "\n".join(lines))
    except OSError:
        for line in lines:
            say(f"process {os.getpid()} ({program_name()}): {line}")


def window_handed_on(family: Family, name: str, number: int, path: str) -> None:
    """Leave word that another process writes a window's trace, as this one may be killed."""
    with suppress(OSError):
        family.put(f"{_WRITING}{name}{_WINDOW}{number}", path)


def window_ended(family: Family, name: str, number: int, part: Part) -> bool:
    """Leave what a window recorded, as the process may be killed; return whether that is noted."""
    from ikp.running.process_parts import as_note

    try:
        family.put(f"{_PARTS}{name}{_WINDOW}{number}", as_note([part]))
    except OSError:
        return False
    return True


def without(family: Family, why: str) -> None:
    """Leave word that a process with a rank recorded nothing, and why.

    A rank may have further processes, such as compilers' workers: what any of them recorded counts.
    """
    rank = current_rank()
    if rank is not None:
        with suppress(OSError):  # another one has left it
            family.put(f"{_WITHOUT}{rank}", why)


def parts_of(family: Family) -> list[Part]:
    """Return what all processes have left of what they recorded."""
    from ikp.running.process_parts import of_note

    notes = family.notes()
    left = sorted((name for name in notes if name.startswith(_PARTS)), key=_order)
    return [part for name in left for part in of_note(notes[name])]


def report(family: Family, path: str, wrote: Sequence[str]) -> None:
    """Say what children recorded, and which were not recorded, on the first process's stderr.

    Args:
        family: the processes of the run.
        path: of the first process's trace.
        wrote: the traces of all processes.
    """
    notes = family.notes()
    for name in sorted(notes, key=_order):
        if name.startswith(_WITHOUT):
            rank = name.removeprefix(_WITHOUT)
            if f"rank{rank}" not in notes:
                say(f"rank {rank}: nothing was recorded: {notes[name]}.")
            continue
        if name.startswith((_END, _PARTS, _WRITING)) or name in (ROOT, SWITCH):
            continue
        if name.startswith(LOST):
            say(f"not recorded: {notes[name]}.")
            continue
        pid, _, program = notes[name].partition("\n")
        for line in notes.get(_END + name, _unfinished(int(pid or 0), name, notes)).splitlines():
            say(f"process {pid} ({shown(program)}): {line}")
    _say_earlier(Path(path), wrote)


def _say_earlier(path: Path, wrote: Sequence[str]) -> None:
    """Say which files have a name like those of this run, and are of an earlier one."""
    every = (str(each) for each in path.parent.glob(f"{escape(path.stem)}.child*{path.suffix}"))
    if earlier := sorted(set(every) - set(wrote)):
        say(f"of an earlier run, or not written yet: {', '.join(map(shown, earlier))}.")


def _order(name: str) -> tuple[str, int]:
    """Return what notes are sorted by: child2 comes before child10."""
    kind = name.rstrip("0123456789")
    return kind, int(name.removeprefix(kind) or 0)


def _unfinished(pid: int, name: str, notes: Mapping[str, str]) -> str:
    """Return the line on a process that has left no word of its end, by its notes of windows."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except OSError:
        state = "X"
    if state not in "XZ":
        return "it still runs, and writes its trace when it ends."
    written, writing = f"{_PARTS}{name}{_WINDOW}", f"{_WRITING}{name}{_WINDOW}"
    done = {each.removeprefix(written) for each in notes if each.startswith(written)}
    left = {each.removeprefix(writing): each for each in notes if each.startswith(writing)}
    said = []
    if done:
        from ikp.analysis.evidence import plural

        said.append(f"what {plural(len(done), 'window')} recorded was written before")
    paths = [shown(notes[note]) for number, note in sorted(left.items()) if number not in done]
    if paths:
        said.append(f"another process writes {', '.join(paths)}")
    if said:
        return f"it was killed; {', and '.join(said)}."
    return "it was killed before its trace was written."
