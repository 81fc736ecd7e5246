"""The goldens: what every view of every kernel says, as digests, and as text of a few.

``python -m tools.goldens`` writes them anew. A commit's diff then shows which views of which
kernels say something else, and of the kernels in ``text/`` what they say.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager
from functools import cache
from pathlib import Path
from unittest import mock

from ikp.sass.disassembly import tools
from tests.goldens import patched, views
from tests.goldens.corpus import FOLDER, Listed, corpus, sources
from tests.goldens.forms import of_forms
from tests.goldens.functions import FUNCTIONS
from tests.goldens.generated import Made
from tests.goldens.views import Subject

View = Callable[[Subject], Iterator[str]]
DIGESTS = FOLDER / "digests.txt"
TEXTS = FOLDER / "text"
IN_TEXT = ("nested.90", "looked_upPji.90", "flagged.90", "chooses.90", "made.4", "made.7")
"""Kernels of which some views are kept as text."""
_SHOWN = ("code", "flow", "liveness", "free", "apart", "regions")
_MADE = 60
"""How many random kernels there are."""
CODE: dict[str, View] = {**views.OF_CODE}
PROBES: dict[str, View] = {
    **views.OF_POINTS,
    "patches": patched.patches,
    "watched": patched.watched,
    "placed": patched.placed,
}
VERIFIER: dict[str, View] = {"verified": patched.verified}
REPAIR = (
    "`python -m tools.goldens --since HEAD` prints what is said otherwise; where that is wanted, "
    "`python -m tools.goldens` writes the goldens, and their diff belongs to the commit."
)


@cache
def subjects() -> Mapping[str, Subject]:
    """Return the kernels of the corpus, and the random ones, by name."""
    return {**corpus(), **{f"made.{seed}": Made(seed=seed) for seed in range(_MADE)}}


def views_of(name: str) -> dict[str, View]:
    """Return the views of a kernel."""
    every = {**CODE, **PROBES, **VERIFIER}
    in_file = {*views.OF_FILES, *patched.VIEWS}
    without = in_file if name.startswith("made.") else {"placed"}
    return {view: show for view, show in every.items() if view not in without}


@contextmanager
def _surroundings(kernel: Subject) -> Iterator[None]:
    """Read a kernel's text and its source from the corpus: no tool is started."""

    def text(_: bytes, name: str, __: Mapping[str, int]) -> str:
        assert isinstance(kernel, Listed) and name == kernel.name
        return kernel.text

    with chdir(sources()), mock.patch.object(tools, "disassemble_function", text):
        yield


def lines(name: str, view: str) -> list[str]:
    """Return what a view says of a kernel."""
    kernel = subjects()[name]
    with _surroundings(kernel):
        return views.said(kernel, views_of(name)[view])


def digest(said: list[str]) -> str:
    """Return a digest of a view."""
    return hashlib.sha256("\n".join(said).encode()).hexdigest()[:12]


@cache
def _kept() -> dict[tuple[str, str], str]:
    """Return the digests that are kept, by kernel and view."""
    rows = (line.split() for line in DIGESTS.read_text("utf-8").splitlines())
    return {(name, view): found for name, view, found in rows}


def compare(name: str, wanted: Mapping[str, View]) -> None:
    """Compare views of a kernel with the goldens.

    Raises:
        AssertionError: one says something else; where its text is kept, with what it said.
    """
    wrong = []
    for view in views_of(name).keys() & wanted:
        said = lines(name, view)
        path = TEXTS / f"{name}.{view}.txt"
        if path.exists():
            assert said == path.read_text("utf-8").splitlines(), REPAIR
        if digest(said) != _kept().get((name, view)):
            wrong.append(view)
    assert not wrong, f"{', '.join(sorted(wrong))} of {name} say something else. {REPAIR}"


def _of_functions() -> dict[str, list[str]]:
    """Return what single functions return, by the functions' names."""
    with chdir(sources()):
        return {name: [*made()] for name, made in FUNCTIONS.items()}


def compare_functions() -> None:
    """Compare what single functions return with the goldens.

    Raises:
        AssertionError: one returns something else.
    """
    said = _of_functions().items()
    wrong = [name for name, lines in said if digest(lines) != _kept().get((name, "functions"))]
    assert not wrong, f"{', '.join(wrong)}: something else is returned. {REPAIR}"


def compare_forms() -> None:
    """Compare what is said of each form of instruction with the goldens, by operation.

    Raises:
        AssertionError: of one, something else is said.
    """
    found = {(op, "forms"): digest(said) for op, said in of_forms().items()}
    known = {key: each for key, each in _kept().items() if key[1] == "forms"}
    wrong = sorted(
        op for op, _ in {*found, *known} if found.get((op, "forms")) != known.get((op, "forms"))
    )
    assert not wrong, f"Of instructions, something else is said: {', '.join(wrong)}. {REPAIR}"


def write() -> None:
    """Write all digests, and the texts of some kernels."""
    TEXTS.mkdir(exist_ok=True)
    for path in TEXTS.glob("*.txt"):
        path.unlink()
    rows = []
    for name in subjects():
        for view in views_of(name):
            said = lines(name, view)
            rows.append(f"{name} {view} {digest(said)}\n")
            if name in IN_TEXT and view in _SHOWN:
                text = "\n".join([*said, ""])
                (TEXTS / f"{name}.{view}.txt").write_text(text, "utf-8")
    rows += [f"{op} forms {digest(said)}\n" for op, said in sorted(of_forms().items())]
    rows += [f"{name} functions {digest(said)}\n" for name, said in _of_functions().items()]
    DIGESTS.write_text("".join(rows), "utf-8")


def write_into(folder: Path) -> None:
    """Write what all views say into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in subjects():
        for view in views_of(name):
            text = "\n".join([*lines(name, view), ""])
            (folder / f"{name}.{view}.txt").write_text(text, "utf-8")
    for name, said in (*of_forms().items(), *_of_functions().items()):
        (folder / f"{name}.txt").write_text("\n".join([*said, ""]), "utf-8")
