from __future__ import annotations

import numpy as np
import pytest
from google.protobuf.internal.encoder import _VarintBytes
from hypothesis import given
from hypothesis import strategies as st

from ikp.exporters.protobuf.varints import (
    MessagePart,
    encoded_varint,
    texts,
    varint_size,
    varints,
)

EDGES = [0, 1, 127, 128, *(1 << bits for bits in range(1, 64)), (1 << 64) - 1]
NUMBERS = st.one_of(
    st.integers(0, (1 << 64) - 1),
    st.sampled_from(EDGES),
    st.integers(0, 63).flatmap(lambda bits: st.integers(0, 1 << bits)),
)


def rows(column: MessagePart) -> list[bytes]:
    return [
        words.tobytes()[:size]
        for words, size in zip(column.words, column.sizes.tolist(), strict=True)
    ]


@given(st.lists(NUMBERS, max_size=40))
def test_numbers_are_written_as_protobuf_does(numbers: list[int]) -> None:
    column = varints(np.array(numbers, np.uint64))
    assert rows(column) == [_VarintBytes(number) for number in numbers]
    for words, size in zip(column.words, column.sizes.tolist(), strict=True):
        assert not any(words.tobytes()[size:]), "padding must be 0: numbers are put together by or"


@pytest.mark.parametrize("number", EDGES)
def test_each_edge_by_itself_and_among_others(number: int) -> None:
    wanted = _VarintBytes(number)
    assert rows(varints(np.array([number], np.uint64))) == [wanted]
    assert rows(varints(np.array([0, number, EDGES[-1]], np.uint64)))[1] == wanted
    assert encoded_varint(number) == wanted
    assert varint_size(number) == len(wanted)


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=9))
def test_negative_numbers_take_ten_bytes(numbers: list[int]) -> None:
    wanted = [_VarintBytes(number % (1 << 64)) for number in numbers]
    assert rows(varints(np.array(numbers, np.int64))) == wanted


@given(st.lists(NUMBERS, min_size=1, max_size=9), st.data())
def test_rows_can_be_taken_and_emptied(numbers: list[int], data: st.DataObject) -> None:
    column = varints(np.array(numbers, np.uint64))
    chosen = data.draw(st.lists(st.integers(0, len(numbers) - 1)))
    assert rows(column.take(np.array(chosen, np.intp))) == [rows(column)[i] for i in chosen]
    mask = np.arange(len(numbers)) % 2 == 0
    wanted = [row if there else b"" for row, there in zip(rows(column), mask, strict=True)]
    assert rows(column.where(mask)) == wanted


@given(st.lists(st.binary(max_size=40)))
def test_texts_are_kept_as_they_are(values: list[bytes]) -> None:
    assert rows(texts(values)) == values
