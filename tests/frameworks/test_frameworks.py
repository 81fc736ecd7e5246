"""The classes of docs/frameworks.md in the frameworks themselves, and the magic in IPython."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import ikp
from tests.kernels.relay import relay
from tests.repo.tree import ROOT

torch = pytest.importorskip("torch")

pytestmark = [
    *(pytest.mark.interp, pytest.mark.any_pins),
    pytest.mark.filterwarnings("default"),  # what the frameworks warn of is theirs
]


def of_page(name: str) -> Any:
    """Return a class that the page defines."""
    text = (ROOT / "docs/frameworks.md").read_text(encoding="utf-8")
    (block,) = (
        each
        for each in re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        if f"class {name}" in each
    )
    scope: dict[str, Any] = {}
    exec(block, scope)  # noqa: S102 - what a reader copies
    return scope[name]


@pytest.fixture
def prof(tmp_path: Path) -> ikp.profile:
    steps = ikp.schedule(wait=1, warmup=1, active=2, repeat=1)
    return ikp.profile(tmp_path / "train.{step}.pftrace", steps=steps)


def model_of(prof: ikp.profile) -> Any:
    """Return a model whose forward pass launches a kernel that records."""

    class Model(torch.nn.Module):  # type: ignore[misc] # torch's types are not followed
        def __init__(self) -> None:
            super().__init__()
            self.line = torch.nn.Linear(2, 1)

        def forward(self, x: Any) -> Any:
            tiles, out = (torch.zeros(3, dtype=torch.int32) for _ in range(2))
            relay[(2,)](tiles, out, 3, prof.buffer("relay"))
            return {"loss": self.line(x).square().mean()}

    return Model()


ROWS = [{"x": torch.ones(2)} for _ in range(6)]


def recorded(folder: Path) -> list[tuple[str, int]]:
    return [(path.name, len(ikp.load(path).launches)) for path in sorted(folder.glob("*.pftrace"))]


def test_a_trainers_steps_are_recorded(tmp_path: Path, prof: ikp.profile) -> None:
    transformers = pytest.importorskip("transformers")
    options = transformers.TrainingArguments(
        output_dir=str(tmp_path / "out"),
        per_device_train_batch_size=1,
        num_train_epochs=1,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    trainer = transformers.Trainer(model_of(prof), options, train_dataset=ROWS)
    trainer.add_callback(of_page("IkpCallback")(prof))
    trainer.train()
    assert recorded(tmp_path) == [("train.2.pftrace", 2)]


def test_lightnings_batches_are_recorded(tmp_path: Path, prof: ikp.profile) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    inner = model_of(prof)

    class Module(lightning.LightningModule):  # type: ignore[misc] # its types are not followed
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def training_step(self, batch: Any) -> Any:
            return self.inner(batch["x"])["loss"]

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
        profiler=of_page("IkpProfiler")(prof),
    )
    trainer.fit(Module(), torch.utils.data.DataLoader(ROWS, batch_size=1))
    assert recorded(tmp_path) == [("train.2.pftrace", 2)]


CELL = """
from tests.kernels.relay import relay
import torch
tiles, out = (torch.zeros(3, dtype=torch.int32) for _ in range(2))
relay[(2,)](tiles, out, 3, prof.buffer("relay"))
"""


def test_a_cell_is_recorded(tmp_path: Path) -> None:
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell()
    shell.run_line_magic("load_ext", "ikp.notebook")
    path = tmp_path / "a cell.pftrace"
    for _ in range(2):
        trace = shell.run_cell_magic("ikp", f'"{path}"', CELL)
        assert [each.label for each in trace.launches] == ["relay"]
        assert ikp.load(path).launches == trace.launches
    assert "relay" in trace._repr_html_()
    assert shell.run_cell_magic("ikp", "", CELL).launches


def test_a_cell_that_fails_shows_its_own_error(capsys: pytest.CaptureFixture[str]) -> None:
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell()
    shell.run_line_magic("load_ext", "ikp.notebook")
    assert shell.run_cell_magic("ikp", "", CELL + "1 / 0\n") is None
    assert "ZeroDivisionError" in capsys.readouterr().out
