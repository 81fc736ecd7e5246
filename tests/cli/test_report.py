import numpy as np
import pytest
from click.testing import CliRunner

from ikp.cli.main import cli
from tests.analysis.diff.noise import alternating

pytestmark = pytest.mark.any_pins


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    names = [folder / "old.pftrace", folder / "new.pftrace"]
    for name, one in zip(names, alternating(np.random.default_rng(0), 3), strict=True):
        one.save(name)
    return names


def invoke(*words):
    return CliRunner().invoke(cli, ["report", *map(str, words)])


def test_it_writes_a_page_beside_the_trace(files):
    result = invoke(files[0])
    assert result.exit_code == 0, result.output
    page = files[0].with_suffix(".html")
    assert "Difference" not in page.read_text(encoding="utf-8") and str(page) in result.stderr
    assert "exists" in invoke(files[0]).stderr
    assert invoke(files[0], "--force").exit_code == 0


def test_two_files_are_compared(files, tmp_path):
    result = invoke(*files, "-o", tmp_path / "x.html")
    assert result.exit_code == 0, result.output
    assert "Difference" in (tmp_path / "x.html").read_text(encoding="utf-8")


def test_pictures_and_refusals(files, tmp_path):
    assert invoke(files[0], "-o", tmp_path / "x.png").exit_code == 0
    assert invoke(files[0], "-o", tmp_path / "x.pftrace").exit_code == 1
    assert "no such file" in invoke(tmp_path / "none.pftrace").stderr
