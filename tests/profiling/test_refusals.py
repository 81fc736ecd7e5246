"""What a session can't do: told at once, in words, and the session goes on."""

from __future__ import annotations

from typing import Any

import pytest

import ikp
from ikp.errors import BufferError, UsageError
from tests.host import Host, work

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_buffer_outside_the_session_is_refused(host: Host, when: str) -> None:
    prof = ikp.profile()
    if when == "after":
        with prof:
            pass
    with pytest.raises(UsageError, match=r"outside the session.*with ikp.profile"):
        prof.buffer("k")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"clock": "sundial"},
            "unknown: use 'cycles', 'globaltimer', 'cycles64' or 'globaltimer64'",
        ),
        ({"clock": "host"}, "clock='host' is unknown"),
        ({"clock": None}, "clock=None is unknown"),
        ({"overflow": "drop"}, "overflow='drop' is unknown: use 'stop', 'wrap' or 'stream'"),
        ({"path": 3}, "takes the path of the trace, not 3"),
    ],
)
def test_unknown_options_are_refused_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ikp.profile(**options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"label": ""}, "a buffer's label is a non-empty string"),
        ({"label": None}, "a buffer's label is a non-empty string, not None"),
        ({"size": 0}, "0 bytes can't be used: the size is 224 to 2147483632"),
        ({"size": 223}, "223 bytes can't be used"),
        ({"size": 2**31}, "2147483648 bytes can't be used"),
        ({"size": "1 MiB"}, "'1 MiB' bytes can't be used"),
        ({"size": 1e6}, "1000000.0 bytes can't be used"),
        ({"regions": {-1: "x"}}, "region id -1 is out of range"),
        ({"regions": {2**26: "x"}}, "out of range"),
        ({"regions": {"x": 1}}, "a region id is an integer, not 'x'"),
        ({"regions": {1: ""}}, "a region's name is a non-empty string"),
        ({"regions": "load"}, "regions maps numbers to names, like {0: 'load'}, or lists"),
        ({"regions": ["load", ""]}, "a region's name is a non-empty string"),
        ({"device": "abacus"}, "device='abacus' is no torch device"),
        ({"device": 1.5}, "device=1.5 is no torch device"),
    ],
)
def test_arguments_of_a_buffer_that_can_not_be_are_refused(
    host: Host, arguments: dict[str, Any], message: str
) -> None:
    with ikp.profile() as prof:
        with pytest.raises(UsageError, match=message):
            prof.buffer(**{"label": "k", **arguments})
        host.run(prof.buffer("k"), work())
    assert len(prof.trace.launches) == 1


def test_without_a_gpu_a_buffer_on_one_is_refused_with_the_way_out(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    told = r"no CUDA device.*TRITON_INTERPRET=1"
    for device in ("cuda", torch.device("cuda", 1)):
        with ikp.profile() as prof, pytest.raises(BufferError, match=told):
            prof.buffer("k", device=device)
    with ikp.profile(device="cuda") as prof, pytest.raises(BufferError, match="no CUDA device"):
        prof.buffer("k")


def test_a_device_that_can_not_record_is_refused(host: Host) -> None:
    with ikp.profile() as prof, pytest.raises(BufferError, match="no recording on device meta"):
        prof.buffer("k", device="meta")


def test_a_buffer_while_a_graph_is_captured_is_refused(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with ikp.profile(device="cuda") as prof, pytest.raises(BufferError, match=r"graph.*captured"):
        prof.buffer("k")
