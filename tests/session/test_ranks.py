"""Which rank a process has, in launches and in the paths of traces."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import ikp
from ikp.errors import ExportError
from ikp.session import current
from ikp.session.current import LAUNCHERS, current_rank, launched_as, with_rank
from tests.host import Host, work


@pytest.fixture(autouse=True)
def _no_rank(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("RANK", "WORLD_SIZE", *(each for names in LAUNCHERS for each in names)):
        monkeypatch.delenv(name, raising=False)
    launched_as.cache_clear()
    yield
    launched_as.cache_clear()


def become(monkeypatch: pytest.MonkeyPatch, rank: str, size: str) -> None:
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", size)


@pytest.mark.parametrize(
    ("rank", "size", "wanted"),
    [
        ("0", "1", 0),
        ("3", "4", 3),
        ("4", "4", None),
        ("-1", "4", None),
        ("gold", "4", None),
        ("0", "", None),
        ("", "4", None),
    ],
)
def test_the_environment_tells_the_rank_if_it_makes_sense(
    monkeypatch: pytest.MonkeyPatch, rank: str, size: str, wanted: int | None
) -> None:
    become(monkeypatch, rank, size)
    assert current_rank() == wanted


@pytest.mark.parametrize(("name", "count"), LAUNCHERS)
def test_other_launchers_number_ranks_too(
    monkeypatch: pytest.MonkeyPatch, name: str, count: str
) -> None:
    monkeypatch.setenv(name, "1")
    monkeypatch.setenv(count, "2")
    assert current_rank() == 1
    become(monkeypatch, "3", "4")
    assert current_rank() == 3, "torchrun's goes first: srun may have started it"


def test_a_lone_process_of_a_slurm_job_is_no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("SLURM_NTASKS", "1")
    assert current_rank() is None


def test_a_rank_alone_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert current_rank() is None
    monkeypatch.setenv("RANK", "1")
    assert current_rank() is None


def test_a_process_group_knows_better_than_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    dist = pytest.importorskip("torch.distributed")
    become(monkeypatch, "3", "4")
    dist.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'rendezvous'}", rank=0, world_size=1
    )
    try:
        assert current_rank() == 0
    finally:
        dist.destroy_process_group()
    assert current_rank() == 3


def test_launches_have_the_rank_of_their_buffer(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ikp.profile() as prof:
        host.run(prof.buffer("before"), work(1))
        become(monkeypatch, "2", "4")
        host.run(prof.buffer("after"), work(1))
        monkeypatch.delenv("RANK")
    assert [launch.rank for launch in prof.trace.launches] == [None, 2]
    assert [one.rank for one in prof.trace.ranges()] == [None] * 2 + [2] * 2


def test_a_path_has_the_rank_in_its_place(
    host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    become(monkeypatch, "2", "4")
    with ikp.profile(tmp_path / "{rank}" / "x.{rank}.{other}.lines", enabled=False):
        pass  # nothing is recorded, so nothing is written, and no folder is missed
    with ikp.profile(tmp_path / "x.{rank}.{other}.lines") as prof:
        host.run(prof.buffer("k"), work(1))
        monkeypatch.delenv("RANK")  # as a process group may be gone before the session ends
    assert [path.name for path in tmp_path.iterdir()] == ["x.2.{other}.lines"]


def test_each_call_of_a_decorated_function_asks_anew(
    host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    @ikp.profile(tmp_path / "x.{rank}.lines")
    def step(prof: ikp.profile) -> None:
        host.run(prof.buffer("k"), work(1))

    for rank in "01":
        become(monkeypatch, rank, "2")
        step()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.0.lines", "x.1.lines"]


def test_a_path_that_wants_a_rank_where_there_is_none_is_told_first(
    host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    session = ikp.profile(tmp_path / "x.{rank}.lines")
    with pytest.raises(ExportError, match=r"x\.\{rank\}\.lines wants the rank of this process"):
        session.__enter__()
    monkeypatch.setenv("IKP", "0")
    with session:
        pass
    assert not list(tmp_path.iterdir())


def test_paths_without_a_place_for_it_stay() -> None:
    assert with_rank(Path("a/x.pftrace")) == "a/x.pftrace"


def test_what_is_in_the_environment_counts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for environ in (os.environ, dict(os.environ)):
        monkeypatch.setattr(os, "environ", environ)
        for value, on in (("0", False), (" Off ", False), ("1", True), ("", True)):
            environ[current.KILL_SWITCH] = value
            assert current.enabled() is on
        del environ[current.KILL_SWITCH]
        assert current.enabled()
        assert current.is_set("PATH")
