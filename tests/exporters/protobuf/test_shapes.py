from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ikp.exporters.protobuf import shapes
from ikp.exporters.protobuf.shapes import Message, join, join_groups
from ikp.exporters.protobuf.varints import Column, encoded_varint, texts, varints

TAGS = st.sampled_from([b"\x0a", b"\x12", b"\x92\x03"])


@st.composite
def columns(draw: st.DrawFn, rows: int) -> Column:
    kind = draw(st.sampled_from(["small", "any", "text", "long text"]))
    if kind in {"small", "any"}:
        numbers = st.integers(0, 300 if kind == "small" else (1 << 64) - 1)
        column = varints(np.array(_many(draw, numbers, rows), np.uint64))
    else:
        column = texts(_many(draw, st.binary(max_size=3 if kind == "text" else 200), rows))
    return column.where(np.array(_many(draw, st.booleans(), rows), bool))


def _many(draw: st.DrawFn, one: st.SearchStrategy[Any], rows: int) -> list[Any]:
    return draw(st.lists(one, min_size=rows, max_size=rows))


def trees(rows: int) -> st.SearchStrategy[Message]:
    leaf = st.one_of(st.binary(max_size=9), columns(rows))
    tree = st.recursive(
        leaf,
        lambda part: st.builds(
            lambda tag, parts: Message(tag, tuple(parts)), TAGS, st.lists(part, max_size=4)
        ),
        max_leaves=6,
    )
    # One column at least: it says how many messages there are.
    return st.builds(
        lambda tag, first, parts: Message(tag, (first, *parts)),
        TAGS,
        columns(rows),
        st.lists(tree, max_size=4),
    )


SHAPES = st.integers(1, 12).flatmap(lambda rows: st.tuples(st.just(rows), trees(rows)))


def plain(shape: Message, row: int) -> tuple[bytes, bool]:
    """Encode one message the plain way; also tell whether any of its columns has something."""
    body, columns, something = b"", False, False
    for part in shape.parts:
        if isinstance(part, Message):
            inner, full = plain(part, row)
            body += inner
            something |= full
            columns |= _has_columns(part)
        elif isinstance(part, Column):
            body += part.words[row].tobytes()[: int(part.sizes[row])]
            something |= bool(part.sizes[row])
            columns = True
        else:
            body += part
    if columns and not something:
        return b"", False
    return shape.tag + encoded_varint(len(body)) + body, something


def _has_columns(shape: Message) -> bool:
    return any(
        isinstance(part, Column) or (isinstance(part, Message) and _has_columns(part))
        for part in shape.parts
    )


@given(SHAPES, st.randoms(use_true_random=False))
def test_messages_stand_where_they_belong_byte_for_byte(
    sized: tuple[int, Message], random: Any
) -> None:
    rows, shape = sized
    places = list(range(rows))
    random.shuffle(places)
    wanted = dict(zip(places, (plain(shape, row)[0] for row in range(rows)), strict=True))
    found = join((shape, np.array(places)))
    assert found.tobytes() == b"".join(wanted[place] for place in range(rows))


@given(SHAPES, SHAPES, st.randoms(use_true_random=False))
def test_shapes_can_be_mixed(
    one: tuple[int, Message], two: tuple[int, Message], random: Any
) -> None:
    places = list(range(one[0] + two[0]))
    random.shuffle(places)
    streams = [(one[1], places[: one[0]]), (two[1], places[one[0] :])]
    wanted = {
        place: plain(shape, row)[0] for shape, rows in streams for row, place in enumerate(rows)
    }
    found = join(*((shape, np.array(rows)) for shape, rows in streams))
    assert found.tobytes() == b"".join(wanted[place] for place in sorted(places))


@given(SHAPES, st.data())
def test_groups_become_one_text_each(sized: tuple[int, Message], data: st.DataObject) -> None:
    rows, shape = sized
    later = data.draw(st.sets(st.integers(1, rows - 1))) if rows > 1 else set()
    first = np.array([0, *sorted(later)])
    found = join_groups(shape, first)
    wanted = [plain(shape, row)[0] for row in range(rows)]
    for group, (low, high) in enumerate(zip(first, [*first[1:], rows], strict=True)):
        row = found.words[group].tobytes()
        assert row[: int(found.sizes[group])] == b"".join(wanted[low:high])
        assert not any(row[int(found.sizes[group]) :])


def test_many_combinations_of_sizes_are_told_apart() -> None:
    # More than fit into 16 bits: each of nine columns is 1 to 10 bytes long.
    numbers = np.random.default_rng(0).integers(0, 64, (9, 400))
    columns = [varints(np.uint64(1) << row.astype(np.uint64)) for row in numbers]
    shape = Message(b"\x0a", tuple(columns))
    found = join((shape, np.arange(400)))
    assert found.tobytes() == b"".join(plain(shape, row)[0] for row in range(400))


def test_no_messages() -> None:
    shape = Message(b"\x0a", (varints(np.empty(0, np.uint64)),))
    assert not len(join((shape, np.empty(0, np.int64))))
    assert not list(shapes.layouts(shape))
