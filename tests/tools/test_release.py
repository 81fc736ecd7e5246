"""A release goes out with its tag, its changelog and real addresses, or not at all."""

from __future__ import annotations

import pytest

from tools.release import missing

pytestmark = pytest.mark.any_pins
GOOD = ("v1.2.3", "1.2.3", "# Changelog\n\n## 1.2.3\n", {"Repository": "https://a.example.org/b"})


def test_a_release_that_is_whole_goes_out() -> None:
    assert [*missing(*GOOD)] == []


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (0, "v1.2.4", "tag"),
        (0, "1.2.3", "tag"),
        (2, "## Unreleased\n\n1.2.3\n\n## 1.2.30\n", "CHANGELOG"),
        (3, {"Repository": "https://ikp.example/ikp"}, "Repository"),
        (3, {"Documentation": "https://docs.ikp.example"}, "Documentation"),
    ],
)
def test_what_is_missing_is_said(place: int, value: object, said: str) -> None:
    (one,) = missing(*[value if at == place else each for at, each in enumerate(GOOD)])  # type: ignore[arg-type]
    assert said in one
