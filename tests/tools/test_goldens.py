"""``tools.goldens``: what changed is found and shown, and a kernel is added to the corpus."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from tests.goldens import corpus, goldens, views
from tests.sass import module
from tools import goldens as tool

pytestmark = pytest.mark.any_pins


def test_a_view_that_says_something_else_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(goldens.CODE, "liveness", views.flow)
    goldens.compare("made.0", {"flow": views.flow})
    with pytest.raises(AssertionError, match=r"^liveness of made\.0 say something else"):
        goldens.compare("made.0", goldens.CODE)


def test_of_a_kernel_whose_text_is_kept_it_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(goldens.CODE, "flow", views.liveness)
    with pytest.raises(AssertionError, match=r"tools\.goldens"):
        goldens.compare("made.4", {"flow": views.flow})


def test_lines_that_differ_are_printed(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for folder, text in ((old, "1\n2\n3\n"), (new, "1\n2\n4\n")):
        folder.mkdir()
        (folder / "k.flow.txt").write_text(text)
        (folder / "same.txt").write_text("0\n")
    (new / "k.new.txt").write_text("".join(f"{each}\n" for each in range(99)))
    found = [*tool._differences(old, new)]
    assert found[:6] == [
        *("--- k.flow.txt\n", "+++ k.flow.txt\n", "@@ -2,2 +2,2 @@\n"), " 2\n", "-3\n", "+4\n",
    ]  # fmt: skip
    assert found[-1] == "... and 62 lines more\n"


@pytest.mark.compiled
def test_a_kernel_is_added_with_its_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, archive = tmp_path / "module.cubin", tmp_path / "kernels.tar.xz"
    path.write_bytes(module.cubin())
    corpus.corpus()
    monkeypatch.setattr(corpus, "ARCHIVE", archive)
    tool.add(path, "calls")
    with tarfile.open(archive) as made:
        assert len(made.getnames()) == len(corpus._files()) + 3
        text = made.extractfile("calls1.90.text")
        assert text is not None and b"CALL.REL" in text.read()
