from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ikp.exporters.perfetto._tracks import decimals


@given(st.lists(st.integers(0, 10**7) | st.integers(0, 1 << 40)))
def test_decimals_are_numbers_as_they_are_read(values: list[int]) -> None:
    column = decimals(np.array(values, np.int64))
    rows = zip(column.words, column.sizes.tolist(), strict=True)
    assert [words.tobytes()[:size] for words, size in rows] == [b"%d" % value for value in values]
