"""Functions whose launches are recorded no more are launched by Triton alone, until it compiles."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
import triton
import triton.language as tl

from ikp.backends import patched
from ikp.backends.triton.unedited import _foreign as foreign
from ikp.backends.triton.unedited._over import Over, Shortcuts
from ikp.backends.triton.unedited._reasons import NOT_CHOSEN
from ikp.backends.triton.unedited.everything import Everything
from ikp.probing import Feature, Foreign, Private
from ikp.unedited.plan import ALL, NOT_NAMED, plan
from tests.backends.renaming import named, renamed, told_once
from tests.backends.triton.test_foreign import arguments
from tests.backends.triton.unedited.on_air import PLAIN, on_air
from tests.backends.triton.unedited.test_launch import Recording
from tests.backends.triton.unedited.test_told import launcher

pytestmark = pytest.mark.compiled
MANY = 100


@triton.jit
def stepped(out, n, STEP: tl.constexpr):
    for k in range(n):
        tl.store(out + k * STEP, k)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What the driver would launch."""
    found: list[tuple[Any, ...]] = []
    on_air(monkeypatch, stepped, lambda: launcher(found), lambda _: None)
    return found


def recording(**options: Any) -> Recording:
    session: Any = SimpleNamespace(held=0)
    return Recording(plan(), lambda: session, launches=range(2), **options)


def launched(step: int, times: int) -> None:
    for _ in range(times):
        stepped[(6,)](*arguments(), STEP=step)


def short() -> bool:
    return "run" in vars(stepped) and "_do_compile" in vars(stepped)


def test_a_function_past_its_quota_is_launched_by_triton_and_counted(
    seen: list[tuple[Any, ...]],
) -> None:
    made = recording()
    with made.stepping_in():
        launched(1, 20)
        assert not short()
        launched(1, MANY)
        assert short() and patched.passing["stepped"](PLAIN)
        assert not patched.passing["stepped"](PLAIN + 1), "another kernel of that name"
    assert len(seen) == MANY + 18 and made.recorded == {"stepped": 2}
    assert made.plain == {("stepped", NOT_CHOSEN): MANY + 18}
    assert not short() and "stepped" not in patched.passing


def test_a_specialisation_that_is_compiled_then_is_recorded(seen: list[tuple[Any, ...]]) -> None:
    made = recording()
    with made.stepping_in():
        launched(1, MANY)
        assert short()
        launched(2, 3)
        assert not short()
        launched(1, 5)
    assert made.recorded == {"stepped": 2, "stepped<STEP=2>": 2}
    assert made.plain == {("stepped", NOT_CHOSEN): MANY + 3, ("stepped<STEP=2>", NOT_CHOSEN): 1}
    assert len(seen) == MANY + 4


def test_while_another_specialisation_may_be_recorded_there_is_no_shortcut(
    seen: list[tuple[Any, ...]],
) -> None:
    made = recording()
    with made.stepping_in():
        launched(2, 1)
        launched(1, MANY)
        assert not short()
        launched(2, 3)
    assert made.recorded == {"stepped": 2, "stepped<STEP=1>": 2}
    assert len(seen) == MANY


def test_a_kernel_that_is_not_named_has_one_for_all_specialisations(
    seen: list[tuple[Any, ...]],
) -> None:
    made = recording(kernels=re.compile("other"))
    with made.stepping_in():
        launched(1, MANY)
        assert short()
        launched(2, 1)
        launched(1, MANY)
    (counted,) = made.plain
    assert counted[1] == NOT_NAMED and made.plain[counted] == len(seen) == 2 * MANY + 1


def test_compiling_ahead_ends_it_and_compiles(seen: list[tuple[Any, ...]]) -> None:
    made = recording()
    with made.stepping_in():
        launched(1, MANY)
        assert short()
        assert stepped.warmup(*arguments(), STEP=4, grid=(6,)) is not None
        assert not short()
    assert made.plain == {("stepped", NOT_CHOSEN): MANY - 2}
    assert len(seen) == MANY - 2


@pytest.mark.parametrize(("package", "feature", "name"), named(foreign.TRITON, foreign.COMPILES))
def test_where_its_name_is_gone_launches_take_the_long_way(
    package: Foreign, feature: Feature, name: Private
) -> None:
    made = recording()
    over = Over(made)
    for _ in range(3):
        made.chosen(made.special(stepped, (), {}))
    over.look(stepped, stepped, (), {})
    assert over.only(stepped) is not None
    with renamed(package, name), told_once(package, feature, name):
        for _ in range(2):
            shortcuts = Shortcuts(made, over, lambda: None)
            for _ in range(MANY):
                shortcuts.passed(stepped)
    assert not short()


@pytest.mark.parametrize("ends", ["kernels", "failed", "launches", "session"])
def test_where_every_launch_is_recorded_none_is_asked_whether_it_is_the_last(ends: str) -> None:
    session: Any = object()
    every = Everything(plan(level=None), lambda: session, ALL, {})
    assert every.goes_on
    if ends == "kernels":
        every.kernels = re.compile("x")
    elif ends == "failed":
        every.failed["x"] = "could not be marked"
    elif ends == "launches":
        every.launches = range(8)
    else:
        session = None
    assert not every.goes_on
