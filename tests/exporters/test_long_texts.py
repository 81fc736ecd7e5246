"""One long text takes its own length in memory, not once more in each other row."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import ikp
from ikp.core.args import ArgColumn
from ikp.core.trace import Region
from ikp.edit import add_args, concat
from ikp.trace import Trace
from tests.analysis.example import launch, trace
from tests.growth import peak_bytes

pytestmark = pytest.mark.any_pins

LONG = "x" * 200_000
ROWS = 200
SUFFIXES = (".pftrace", ".json", ".csv", ".parquet", ".hatchet", ".folded", ".speedscope.json")


def plain() -> Trace:
    """Return 200 launches of a label, a range, and a region each."""
    return trace(
        [(at, at, 1, 2) for at in range(ROWS)],
        launches=(launch(),) * ROWS,
        slots=[(at, 0) for at in range(ROWS)],
        regions=tuple(f"r{at}" for at in range(ROWS)),
    )


def with_long(what: str) -> Trace:
    """Return that with one long text."""
    made = plain()
    first, *others = made.launches
    if what == "argument":
        return add_args(made, word=[LONG, None, *["ab"] * (ROWS - 2)])
    if what == "region":
        return replace(made, regions=(Region(0, LONG), *made.regions[1:]))
    if what == "label":
        return replace(made, launches=(replace(first, label=LONG), *others))
    if what == "note":
        return replace(made, launches=(replace(first, notes=(LONG,)), *others))
    return replace(made, roles=("", LONG))


@pytest.mark.parametrize(
    ("what", "suffix"),
    [
        *(("argument", suffix) for suffix in SUFFIXES),
        *product(("region", "label", "note", "role"), (".pftrace", ".json", ".csv")),
    ],
)
def test_a_long_text_is_written_and_read_in_memory_of_its_size(
    what: str, suffix: str, tmp_path: Path
) -> None:
    path = tmp_path / f"x{suffix}"
    plain().save(path)  # what is imported and made once
    usual = peak_bytes(partial(plain().save, path, force=True))
    made = with_long(what)
    assert peak_bytes(partial(made.save, path, force=True)) < usual + 80 * len(LONG)
    if suffix == ".pftrace":
        assert peak_bytes(partial(ikp.load, path)) < usual + 20 * len(LONG)


def test_texts_of_arguments_are_kept_by_reference() -> None:
    one, other = with_long("argument"), plain()
    assert one.args["word"].values.dtype == object
    assert one.args["word"].value(0) == LONG and one.args["word"].value(1) is None
    assert peak_bytes(lambda: concat([one, other, one])) < 20 * len(LONG)
    joined = concat([one, other]).args["word"]
    assert joined.tolist() == [LONG, None, *["ab"] * (ROWS - 2), *[None] * ROWS]
    assert set(joined.values[ROWS:].tolist()) == {""}


def test_texts_of_numpy_become_objects() -> None:
    column = ArgColumn(np.array(["a", "bc"]), np.array([True, False]))
    assert column.values.dtype == object and column.tolist() == ["a", None]
    assert column.take(np.array([1, 0])).tolist() == [None, "a"]
