"""What a kernel is compiled for, as text: it prints as it parses, and nothing else parses."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikp.core.abi import ABI_VERSION, ClockKind, OverflowMode
from ikp.core.segment import Spec

SPECS = st.builds(
    Spec,
    clock=st.sampled_from(ClockKind),
    overflow=st.sampled_from(OverflowMode),
    device=st.sampled_from(["cuda", "cpu"]),
    schedule=st.booleans(),
    select=st.booleans(),
    totals=st.booleans(),
    target_options=st.dictionaries(st.from_regex(r"[a-z_]+", fullmatch=True), st.booleans()).map(
        lambda made: tuple(sorted(made.items()))
    ),
    abi=st.integers(0, 2**32 - 1),
    revision=st.text("0123456789abcdef", max_size=12),
)


@given(SPECS)
def test_it_parses_as_it_prints(spec: Spec) -> None:
    assert Spec.parse(str(spec)) == spec


def test_the_text_is_that_of_this_release() -> None:
    # Part of compile-cache keys: another text recompiles every kernel.
    text = (
        "ikp abi=1 clock=cycles overflow=stop device=cuda schedule=1 select=0 totals=0 "
        "target= revision=0123abcd"
    )
    assert str(Spec(revision="0123abcd")) == text
    assert f"abi={ABI_VERSION} " in text


@given(SPECS, SPECS)
def test_different_specs_print_differently(one: Spec, other: Spec) -> None:
    assert (str(one) == str(other)) is (one == other)


@pytest.mark.parametrize("field", [field.name for field in fields(Spec) if field.init])
def test_every_field_shows(field: str) -> None:
    other = Spec(
        ClockKind.HOST,
        OverflowMode.WRAP,
        "cpu",
        False,
        select=True,
        totals=True,
        target_options=(("fast", True),),
        abi=2,
        revision="f",
    )
    changed = replace(Spec(), **{field: getattr(other, field)})
    assert changed != Spec()
    assert str(changed) != str(Spec())


TEXT = str(Spec(revision="abc"))
WRONG = [
    "",
    "ikp",
    "IKP" + TEXT[3:],
    TEXT + " ",
    TEXT + " more=1",
    TEXT + " abi=1",
    TEXT.replace("abi=1 ", ""),
    TEXT.replace("abi=1", "abi=one"),
    TEXT.replace("abi=1", "abi=01"),
    TEXT.replace("cycles", "sundial"),
    TEXT.replace("cycles", "Cycles"),
    TEXT.replace("stop", "drop"),
    TEXT.replace("schedule=1", "schedule=2"),
    TEXT.replace("schedule=1", "schedule"),
    TEXT.replace(" ", "  "),
]


@pytest.mark.parametrize("text", WRONG)
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a recording spec") as caught:
        Spec.parse(text)
    assert repr(text) in str(caught.value)


@given(st.text())
def test_random_text_is_refused_in_one_way(text: str) -> None:
    with pytest.raises(ValueError, match="not a recording spec"):
        Spec.parse(text)
