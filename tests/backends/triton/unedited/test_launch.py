"""Which launches are recorded, and what takes the place of a kernel that was compiled ahead."""

from __future__ import annotations

import gc
import pkgutil
import signal
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import triton

import ikp
from ikp.backends.patched import wanted
from ikp.backends.triton.unedited import _clones
from ikp.backends.triton.unedited import _foreign as foreign
from ikp.backends.triton.unedited._clones import clone_of, launch_shape
from ikp.backends.triton.unedited._launching import Launcher
from ikp.backends.triton.unedited._over import Over
from ikp.backends.triton.unedited._reasons import NOT_CHOSEN, TUNING, tuning
from ikp.backends.triton.unedited._special import full_name
from ikp.backends.triton.unedited._steady import SteadyLaunch, SteadyLaunches
from ikp.backends.triton.unedited._warm import Warm
from ikp.backends.triton.unedited.everything import NO_ROOM, NOT_NAMED, Everything, _launches
from ikp.core.turns import FIRST, IN_TURN
from ikp.unedited.plan import plan, span
from tests.kernels import unedited


class Jitted(SimpleNamespace):
    """What a launch reads of a function; others may refer to it weakly."""


def kernel(name: str = "k") -> Any:
    return Jitted(
        __name__=name, fn=SimpleNamespace(__module__="m", __qualname__=name), arg_names=["x", "n"]
    )


class Recording(Everything):
    """Records without a kernel: counts what would be recorded."""

    def record(self, session: Any, kernel: Any, plain: Any, args: Any, kwargs: Any) -> Any:
        self.recorded[kernel.__name__] += 1
        session.held += 1
        return ("recorded", args, kwargs)


def launched(launcher: Launcher, name: str, times: int) -> list[bool]:
    """Launch a kernel so often; return which launches were recorded."""
    found = [launcher.run(kernel(name), lambda *_, **__: None, warmup=False) for _ in range(times)]
    return [each is not None for each in found]


def recording(**options: Any) -> Recording:
    session: Any = SimpleNamespace(held=0)
    return Recording(plan(), lambda: session, **options)


class Tensor:
    def __init__(self, dtype: str) -> None:
        self.dtype = dtype


def test_what_a_function_is_specialised_to_is_a_kernel_of_its_own() -> None:
    launcher = recording(launches=span(":1"))
    jitted = kernel()
    jitted.arg_names, jitted.constexprs = ["x", "n", "BLOCK"], [2]

    def ran(dtype: str, n: int, block: int, **options: object) -> bool:
        made = launcher.run(
            jitted, lambda *_, **__: None, Tensor(dtype), n, BLOCK=block, warmup=False, **options
        )
        return made is not None

    assert [ran("fp16", n, 64) for n in (16, 17, 18)] == [True, False, False]
    assert [ran("fp16", 16, 128) for _ in range(2)] == [True, False]
    assert [ran("fp32", 16, 64) for _ in range(2)] == [True, False]
    assert ran("fp16", 16, 64, num_warps=8)
    with tuning():
        assert not ran("fp16", 16, 256)  # a trial takes no label
    assert list(launcher.recorded) == ["k", "k<BLOCK=128>", "k<x=fp32>", "k<num_warps=8>"]
    assert launcher.plain == {
        ("k", NOT_CHOSEN): 2,
        ("k<BLOCK=128>", NOT_CHOSEN): 1,
        ("k<x=fp32>", NOT_CHOSEN): 1,
        ("k", TUNING): 1,
    }
    jitted.fn.__defaults__ = (64,)
    left_out, given = ({}, {"BLOCK": 64})
    found = [launcher.special(jitted, (Tensor("fp16"), 3), each) for each in (left_out, given)]
    assert {full_name(each) for each in found} == {"m.k<x=fp16, BLOCK=64>"}


def test_a_function_is_the_same_kernel_however_its_arguments_are_passed() -> None:
    launcher, jitted = recording(), kernel()
    jitted.arg_names, jitted.constexprs = ["x", "n", "TILE"], [2]
    x, tile = Tensor("fp16"), [64, 32]  # a list can't be hashed
    ways: list[tuple[tuple[object, ...], dict[str, object]]] = [
        ((x, 1, tile), {}),
        ((x, 2), {"TILE": tile}),
        ((), {"TILE": [64, 32], "n": 3, "x": x}),
        ((x, 5, (64, 32)), {"grid": 8}),
        ((x,), {"TILE": (64, 32), "n": 7}),
    ]
    found = [launcher.special(jitted, *each).full_name for each in ways]
    assert found == ["m.k<x=fp16, TILE=[64, 32]>"] * 3 + ["m.k<x=fp16, TILE=(64, 32)>"] * 2
    tile[0] = 128
    assert launcher.special(jitted, *ways[0]).full_name == "m.k<x=fp16, TILE=[128, 32]>"
    number, launched = id(jitted), launcher.specials._launched
    assert number in launched
    del jitted
    gc.collect()
    assert number not in launched


def test_a_specialisation_that_lacks_a_value_has_a_number() -> None:
    """A kernel that is compiled ahead is launched without its constants."""
    launcher, jitted = recording(), kernel()
    jitted.arg_names, jitted.constexprs = ["x", "BLOCK"], [1]
    for constants in ({"BLOCK": 64}, {}):
        launcher.run(jitted, lambda *_, **__: True, Tensor("fp16"), warmup=False, **constants)
    assert list(launcher.recorded) == ["k", "k#2"]


def test_functions_of_one_name_have_labels_of_their_own() -> None:
    launcher = recording()
    other = kernel()
    other.fn.__module__ = "other"
    for each in (kernel(), other, kernel()):
        launcher.run(each, lambda *_, **__: None, warmup=False)
    assert launcher.recorded == {"k": 2, "other.k": 1}


def test_chosen_launches_are_counted_by_kernel() -> None:
    launcher = recording(launches=span("1:3"))
    assert launched(launcher, "a", 4) == [False, True, True, False]
    assert launched(launcher, "b", 2) == [False, True]
    assert launcher.plain["a", NOT_CHOSEN] == 2


class Refused(Everything):
    """Fails as Triton's compiler does where it refuses a kernel."""

    def launch(self, session: Any, kernel: Any, plain: Any, *_: Any) -> Any:
        raise RuntimeError("PassManager::run failed")


def refused(*, compiled: bool) -> tuple[Refused, Any]:
    launcher, refusing = Refused(plan(), lambda: SimpleNamespace(held=0)), kernel()
    if compiled:
        refusing.cache_key = "key"
    return launcher, refusing


def test_what_the_compiler_refuses_runs_plain() -> None:
    launcher, refusing = refused(compiled=True)
    for _ in range(2):
        assert launcher.run(refusing, lambda *_, **__: "plain", warmup=False) == "plain"
    reason = "could not be marked: RuntimeError: PassManager::run failed"
    assert launcher.plain == {("k", reason): 2}


def test_what_fails_in_the_interpreter_is_the_programs_own() -> None:
    launcher, refusing = refused(compiled=False)
    with pytest.raises(RuntimeError, match="PassManager"):
        launcher.run(refusing, lambda *_, **__: "plain", warmup=False)


@pytest.mark.parametrize("step", ["special", "chosen"])
def test_what_fails_before_a_launch_has_the_program_launch_plain(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever step of the choice fails, and where the launch was made, each launch runs once."""

    def fails(*_: object) -> Any:
        raise AttributeError("torch has no such function")

    def ran(*args: object, **_: object) -> object:
        every.append(args)
        return "plain"

    launcher, every = recording(), list[Any]()
    monkeypatch.setattr(Launcher, step, fails)
    assert launcher.run(kernel(), ran, 1, warmup=False) == "plain"
    form: Any = SimpleNamespace(launches={})
    late = SteadyLaunch(launcher, form, kernel(), (), {})
    assert late.reaches(lambda _, plain: plain, None, ran, 1, 1, 1, 0, 7) == "plain"
    assert late.made() is None
    assert every == [(1,), (1, 1, 1, 0, 7)]
    ((name, why),) = launcher.plain
    assert name == "k" and "AttributeError: torch has no such function" in why


def test_what_fails_behind_a_launch_is_not_seen_by_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Jit:
        run = staticmethod(lambda *_, **__: "ran")

    def fails(*_: object) -> Any:
        raise AttributeError("of ikp's")

    monkeypatch.setattr(foreign, "fits", lambda _: True)
    for step in (Over, SteadyLaunches):
        with monkeypatch.context() as patch:
            patch.setattr(step, "look", fails)
            restore = _launches(Jit, Everything(plan(), lambda: None))
            assert Jit.run(kernel(), warmup=False) == "ran"
            restore()


@pytest.fixture
def alarm() -> Iterator[Callable[[], None]]:
    """Return what has a time limit of the program's strike."""

    def over(*_: object) -> None:
        raise TimeoutError("the program's own limit")

    before = signal.signal(signal.SIGALRM, over)
    yield lambda: signal.raise_signal(signal.SIGALRM)
    signal.signal(signal.SIGALRM, before)


class Late(Everything):
    """Is struck by a time limit while a kernel is marked or compiled."""

    strike: Callable[[], None]

    def launch(self, session: Any, kernel: Any, plain: Any, *_: Any) -> Any:
        self.strike()


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_time_limit_is_no_failure_to_mark(alarm: Callable[[], None], wrapped: bool) -> None:
    def strike() -> None:
        try:
            alarm()
        except OSError as error:
            if not wrapped:
                raise
            raise ikp.KernelError("a file can't be read") from error

    launcher, late = Late(plan(), lambda: SimpleNamespace(held=0)), kernel()
    launcher.strike, late.cache_key = strike, "key"
    with pytest.raises(TimeoutError, match="the program's own"):
        launcher.run(late, lambda *_, **__: pytest.fail("it runs on"), warmup=False)
    assert not launcher.plain and not launcher.failed


@pytest.mark.parametrize("where", ["ast.parse", f"{_clones.__name__}._first_line"])
def test_a_time_limit_that_strikes_as_a_source_is_read(
    alarm: Callable[[], None], where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = pkgutil.resolve_name(where)

    def strike(*args: Any) -> Any:
        alarm()
        return real(*args)

    kernel = triton.jit(unedited.matmul.fn)
    with monkeypatch.context() as patch:
        patch.setattr(where, strike)
        with pytest.raises(TimeoutError, match="the program's own"):
            clone_of(kernel, plan(level="source"))


def test_chosen_kernels_match_by_module_and_name() -> None:
    import re

    launcher = recording(kernels=re.compile("^m.a$"))
    assert launched(launcher, "a", 1) == [True]
    assert launched(launcher, "ab", 1) == [False]
    assert launcher.plain["m.ab", NOT_NAMED] == 1


def test_the_room_for_recordings_ends() -> None:
    launcher = recording(room=2)
    assert launched(launcher, "a", 3) == [True, True, False]
    assert launcher.plain["a", NO_ROOM] == 1
    launcher.session().held = 0  # type: ignore[union-attr,misc]
    assert launched(launcher, "a", 1) == [True], "what counts is what is held, not what was"


def test_half_of_the_room_is_for_later_kernels() -> None:
    launcher = recording(room=8, launches=span(":8"))
    assert launched(launcher, "a", 6) == [True] * 4 + [False] * 2
    assert [launched(launcher, each, 3) for each in "bc"] == [[True, True, False]] * 2
    assert launched(launcher, "d", 1) == [False], "all is held"
    every = recording(room=8, launches=span(":"))
    assert launched(every, "a", 9) == [True] * 8 + [False], "all launches are asked for"


@pytest.mark.parametrize(
    ("level", "hooked", "numbers"),
    [("machine", True, IN_TURN), ("machine", False, FIRST), ("source", True, FIRST)],
)
def test_plain_launches_come_in_turn_where_they_are_timed(
    monkeypatch: pytest.MonkeyPatch, level: str, hooked: bool, numbers: Sequence[int]
) -> None:
    """The rule: a launch runs plain to be compared with, and so only where that is done."""
    monkeypatch.setattr("ikp.backends.triton.unedited._launching.is_hooked", lambda: hooked)
    launcher = recording(launches=IN_TURN)
    launcher.plan = plan(level=level)
    found = launched(launcher, "a", 20)
    assert [number for number, each in enumerate(found) if each] == [*numbers]
    assert launcher.over(kernel("a")) == NOT_CHOSEN


def test_captures_have_no_plain_ones_among_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ikp.backends.triton.unedited._launching.is_hooked", lambda: True)
    launcher = recording(launches=IN_TURN)
    launcher.plan, session = plan(level="machine"), launcher.session()
    why = [launcher.reason_for_plain(kernel("a"), session, each) for each in range(1, 20)]
    assert why == [None] * len(FIRST) + [NOT_CHOSEN] * 11


def test_trials_of_an_autotuner_count_as_no_launch() -> None:
    launcher = recording(launches=span("0"))
    with tuning():
        assert launched(launcher, "a", 3) == [False] * 3
    assert launched(launcher, "a", 2) == [True, False]
    assert launcher.plain["a", TUNING] == 3


def test_the_kill_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IKP", "0")
    assert launched(recording(), "a", 1) == [False]


class Compiled:
    """A kernel that ``warmup`` has compiled."""

    n_regs = 32

    def __getitem__(self, grid: Any) -> Any:
        return lambda *args, **kwargs: ("plain", grid, args, kwargs)


def test_a_kernel_compiled_ahead_is_recorded_when_it_is_launched() -> None:
    launcher = recording(launches=span("0"))
    options = {"n": 3, "num_warps": 8, "grid": (1,), "warmup": True}
    warm = launcher.run(kernel(), lambda *_, **__: Compiled(), "x", **options)
    assert isinstance(warm, Warm)
    assert warm.n_regs == 32
    with pytest.raises(AttributeError):
        _ = warm.nothing_of_the_kind
    what, args, kwargs = warm[4, 1, 1]("x", 3)
    assert (what, args) == ("recorded", ("x", 3))
    assert kwargs == {"num_warps": 8, "grid": (4, 1, 1), "warmup": False}
    assert warm[4, 1, 1]("x", 3) == ("plain", (4, 1, 1), ("x", 3), {})
    assert warm[4, 1, 1]("x", 3, stream=7)[0] == "plain"


@pytest.mark.parametrize("chosen", ["0", "1"], ids=["recorded", "plain"])
def test_a_kernel_compiled_ahead_is_one_launch_to_the_drivers_hook(chosen: str) -> None:
    """The rule: what Triton's launcher decides on, the driver's hook does not record once more."""
    seen: list[int] = []

    class Counting(Compiled):
        def __getitem__(self, grid: Any) -> Any:
            return lambda *_: seen.append(wanted().others)

    launcher = recording(launches=span(chosen))
    launcher.record = lambda *_: seen.append(wanted().others)
    options = {"n": 3, "grid": (1,), "warmup": True}
    warm = launcher.run(kernel(), lambda *_, **__: Counting(), "x", **options)
    warm[4, 1, 1]("x", 3)
    assert seen == [1] and not wanted().others


def test_a_warmup_that_compiles_nothing_returns_nothing() -> None:
    assert recording().run(kernel(), lambda *_, **__: None, grid=(1,), warmup=True) is None


def test_a_parameter_may_be_called_like_one_of_ours() -> None:
    made = recording().run(kernel(), lambda *_, **__: None, kernel=1, plain=2, warmup=False)
    assert made == ("recorded", (), {"kernel": 1, "plain": 2, "warmup": False})


def test_the_last_session_that_is_open_is_the_current_one() -> None:
    from ikp.session.current import current

    assert current() is None
    with ikp.profile() as outer:
        with ikp.profile() as inner:
            assert current() is inner
        assert current() is outer
    assert current() is None


def test_a_session_that_another_thread_has_just_ended_lets_the_kernel_run_plain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ikp.backends.triton.unedited._clones.kernel_clone", lambda *_: None)
    session = ikp.profile()
    launcher = Launcher(plan(), lambda: session)
    launched = kernel()
    assert launcher.run(launched, lambda *_, **__: "plain", grid=(1,)) == "plain"
    launcher.buffer["granularity"] = "a pinch"
    with session, pytest.raises(ikp.UsageError, match="granularity"):
        launcher.run(launched, lambda *_, **__: "plain", grid=(1,))


def test_a_launch_tells_its_buffer_how_large_it_is() -> None:
    def function(x: Any, n: int, BLOCK: int = 128) -> None: ...

    compiled = Jitted(fn=function, cache_key="k")
    asked = {"grid": lambda meta: (meta["n"] // meta["BLOCK"],), "num_warps": 8, "num_stages": 3}
    assert launch_shape(compiled, (None,), {**asked, "n": 1024}) == {"grid": (8,), "num_warps": 8}
    assert launch_shape(compiled, (), {"grid": (3, 2)}) == {"grid": (3, 2), "num_warps": 4}
    interpreted = Jitted(fn=function)
    assert launch_shape(interpreted, (None, 512), {**asked, "BLOCK": 64}) == {
        "grid": (8,), "num_warps": 1
    }  # fmt: skip
