"""``ikp verify`` as a user types it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import ikp
from ikp.cli.main import cli
from ikp.core.trace import of_class
from ikp.probes.kept_code import KEPT, PLAIN, keep
from ikp.probes.patch import patch
from tests.documents import check_document

pytest.importorskip("triton")
pytestmark = pytest.mark.compiled


def recorded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Return a trace of a patched kernel, and the patched cubin that was kept."""
    from tests.edit.warps import block
    from tests.sass import module

    monkeypatch.setenv("TRITON_CACHE_DIR", str(folder))
    plain = module.cubin()
    made = patch(plain, "loop", detail="ops", block=(128, 1, 1), argue=True)
    path = Path(keep(made, "loop", "// no PTX", plain=plain))
    trace = replace(of_class(ikp.Trace, block([])), provenance={f"{KEPT}my loop": str(path)})
    trace.save(folder / "x.pftrace")
    return folder / "x.pftrace", path


def invoke(*words: object) -> Result:
    return CliRunner().invoke(cli, ["verify", *map(str, words)])


def test_a_kernel_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace, _ = recorded(tmp_path, monkeypatch)
    shown = invoke(trace)
    assert (shown.exit_code, shown.stdout) == (0, "my loop: verified\n")


def test_a_kernel_that_was_changed_since_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace, path = recorded(tmp_path, monkeypatch)
    data = bytearray(path.read_bytes())
    at = len(data) // 2
    data[at] ^= 1
    path.write_bytes(data)
    shown = invoke(trace)
    assert shown.exit_code == 1 and shown.stdout.startswith("my loop: failed: ")
    found = json.loads(invoke(trace, "--format", "json").stdout)
    check_document(found, "verify")
    (row,) = found["kernels"]
    assert row["state"] == "failed" and row["faults"] and row["path"] == str(path)


@pytest.mark.parametrize("suffix", [PLAIN, ".ptx", ".cubin"])
def test_what_was_not_kept_can_not_be_verified(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace, path = recorded(tmp_path, monkeypatch)
    path.with_suffix(suffix).unlink()
    shown = invoke(trace)
    assert shown.exit_code == 1 and "my loop: unknown: " in shown.stdout


def test_a_trace_without_patched_kernels_is_refused(tmp_path: Path) -> None:
    from tests.edit.warps import block

    of_class(ikp.Trace, block([])).save(tmp_path / "x.pftrace")
    shown = invoke(tmp_path / "x.pftrace")
    assert shown.exit_code == 1 and "names no patched kernel" in shown.output
