"""A launch, as another process gets it."""

import pickle

import pytest

from ikp.checking.comparison import Buffer
from ikp.checking.messages import (
    KernelForm,
    LaunchConfiguration,
    Request,
    attribute,
    kept_attributes,
    packed,
)

pytestmark = pytest.mark.any_pins

CLUSTER = attribute(4, (2).to_bytes(4, "little"))
TOGETHER = attribute(2, (1).to_bytes(4, "little"))
EVENT = attribute(7, b"\x10\x20")


def test_attributes_that_are_of_the_programs_context_are_left_out() -> None:
    given = EVENT + CLUSTER + attribute(6, b"\1")
    assert kept_attributes(given, cooperative=False) == CLUSTER
    assert kept_attributes(given, cooperative=True) == CLUSTER + TOGETHER
    assert kept_attributes(TOGETHER, cooperative=True) == TOGETHER
    assert kept_attributes(b"", cooperative=False) == b""
    assert len(CLUSTER) == 72 and CLUSTER[8] == 2


def test_parameters_lie_where_the_kernel_has_them() -> None:
    parameters, offsets = packed([(0, b"ab"), (8, b"cdef")])
    assert (parameters, offsets) == (b"ab\0\0\0\0\0\0cdef", (0, 8))
    assert packed([]) == (b"", ())


def test_one_more_argument_stands_behind_or_in_place_of_others() -> None:
    code = KernelForm(b"", *packed([(0, b"ab"), (8, b"cdef")]), {})
    longer = code.with_argument(16, b"wxyz")
    assert longer.parameters == b"ab\0\0\0\0\0\0cdef\0\0\0\0wxyz" and longer.offsets == (0, 8, 16)
    spare = code.with_argument(8, b"wxyz")
    assert spare.parameters == b"ab\0\0\0\0\0\0wxyz" and spare.offsets == (0, 8)
    assert code.parameters == b"ab\0\0\0\0\0\0cdef"


def test_a_request_can_be_sent() -> None:
    code = KernelForm(b"\177ELF", b"", (), {"c": b"1"})
    out, records = Buffer("out", 4096, 8), Buffer("records", 1 << 33, 8)
    request = Request(
        "k", LaunchConfiguration((1, 1, 1), (32, 1, 1), 0), code, code, (out,), (records,)
    )
    assert pickle.loads(pickle.dumps(request)) == request  # noqa: S301 - its own
    assert request.memory == (out, records)
