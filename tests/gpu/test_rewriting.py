"""The basic-block counter of docs/rewriting-a-cubin.md, on a GPU."""

import pytest

torch = pytest.importorskip("torch")

from examples import count_blocks  # noqa: E402

pytestmark = pytest.mark.gpu


def test_blocks_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("the example is for sm_90")
    count_blocks.main()
    counts = [int(line.split()[0]) for line in capsys.readouterr().out.splitlines()]
    threads = 2 * 64
    assert counts == [threads, 7 * threads, threads]
