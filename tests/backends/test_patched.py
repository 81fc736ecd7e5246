"""What is asked of a patch before it is made."""

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from ikp.backends.launched_grid import LaunchGrid
from ikp.backends.loaded import Module, Modules
from ikp.backends.patched import RecordedLaunch, chosen, made, shape
from ikp.backends.triton.unedited import _foreign as foreign
from ikp.core.abi import LAUNCH_HEADER_BYTES, Language
from ikp.core.segment import EVERYTHING, Selection
from ikp.driver import cuda, cuda_functions, cuda_memory
from ikp.errors import PatchError
from ikp.probes.code.entry_code import CELL
from ikp.probes.code.selection_code import selection_words
from ikp.probes.made_patch import Patch
from ikp.sass.cubins.extra_argument import ExtraArgument
from ikp.unedited.plan import plan
from ikp.verbs.dsl import known
from tests.sass.compiled import code

GRID = LaunchGrid(flat=False, sure=False)

pytestmark = [pytest.mark.compiled, pytest.mark.any_pins]


def test_the_environment_can_turn_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = code("matmul").compiled
    monkeypatch.setattr("ikp.verbs.dsl._names", {})  # other tests have a region of that name
    launch = RecordedLaunch(plan(level="machine"), Language.TRITON, lambda *_: None)
    image = compiled.asm["cubin"]
    assert (
        made(image, "matmul", "", launch, shared=0, grid=GRID, shown="math::matmul").names[0]
        == "matmul"
    )
    assert "math::matmul" in known().values()
    monkeypatch.setenv("IKP_PATCH", "0")
    with pytest.raises(PatchError, match="IKP_PATCH=0"):
        made(image, "matmul", "", launch, shared=0, grid=GRID)


def test_a_kernel_that_was_recorded_before_is_patched_by_nobody(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is the same in each regard, and its names are known."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("ikp.verbs.dsl._names", {})
    image = code("attention").compiled.asm["cubin"]
    launch = RecordedLaunch(plan(level="machine", detail="ops"), Language.TRITON, lambda *_: None)
    sampled = LaunchGrid(flat=False, sure=False, blocks=Selection(block_step=4, others=True))

    def each(grid: LaunchGrid, spare: bool) -> Patch:
        return made(image, "attention", "", launch, shared=64, grid=grid, spare=spare)

    first = [each(grid, spare) for grid in (GRID, sampled) for spare in (False, True)]
    assert len({(patch.sample, patch.argument) for patch in first}) > 1
    names = dict(known())
    monkeypatch.setattr("ikp.verbs.dsl._names", {})
    monkeypatch.delattr("ikp.probes.patch.patch")
    assert [each(grid, spare) for grid in (GRID, sampled) for spare in (False, True)] == first
    assert dict(known()) == names


def test_a_refusal_is_known_the_next_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    image = code("matmul").compiled.asm["cubin"]
    launch = RecordedLaunch(plan(level="machine"), Language.TRITON, lambda *_: None)

    def refused(shown: str) -> str:
        with pytest.raises(PatchError) as caught:
            made(image, "matmul", "", launch, shared=0, grid=GRID, shown=shown)
        return str(caught.value)

    monkeypatch.setattr("ikp.probes.patch.frame", lambda *_, **__: None)
    first = refused("a")
    monkeypatch.delattr("ikp.probes.patch.patch")
    assert first.startswith("a uses all")
    assert refused("b") == first.replace("a uses", "b uses", 1)


def test_a_refusal_names_the_kernel_as_people_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And a mistake of ikp's is a refusal, too: the program goes on with the plain kernel."""
    compiled = code("matmul").compiled
    launch = RecordedLaunch(plan(level="machine"), Language.TRITON, lambda *_: None)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("ikp.probes.patch.frame", lambda *_, **__: None)
    with pytest.raises(PatchError, match=r"^math::matmul<T> uses all"):
        made(
            compiled.asm["cubin"],
            "matmul",
            "",
            launch,
            shared=0,
            grid=GRID,
            shown="math::matmul<T>",
        )
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "another"))
    monkeypatch.setattr("ikp.probes.patch.ProbeRegions", lambda *_, **__: [].pop())
    with pytest.raises(
        PatchError, match=r"matmul could not be read \(IndexError: .*mistake of ikp"
    ):
        made(compiled.asm["cubin"], "matmul", "", launch, shared=0, grid=GRID)


def test_records_go_into_ptx_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compiled = code("gathered").compiled
    monkeypatch.setattr("ikp.verbs.dsl._names", {})
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    launch = RecordedLaunch(plan(level="ptx"), Language.TRITON, lambda *_: None)
    assemble = partial(foreign.assemble, compiled)
    found = made(
        *(compiled.asm["cubin"], "gathered", compiled.asm["ptx"], launch),
        shared=0,
        grid=GRID,
        assemble=assemble,
    )
    assert found.cell_counts_records and {*found.names} <= {*known().values()}
    kept = Path(found.kept)
    assert kept.read_bytes() == found.cubin
    assert CELL in kept.with_suffix(".ptx").read_text()


@pytest.mark.parametrize(("records", "told"), [(False, 32 + 5 * 16), (True, 5)])
def test_a_kernel_is_told_of_its_room_as_it_counts_it(
    records: bool, told: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes of a slot in machine code, records of it in PTX."""
    written: list[tuple[int, int]] = []
    monkeypatch.setattr(cuda_memory, "write", lambda cell, words, stream: written.append(words))
    made = Patch(b"", ("k",), 2, (8, 8), cell_counts_records=records)
    module = Module(made, 1, 2, 3)
    slots = 3 * 2
    data = np.zeros(LAUNCH_HEADER_BYTES + slots * (32 + 5 * 16), np.uint8)
    sized = SimpleNamespace(numel=lambda: len(data))
    for nbytes in (1, 0, 1):
        prof = SimpleNamespace(data=sized, address=64, slots_bytes=nbytes)
        module.point(prof, (3, 1, 1), 2, 0, captured=False)
    assert written[0] == written[2] == (64, told | slots << 32)
    assert written[1] == (64, 0)  # else, who counts on slots has none


def test_what_has_an_argument_is_told_by_that_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written: not even the cell is asked for, which such a module does not have."""
    monkeypatch.delattr(cuda_memory, "write")
    monkeypatch.delattr(cuda_functions, "address_of")
    monkeypatch.setattr(cuda_functions, "load", lambda cubin, name: (1, 2))
    monkeypatch.setattr(cuda_functions, "registers", lambda *_: 255)
    for name in ("context", "context_number"):
        monkeypatch.setattr(cuda, name, lambda *_: 255)
    patch = Patch(b"", ("k",), 2, (8, 8), select=True, argument=ExtraArgument(3, 48, 72))
    module = Module.load(patch, "k")
    data = SimpleNamespace(numel=lambda: LAUNCH_HEADER_BYTES + 960)
    prof = SimpleNamespace(data=data, address=64, slots_bytes=1)
    words = module.point(prof, (5, 1, 1), 2, 0, captured=False)
    assert words == (64, 96 | 10 << 32, *selection_words(EVERYTHING, 2))
    assert 8 * len(words) == 72


def test_a_refusal_that_is_kept_keeps_nothing_of_the_programs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An error that was raised holds frames, and these the frames that called them: all tensors."""
    monkeypatch.setattr(cuda, "context_number", lambda: 0)
    modules, alive = Modules(), list[weakref.ref[np.ndarray]]()

    def refuse() -> Patch:
        try:
            return {}["why"]
        except KeyError as error:
            raise PatchError("it is not known how.") from error

    def program() -> None:
        tensor = np.zeros(8)
        alive.append(weakref.ref(tensor))
        with pytest.raises(PatchError, match="not known how"):
            modules.get(("k",), "k", 0, refuse)

    gc.disable()
    try:
        for _ in range(3):
            program()
            assert alive[-1]() is None
    finally:
        gc.enable()


def test_threads_have_a_patched_kernel_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel is told where to record, then launched: another thread may come between."""
    monkeypatch.setattr(cuda, "context", lambda: 0)
    monkeypatch.setattr(cuda, "context_number", lambda: 0)
    monkeypatch.setattr(Module, "load", lambda patch, name: Module(patch, 1, 2, 3))
    made, modules = Patch(b"", ("k",), 2, (8, 8)), Modules()
    together = threading.Barrier(3)

    def get(_: int) -> list[Module]:
        together.wait()
        return [modules.get(("k",), "k", 0, lambda: made) for _ in range(2)]

    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(get, range(3)))
    assert all(first is second and first.patch is made for first, second in found)
    assert len({id(first) for first, _ in found}) == 3


@pytest.mark.parametrize(
    ("chosen", "slots", "divided"),
    [
        (Selection(0b10, 1, 2), 2, 2),
        (EVERYTHING, 10, 10),
        (Selection(0b100), 0, 5),
        (Selection(first_block=5), 0, 2),
    ],
)
def test_memory_is_divided_among_the_chosen(
    chosen: Selection, slots: int, divided: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nobody is chosen, as the decoder divides it: the launch is told all the same."""
    written: list[tuple[int, ...]] = []
    monkeypatch.setattr(cuda_memory, "write", lambda cell, words, stream: written.append(words))
    module = Module(Patch(b"", ("k",), 2, (8, 8), select=True), 1, 2, 3)
    sized = SimpleNamespace(numel=lambda: LAUNCH_HEADER_BYTES + 960)
    for on in (1, 0):
        prof = SimpleNamespace(data=sized, address=64, slots_bytes=on)
        module.point(prof, (5, 1, 1), 2, 0, chosen, captured=False)
    words = selection_words(chosen, 2)
    assert written == [(64, 960 // divided | slots << 32, *words), (64, 0, *words)]


def test_a_choice_sizes_the_buffer_of_a_kernel_that_says_how_much_it_records() -> None:
    every, some = (shape((9, 1, 1), 4, 6, chosen({"warps": each})) for each in (None, [1, 3]))
    header = LAUNCH_HEADER_BYTES
    assert every["size"] - header == 2 * (some["size"] - header)
    nobody = shape((9, 1, 1), 4, 6, chosen({"warps": [7]}))  # each block would have one
    assert (nobody["size"] - header) * 4 == every["size"] - header
    assert "size" in shape((9, 1, 1), 4, None, chosen({"warps": [7]}))
    assert shape((9, 1, 1), 4, None, chosen({"granularity": 2})) == {
        "grid": (9, 1, 1), "num_warps": 4
    }  # fmt: skip
