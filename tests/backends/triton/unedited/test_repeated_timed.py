"""Launches that Triton repeats: timed as the first ones are."""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from ikp.backends.triton.unedited import _repeated as repeated
from ikp.driver import cuda_functions
from ikp.session.known_launch import SlowError

GRID, FUNCTION = (3, 1, 1), 77


@pytest.mark.parametrize(
    ("taken", "made"),
    [((None, (1, 2)), "recorded"), (None, "plain"), (SlowError(), None)],
    ids=["recorded", "no room", "slow"],
)
@pytest.mark.parametrize("timing", [True, False])
def test_a_launch_is_timed_if_it_is_recorded(
    monkeypatch: pytest.MonkeyPatch, taken: Any, made: str | None, timing: bool
) -> None:
    """The rule: events go around launches with records, and no plain one is taken for one."""
    said = list[Any]()
    session = SimpleNamespace(facts={})

    def take(_: int) -> Any:
        if isinstance(taken, SlowError):
            raise taken
        return taken

    def recorded(*args: Any) -> bool:
        said.append(("begins", *args))
        return timing

    known = repeated.KnownLaunch.__new__(repeated.KnownLaunch)
    known._plain, known._cache = lambda *_: "plain", None
    known._ahead, known._untimed = None, 0
    known.left = SimpleNamespace()  # type: ignore[assignment]
    known.repeat = SimpleNamespace(module=SimpleNamespace(function=5), shape=(GRID,), take=take)  # type: ignore[assignment]
    launches = SimpleNamespace(session=lambda: session, label="k", recorded={"k": 0})
    monkeypatch.setattr(cuda_functions, "like", lambda *_, **__: None)
    monkeypatch.setattr(repeated.KnownLaunch, "_launched", lambda *_: "recorded")
    ended = SimpleNamespace(
        reports=1, recorded=recorded, ended=lambda *, failed: said.append(failed)
    )
    monkeypatch.setattr(repeated, "timed", ended)
    if made is None:
        with pytest.raises(SlowError):
            known.launch(launches, *GRID, 0, FUNCTION)  # type: ignore[arg-type]
    else:
        assert known.launch(launches, *GRID, 0, FUNCTION) == made  # type: ignore[arg-type]
    assert said[0] == ("begins", FUNCTION, GRID, "k", session.facts)
    assert said[1:] == ([made != "recorded"] if timing else [])
    before = len(said)
    with suppress(SlowError):
        known.launch(launches, *GRID, 0, FUNCTION)  # type: ignore[arg-type]
    assert (len(said) > before) == timing, "enough are timed"
    ended.reports += 1
    with suppress(SlowError):
        known.launch(launches, *GRID, 0, FUNCTION)  # type: ignore[arg-type]
    assert said[-1 - timing][0] == "begins", "launches are timed anew after a report"
