"""Where a trace comes from is told without a child of the program's."""

import platform
import subprocess

import pytest

from ikp.session import provenance

pytestmark = pytest.mark.any_pins


def test_the_host_is_named_as_python_names_it_and_no_program_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    named = platform.platform()

    def started(*_: object, **__: object) -> None:
        raise AssertionError("a child of the program's")

    for each in ("_uname_cache", "_processor_cache"):
        monkeypatch.setattr(platform, each, None, raising=False)
    monkeypatch.setattr(platform, "_platform_cache", {})
    monkeypatch.setattr(subprocess, "Popen", started)
    assert provenance._host() == named
