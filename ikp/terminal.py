"""Terminal output: control characters escaped, long names cut, tables fitted to the width.

Names come from kernels, files and other people. In files they stay as they are; on a terminal,
control characters are written as escapes.
"""

from __future__ import annotations

import os
import shlex
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

Line = tuple[str, str]
"""Text, and its style as rich names it."""

_LONGEST_NAME: Final = 200
"""Most characters of a name that a terminal shows."""
_LONGEST_LINE: Final = 4000
"""Most characters of a line of a message."""
_JOINERS: Final = "\u200c\u200d"
"""Format characters that scripts and emoji are written with; they have no effect on a terminal."""
_ACTING: Final = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode's categories of characters to escape: control, format, surrogate, line, paragraph."""


def printable(text: str, keep: str = "") -> str:
    r"""Return ``text`` with control characters as escapes, ``\x1b`` or ``\n``, but for ``keep``."""
    if text.isprintable():
        return text
    return "".join(
        one.encode("unicode_escape").decode() if _acts(one) and one not in keep else one
        for one in text
    )


def _acts(letter: str) -> bool:
    return unicodedata.category(letter) in _ACTING and letter not in _JOINERS


def shortened(name: str) -> str:
    """Return a name as a terminal shows it; a name that is cut ends with its length."""
    if len(name) <= _LONGEST_NAME:
        return printable(name)
    return f"{printable(name[:_LONGEST_NAME])}... ({len(name):,} characters)"


def message(text: str) -> str:
    """Return an error's or a warning's text as a terminal shows it, with overlong lines cut.

    A line is overlong because of a name in it, so its begin and its end are kept.
    """
    return "\n".join(map(_line, text.split("\n")))


def _line(text: str) -> str:
    if len(text) > _LONGEST_LINE:
        half = _LONGEST_LINE // 2
        text = f"{text[:half]} [... {len(text) - 2 * half:,} characters ...] {text[-half:]}"
    return printable(text)


def columns(out: IO[str] | None = None) -> int | None:
    """Return the width of the terminal behind ``out``, or stdout; None if it is no terminal.

    ``COLUMNS`` in the environment overrides the terminal's own width.
    """
    out = out or sys.stdout
    try:
        if not out.isatty():
            return None
        given = os.environ.get("COLUMNS", "")
        wide = int(given) if given.isdecimal() else os.get_terminal_size(out.fileno()).columns
    except (AttributeError, OSError, ValueError):  # closed, or not a file at all
        return None
    return wide or 80  # a terminal of unknown width reports 0


def write(text: str) -> None:
    """Write text to stdout, where there is one; letters that its encoding lacks become escapes."""
    if sys.stdout is None:  # closed before Python began: print() then writes nothing, too
        return
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))


@dataclass(frozen=True, slots=True)
class Sheet:
    """Lines that are laid out once their width is known: as plain text, or by rich."""

    lines: Callable[[int | None], Iterable[Line]]

    def text(self, wide: int | None = None) -> str:
        """Return the lines as plain text.

        Without ``wide``, it fits the terminal of stdout; where that is none, lines are not limited.
        """
        return "\n".join(line for line, _ in self.lines(wide or columns())).rstrip("\n")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines in colour, as wide as rich's console is."""
        from rich.text import Text

        for line, style in self.lines(options.max_width):
            yield Text(line, style, overflow="fold")


def show(what: object) -> None:
    """Print an object: by rich, in colour, on a terminal; elsewhere as its own text."""
    wide = columns()
    if wide is None:
        write(f"{what}\n")
        return
    from rich.console import Console

    Console(width=wide, highlight=False).print(what)


def width(text: str) -> int:
    """Return the width of a text in a terminal's cells."""
    if text.isascii():
        return len(text)
    return sum(map(_cells, text))


def _cells(letter: str) -> int:
    if unicodedata.combining(letter) or letter in _JOINERS:
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. ``spare`` says which are left out first where a terminal is narrow.

    0 is never left out; of the others the largest goes first. Names are aligned left.
    """

    title: str
    spare: int = 0
    name: bool = False


_GAP: Final = "  "
_NAMES_SHARE: Final = 3
"""A name longer than a third of the terminal takes no column away: it may get a line of its own."""
_MOST_PADDED: Final = 100
"""The widest padding of names without a width to fit: a longer name shifts its row's numbers."""


def lay_out(
    shape: Sequence[Column], rows: Sequence[Sequence[str]], wide: int | None
) -> tuple[str, list[str]]:
    """Return the head line of a table and its rows, as text of at most ``wide`` cells each.

    Names are never cut here. Columns of numbers are left out first; a name that still doesn't fit
    gets a line of its own, in full, above its numbers.
    """
    titles = [column.title for column in shape]
    sizes = [[width(cell) for cell in cells] for cells in zip(titles, *rows, strict=True)]
    room = _rooms(shape, sizes, _chosen(shape, sizes, wide), wide)
    return _laid_out(shape, titles, room, wide), [_laid_out(shape, row, room, wide) for row in rows]


def _laid_out(
    shape: Sequence[Column], cells: Sequence[str], room: Mapping[int, int], wide: int | None
) -> str:
    """Return a row's cells in the columns that have room."""
    names = [i for i in room if shape[i].name]
    parts = {i: _padded(cells[i], room[i], shape[i].name) for i in room}
    if wide is None or all(width(cells[i]) <= room[i] for i in names):
        return _GAP.join(parts.values()).rstrip()
    above = [cells[i] for i in names if cells[i]]
    apart = "\n" if width(_GAP.join(above)) > wide else _GAP
    parts |= {i: " " * room[i] for i in names}
    return f"{apart.join(above)}\n{_GAP.join(parts.values()).rstrip()}"


def _chosen(shape: Sequence[Column], sizes: list[list[int]], wide: int | None) -> list[int]:
    """Return the columns for which there is room."""
    shown = list(range(len(shape)))
    if wide is None:
        return shown
    wanted = [
        max(n for n in column if n <= wide // _NAMES_SHARE or not shape[i].name)
        for i, column in enumerate(sizes)
    ]
    for column in sorted(shown, key=lambda i: -shape[i].spare):
        if sum(wanted[i] + len(_GAP) for i in shown) - len(_GAP) <= wide or not shape[column].spare:
            break
        shown.remove(column)
    return shown


def _rooms(
    shape: Sequence[Column], sizes: list[list[int]], shown: list[int], wide: int | None
) -> dict[int, int]:
    """Return the width of each column: numbers get the width they need, names the rest."""
    room = {i: max(sizes[i]) for i in shown}
    names = [i for i in shown if shape[i].name]
    if wide is None:
        return room | {i: min(room[i], _MOST_PADDED) for i in names}
    left = wide - sum(room[i] for i in shown if i not in names) - len(_GAP) * (len(shown) - 1)
    for later, i in reversed(list(enumerate(names))):  # the first one takes what is left
        room[i] = max(0, min(room[i], left // (later + 1)))
        left -= room[i]
    return room


def _padded(cell: str, size: int, left: bool) -> str:
    blank = " " * max(0, size - width(cell))
    return cell + blank if left else blank + cell


def next_line(*words: object, why: str = "") -> str:
    """Return the line with the command to type next, quoted for the shell."""
    line = " ".join(shlex.quote(_word(each)) for each in words)
    return f"next: {printable(line)}" + (f"    ({why})" if why else "")


def _word(word: object) -> str:
    """Return a word of a command: a file's name that begins with ``-`` would be an option."""
    text = str(word)
    return f"./{text}" if isinstance(word, os.PathLike) and text.startswith("-") else text
