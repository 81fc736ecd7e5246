"""A launch with marks in the PTX, asked for or not: what is launched, and what is told."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import triton
import triton.language as tl

import ikp
from ikp.backends.triton.unedited._launching import Launcher
from ikp.core.segment import Selection
from ikp.driver import cuda_memory
from ikp.errors import KernelError, PatchError
from ikp.probes.code.entry_code import CELL
from ikp.probes.code.selection_code import selection_words
from ikp.sass.cubins.cubin import Cubin
from ikp.unedited.plan import plan
from tests.backends.triton.test_foreign import arguments
from tests.backends.triton.unedited.on_air import MARKED, PLAIN, on_air

pytestmark = pytest.mark.compiled

WARPS = 4


@triton.jit
def counted(out, n):
    for k in range(n):
        tl.store(out + k, k)


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return which functions are launched, and the cubins that are loaded, on a GPU of air."""
    seen: list[Any] = []

    def launcher() -> Any:
        return lambda x, y, z, stream, function, *_: seen.append(function)

    on_air(monkeypatch, counted, launcher, seen.append)
    return seen


def test_the_marked_kernel_is_launched_and_it_is_told(launched: list[Any]) -> None:
    trace, told = recorded(ikp.instrument(counted, level="ptx", detail="ops"))
    (only,) = told
    assert only.startswith("counted: its marks are in its PTX, assembled again: another cubin")
    cubin, *functions = launched
    assert functions == [MARKED, MARKED]
    assert CELL in Cubin.read(cubin).elf.symbol_names()
    assert trace.provenance["marks in counted"] == "level=ptx detail=ops"
    assert trace.provenance["machine code of counted"].endswith("counted.cubin")
    counted[(2,)](*arguments())
    assert launched[-1] == PLAIN


@pytest.mark.parametrize(("level", "kinds", "told"), [("machine", 4, 2), ("ptx", 2, 9)])
@pytest.mark.filterwarnings("ignore:.*its marks are in its PTX", "ignore:nothing was recorded")
def test_each_choice_of_blocks_has_a_patched_kernel_and_all_others_share_one(
    level: str, kinds: int, told: int, launched: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[tuple[int, ...]] = []
    monkeypatch.setattr(cuda_memory, "write", lambda cell, words, stream: written.append(words))
    choices: list[dict[str, Any]] = [
        {},
        {"warps": iter([1])},
        {"blocks": range(1, 9, 4)},
        {"blocks": range(4), "warps": [0]},
        {"blocks": range(2)},
        {"warps": None},
    ]
    with ikp.profile():
        for each in choices:
            ikp.instrument(counted, level=level, **each)[(6,)](*arguments())
    cubins = [each for each in launched if isinstance(each, bytes)]
    assert [each for each in launched if each not in cubins] == [MARKED] * 6
    assert len({*cubins}) == len(cubins) == kinds
    slots = [words[1] >> 32 for words in written]
    assert slots == [6 * WARPS, 6, 2 * WARPS, 4, 2 * WARPS, 6 * WARPS]
    assert [len(words) for words in written] == [2, 9, told, 9, told, 2]
    assert written[1][2:] == selection_words(Selection(2), WARPS)


_MAKERS = {"patch": "ikp.probes.patch.patch", "mark": "ikp.ptx.marking.mark"}


def refusing(monkeypatch: pytest.MonkeyPatch, *places: str) -> None:
    """Have a kernel refused where its records would go."""

    def refuse(place: str) -> Any:
        def refused(*_: Any, **__: Any) -> None:
            raise PatchError(f"its {place} is not known.")

        return refused

    monkeypatch.setattr("ikp.probes.kept_patch.KeptPatch.of", lambda *_: None)
    for place in places:
        monkeypatch.setattr(_MAKERS[place], refuse(place))


def recorded(marked: Any, **session: Any) -> tuple[ikp.Trace, list[str]]:
    """Launch a marked kernel twice; return the trace, and what was told of its marks."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with ikp.profile(**session) as prof:
            marked[(2,)](*arguments())
            marked[(2,)](*arguments())
    texts = [str(each.message) for each in told if each.category is ikp.IkpWarning]
    return prof.trace, [text for text in texts if "nothing was recorded" not in text]


def test_it_is_what_machine_code_falls_back_to(
    launched: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing(monkeypatch, "patch")
    trace, told = recorded(ikp.instrument(counted, detail="waits"))
    assert launched[1:] == [MARKED, MARKED] and CELL in Cubin.read(launched[0]).elf.symbol_names()
    assert trace.provenance["marks in counted"] == "level=ptx detail=waits"
    (only,) = told
    assert only.startswith(
        "counted: counted can't be recorded in its machine code: its patch is not known. So its "
        "marks are in its PTX, assembled again: another cubin than the plain kernel's ("
    )


def test_where_both_are_refused_the_kernel_runs_plain(
    launched: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing(monkeypatch, "patch", "mark")
    trace, told = recorded(ikp.instrument(counted))
    assert launched == [PLAIN, PLAIN] and not trace.launches
    assert told == [
        (
            "counted runs plain: counted can't be recorded in its machine code: its patch is not "
            "known. counted can't be recorded in its PTX: its mark is not known."
        )
    ]


def test_chosen_lines_are_not_looked_for_in_ptx(
    launched: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing(monkeypatch, "patch")
    _, told = recorded(ikp.instrument(counted, lines="33", functions="f"))
    assert launched == [PLAIN, PLAIN]
    (only,) = told
    assert only.endswith("not known. Marks in its PTX have no chosen lines, chosen functions.")


@pytest.mark.parametrize("options", [{"clock": "cycles64"}, {"overflow": "stream"}])
def test_a_session_that_asks_for_another_clock_or_a_stream_leaves_the_kernel_plain(
    launched: list[Any], options: dict[str, str]
) -> None:
    marked = ikp.instrument(counted)
    _, told = recorded(marked, **options)
    (only,) = told
    ((name, value),) = options.items()
    assert only.startswith("counted runs plain: ") and f"have no {name}={value!r}" in only
    again, told = recorded(marked)
    assert not told and again.provenance["marks in counted"] == "level=machine detail=loops"
    assert launched[-4:] == [PLAIN, PLAIN, MARKED, MARKED]


def test_what_is_asked_for_by_its_level_is_refused(
    launched: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing(monkeypatch, "patch")
    with ikp.profile():
        with pytest.raises(PatchError, match="in its machine code: its patch is not known"):
            ikp.instrument(counted, level="machine")[(2,)](*arguments())
        with pytest.raises(KernelError, match=r"='machine'.*='ptx'.*leave the level out"):
            ikp.instrument(counted, level="source")[(2,)](*arguments())
    assert launched == []


def test_on_other_gpus_it_is_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert Launcher(plan(level=None), lambda: None).way(counted).level == "source"
    checked = Launcher(plan(level=None, check=True), lambda: None)
    with pytest.raises(KernelError, match=r"compiled for other GPUs\. Use level='so"):
        checked.launch(None, counted, print, (), {})


def test_the_interpreter_makes_no_ptx() -> None:
    class Interpreted:
        __name__ = full_name = "k"

    launcher = Launcher(plan(level="ptx"), lambda: None)
    with pytest.raises(KernelError, match="level='ptx' puts records into what a compiler has made"):
        launcher.launch(None, Interpreted(), print, (), {})
