"""``tools.patches``: a line for each kernel and detail, which differs where the patch does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.probes.test_growth import cubin
from tools import patches

pytestmark = [pytest.mark.compiled, pytest.mark.any_pins]


def test_each_kernel_has_a_line_of_its_patch_at_each_detail(tmp_path: Path) -> None:
    path = tmp_path / "k.cubin"
    path.write_bytes(cubin(2))
    (tmp_path / "other.cubin").write_bytes(b"no cubin")
    made = {it.stem: patches.lines(it, ["loops", "ops"], 1) for it in patches.files([tmp_path])}
    assert [line.split()[:3] for line in made["k"]] == [
        ["k.cubin", "k", "loops"],
        ["k.cubin", "k", "ops"],
    ]
    assert len({line.split()[3] for line in made["k"]}) == 2
    assert made["k"] == patches.lines(path, ["loops", "ops"], 1)
    assert made["other"][0].startswith("other.cubin ")


def test_a_refusal_has_a_hash_too() -> None:
    assert patches.hashed(cubin(2), "k", "kernel", "").isalnum()
    assert patches.hashed(cubin(2), "another", "kernel", "").startswith("refused ")
