"""What ``ikp explain`` says of addresses and of bounds that were tried."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ikp.analysis.explain.copied_runs import with_tried
from ikp.analysis.explain.verdict import MOST_BYTES, Finding, Number, Tried, Verdict, Where
from ikp.core.run_figures import (
    ADDRESSES,
    NO_ADDRESSES,
    NOT_TRIED,
    TRIED,
    AccessFigures,
    AddressFigures,
    TriedSuspect,
    TriedSuspects,
    read_tried,
)
from ikp.trace import Trace
from tests.analysis.example import launch, trace

pytestmark = pytest.mark.any_pins

STRIDED = AccessFigures(
    *("LDG.E R8", "/src/a.py:7", "loop @a.py:5", "global", "load", 4, 640, 0, 20),
    *(32.0, 32.0, 4.0, 1.0, 1.5, 2.0, 128),
)
FINE = replace(STRIDED, line="/src/a.py:8", cost=4.0)
ATOMIC = replace(STRIDED, kind="atomic", line="/src/a.py:9", cost=1.0, same_address=32.0)
FOUND = AddressFigures(4, 64, 16, "equal", (), (FINE, ATOMIC, STRIDED, STRIDED))
SUSPECTS = TriedSuspects(
    4,
    (
        TriedSuspect("load", "/src/a.py:7", 2, "redirected to one line", "", 9e3, 6e3, 0.33, 0.01),
        TriedSuspect("barrier", "/src/a.py:6", 1, "removed", "", 9e3, 4e3, 0.55, 0.02),
        TriedSuspect("load", "/src/a.py:3", 1, refused="how often a loop runs depends on it."),
    ),
)


def explained(**facts: str) -> Verdict:
    made: Trace = trace([(0, 0, 0, 100)], launches=(launch("k", attempted=1, kept=1),))
    named = {key.replace("_", " ") + " k": text for key, text in facts.items()}
    return replace(made, provenance={**made.provenance, **named}).explain()


def test_accesses_that_cost_more_than_they_need_are_named_once() -> None:
    verdict = explained(addresses_of=FOUND.text())
    assert [each.line for each in verdict.accesses] == ["/src/a.py:7", "/src/a.py:9"]
    first = verdict.accesses[0]
    assert (first.what, first.cost, first.least, first.stride) == ("global load", 32, 4, 128)
    text = str(verdict)
    assert "global load of 4 B @a.py:7: 32.0 sectors, 4.0 would do; 32 lanes" in text
    assert "32 of one address" in text


def test_what_was_tried_is_told_by_its_gain_and_that_results_are_not_valid() -> None:
    verdict = explained(tried_in=SUSPECTS.text())
    assert [each.gain_share for each in verdict.tried] == [0.55, 0.33, None]
    assert "results are not valid" in verdict.tried[0].rationale
    text = str(verdict)
    assert "Tried without (the results of such copies are not valid):" in text
    assert "the barrier @a.py:6 removed: 55.0 % less time (+-2.0), measured" in text
    assert "the load @a.py:3: not tried: how often a loop runs depends on it." in text


def finding(id_: str, **where: tuple[str, ...]) -> Finding:
    return Finding(
        *(id_, "t", Number("n", 1.0, "ratio"), 1.0, 0.5, 2.0, "w", "likely", "r"),
        *(Where(**where), "s"),  # type: ignore[arg-type]
    )


def test_a_finding_has_the_gain_of_its_kind_and_line() -> None:
    tried = explained(tried_in=SUSPECTS.text()).tried
    found = [
        finding("uncoalesced", lines=("/src/a.py:7",)),
        finding("uncoalesced", lines=("/src/a.py:77",)),
        finding("barrier-skew", regions=("barrier @a.py:6 main()",)),
        finding("barrier-skew", lines=("/src/a.py:7",)),
        finding("exposed-load", lines=("/src/a.py:3",)),
    ]
    gains = [each.tried and each.tried.gain_share for each in with_tried(found, tried)]
    assert gains == [0.33, None, 0.55, None, None]


def test_why_there_are_none_is_told() -> None:
    verdict = explained(no_addresses_of="it is for sm_80.", not_tried_in="it is captured.")
    said = [(each.what, each.rationale) for each in verdict.unknown]
    assert ("addresses of lanes", "it is for sm_80.") in said
    assert any(why == "it is captured." for _, why in said)
    assert {ADDRESSES, NO_ADDRESSES, TRIED, NOT_TRIED} == {
        *("addresses of ", "no addresses of ", "tried in ", "not tried in ")
    }


def test_the_json_stays_within_its_bytes() -> None:
    many = TriedSuspects(99, SUSPECTS.suspects * 40)
    verdict = explained(tried_in=many.text(), addresses_of=FOUND.text())
    text = verdict.to_json()
    assert len(text.encode()) <= MOST_BYTES
    assert json.loads(text)["left_out"]["tried"] > 0
    assert isinstance(verdict.tried[0], Tried)
    assert read_tried({f"{TRIED}k": many.text()}, "k") == many
    assert read_tried({f"{TRIED}k": "{}"}, "k") is None
