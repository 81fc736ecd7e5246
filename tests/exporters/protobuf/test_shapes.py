from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ikp.exporters.protobuf import joining, shapes
from ikp.exporters.protobuf.joining import join
from ikp.exporters.protobuf.shapes import Message, SubmessageGroup, Times
from ikp.exporters.protobuf.varints import MessagePart, Numbers, encoded_varint, texts, varints

TAGS = st.sampled_from([b"\x0a", b"\x12", b"\x92\x03"])


@pytest.fixture(params=["compiled", "numpy"], autouse=True, scope="module")
def joined_by(request: pytest.FixtureRequest) -> Iterator[None]:
    """Join messages by either way; tests need a C compiler, as Triton does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joining, "_compiled", [])
        if request.param == "compiled":
            joining.prepare()
            assert joining._compiled[0] is not None
        yield


@st.composite
def columns(draw: st.DrawFn, rows: int) -> MessagePart | Numbers:
    kind = draw(st.sampled_from(["small", "any", "all", "text", "long text"]))
    if kind in {"small", "any", "all"}:
        numbers = st.integers(0, 300 if kind == "small" else (1 << 64) - 1)
        values = np.array(_many(draw, numbers, rows), np.uint64)
        return Numbers(values, None if kind == "all" else _mask(draw, rows))
    texts_of_all = texts(_many(draw, st.binary(max_size=3 if kind == "text" else 200), rows))
    return texts_of_all.where(_mask(draw, rows))


@st.composite
def groups(draw: st.DrawFn, rows: int) -> SubmessageGroup:
    sizes = _many(draw, st.integers(1, 3), rows)
    first = np.cumsum([0, *sizes])
    return SubmessageGroup(draw(trees(int(first[-1]), st.nothing())), first[:-1], int(first[-1]))


def _mask(draw: st.DrawFn, rows: int) -> NDArray[np.bool_]:
    return np.array(_many(draw, st.booleans(), rows), bool)


def _many(draw: st.DrawFn, one: st.SearchStrategy[Any], rows: int) -> list[Any]:
    return draw(st.lists(one, min_size=rows, max_size=rows))


def trees(rows: int, more: st.SearchStrategy[Any] | None = None) -> st.SearchStrategy[Message]:
    leaf = st.one_of(st.binary(max_size=20), columns(rows), groups(rows) if more is None else more)
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
        elif isinstance(part, bytes):
            body += part
        else:
            inner = _content(part, row)
            body += inner
            something |= bool(inner)
            columns = True
    if columns and not something:
        return b"", False
    return shape.tag + encoded_varint(len(body)) + body, something


def _content(part: Any, row: int) -> bytes:
    if isinstance(part, SubmessageGroup):
        bounds = [*part.first.tolist(), part.count]
        return b"".join(plain(part.shape, one)[0] for one in range(*bounds[row : row + 2]))
    if isinstance(part, Numbers):
        given = part.given is None or part.given[row]
        return encoded_varint(int(part.values[row])) if given else b""
    return bytes(part.words[row].tobytes()[: int(part.sizes[row])])


def _has_columns(shape: Message) -> bool:
    return any(
        _has_columns(part) if isinstance(part, Message) else not isinstance(part, bytes)
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
def test_rows_can_be_taken(sized: tuple[int, Message], data: st.DataObject) -> None:
    rows, shape = sized
    chosen = data.draw(st.lists(st.integers(0, rows - 1), min_size=1, max_size=5))
    taken = shape.take(np.array(chosen, np.intp))
    found = join((taken, np.arange(len(chosen))))
    assert found.tobytes() == b"".join(plain(shape, row)[0] for row in chosen)


TIMES = st.lists(st.integers(0, (1 << 63) - 1), min_size=1, max_size=9)


@given(TIMES, TIMES, st.integers(0, (1 << 63) - 1), st.randoms(use_true_random=False))
def test_each_message_says_how_much_later_it_is_than_the_one_in_front(
    one: list[int], two: list[int], before: int, random: Any
) -> None:
    places = list(range(len(one) + len(two)))
    random.shuffle(places)
    streams = (one, places[: len(one)]), (two, places[len(one) :])
    times = [before] + [0] * len(places)
    for values, where in streams:
        for time, place in zip(values, where, strict=True):
            times[1 + place] = time
    wanted = [b"\x08" + encoded_varint((now - last) % (1 << 64)) for last, now in pairwise(times)]
    found = join(
        *(
            (Message(b"\x0a", (b"\x08", Times(np.array(values)))), np.array(where))
            for values, where in streams
        ),
        before=before,
    )
    assert found.tobytes() == b"".join(b"\x0a%c" % len(each) + each for each in wanted)


def test_of_many_messages_both_ways_write_the_same() -> None:
    random = np.random.default_rng(0)
    rows = 1 << 16
    numbers = [random.integers(0, 1 << bits, rows, np.uint64) for bits in (3, 14, 33, 57, 63)]
    inner = Message(b"\x12", tuple(Numbers(each, each % 3 > 0) for each in numbers))
    shape = Message(b"\x0a", (b"\x08", Numbers(numbers[1]), inner, b"a longer text of its own"))
    places = random.permutation(rows)
    assert join((shape, places)).tobytes() == shapes.join([(shape, places)], 0).tobytes()


@pytest.mark.parametrize(("text", "count"), [(b"", 8), (b"", 9), (bytes(60), 3), (bytes(200), 3)])
def test_messages_long_and_short_are_copies_of_the_right_ones(text: bytes, count: int) -> None:
    random = np.random.default_rng(count)
    rows = 2000
    values = [random.integers(0, 1 << random.choice([3, 20, 60]), rows) for _ in range(count)]
    given = [random.random(rows) < share for share in np.linspace(0.2, 1, count)]
    first, *rest = map(Numbers.of, values, given)
    shape = Message(b"\x0a", (Message(b"\x12", (text, first, b"behind")), *rest, text))
    found = join((shape, np.arange(rows)))
    assert found.tobytes() == b"".join(plain(shape, row)[0] for row in range(rows))


def test_many_combinations_of_sizes_are_told_apart() -> None:
    # More than fit into 16 bits: each of nine columns is 1 to 10 bytes long.
    numbers = np.random.default_rng(0).integers(0, 64, (9, 400))
    columns = [Numbers(np.uint64(1) << row.astype(np.uint64)) for row in numbers]
    shape = Message(b"\x0a", tuple(columns))
    found = join((shape, np.arange(400)))
    assert found.tobytes() == b"".join(plain(shape, row)[0] for row in range(400))


def test_no_messages() -> None:
    shape = Message(b"\x0a", (varints(np.empty(0, np.uint64)),))
    assert not len(join((shape, np.empty(0, np.int64))))
    assert not list(shapes.layouts(shape))


def test_where_nothing_can_be_compiled_numpy_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "_compiled", [])
    monkeypatch.setenv("CC", "/no/compiler")
    monkeypatch.setenv("XDG_CACHE_HOME", "/no/folder")
    joining.prepare()
    assert joining._compiled == [None]
    shape = Message(b"\x0a", (Numbers(np.array([5], np.uint64)),))
    assert join((shape, np.arange(1))).tobytes() == b"\x0a\x01\x05"
