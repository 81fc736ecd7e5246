"""A library before the CUDA driver: what a program launches passes it, and is recorded."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ikp.backends.driver._names import readable
from tests.machine.compiled import code

pytestmark = pytest.mark.any_pins

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict]:
    """What the program printed that launched a kernel through a driver which writes all down."""
    folder = tmp_path_factory.mktemp("driver")
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "Triton needs a C compiler, and so does this"
    fake, image = folder / "libcuda.so.1", folder / "kernel.cubin"
    source = Path(__file__).with_name("fake.c")
    flags = ("-shared", "-fPIC", "-D_GNU_SOURCE", "-Wl,-soname,libcuda.so.1,-Bsymbolic")
    subprocess.run([compiler, *flags, "-o", fake, source], check=True)
    image.write_bytes(code("matmul").compiled.asm["cubin"])
    command = [sys.executable, "-m", "tests.backends.driver.program", str(image), "matmul"]
    env = {**os.environ, "LD_LIBRARY_PATH": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
    ran = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


PLAIN = "launch 2 12x256 on 0"
TOLD = ((1 << 33) | (10912 | 96 << 32) << 64).to_bytes(16, "little").hex()
"""Where to record, and how much."""


def test_a_launch_that_is_chosen_becomes_the_patched_kernels(said: dict) -> None:
    assert said["loaded"] == ["load 1", "function 2 of 1 matmul", "set 2 8=98304"]
    assert said["first"] == [
        *("load 3 patched", "function 4 of 3 matmul", "global ikp_buffer", "set 4 8=98304"),
        *("copy 10912 96 to stream 0", "launch 4 12x256 on 0"),
    ]
    assert said["again"] == ["copy 10912 96 to stream 0", "launch 4 12x256 on 0"]
    assert said["address"]  # whoever asks the driver for its functions gets the same
    assert said["recorded"] == {"matmul": 12}
    wanted = {"label": "matmul", "backend": "driver", "grid": [12, 1, 1], "num_warps": 8}
    assert said["asked"] == [wanted] * 12


def test_each_stream_has_a_module_of_its_own(said: dict) -> None:
    assert said["other stream"] == [
        *("load 5 patched", "function 6 of 5 matmul", "global ikp_buffer", "set 6 8=98304"),
        *("copy 10912 96 to stream 5", "launch 6 12x256 on 5"),
    ]


def test_a_graph_gets_the_write_and_the_launch_alone(said: dict) -> None:
    assert said["captured"] == [
        *("capture mode 2", "capture mode 0") * 2,
        *("write 10912 96 in stream 0", "launch 4 12x256 on 0"),
    ]


def test_what_is_not_chosen_or_cannot_be_runs_plain_and_is_told(said: dict) -> None:
    for part in ("not chosen", "other context", "after"):
        assert said[part] == [PLAIN], part
    assert said["PTX"] == ["launch 8 12x256 on 0"]
    assert said["plain"] == [
        (
            "matmul: could not be marked: it runs in a CUDA context of its own, where torch's "
            "memory can't be used."
        ),
        "made: could not be marked: it was loaded as PTX, which the driver compiles. Load a cubin.",
        (
            "unknown: its machine code was not seen: the program got it from the driver in another "
            "way"
        ),
        (
            "matmul: could not be marked: all its blocks must run at once, and records take more "
            "registers."
        ),
    ]


def test_what_ikp_has_patched_is_launched_as_it_is(said: dict) -> None:
    assert len(said["patched"]) == len(said["unseen"]) == 1
    assert said["patched"][0].endswith(" 12x256 on 0")


def test_a_tile_kernels_warps_are_those_that_its_file_says(said: dict) -> None:
    assert said["tile"][-1].endswith(" 12x1 on 0")
    assert said["asked"][-1]["num_warps"] == 8


GIVEN = "".join(f"{9 + n:02x}" * size for n, size in enumerate((8, 8, 8, 4, 4, 8, 8)))
"""What the program passes, in the order of its parameters."""
ARGUED = [f"launch 17 12x256 on 0 given {GIVEN}{TOLD}"]


def test_a_kernel_whose_arguments_are_seen_is_told_by_one_more(said: dict) -> None:
    """And nothing is copied: neither is anything of the module's asked for."""
    assert said["buffer"] == ["load 16", "function 17 of 16 matmul", *ARGUED]
    for part in ("array", "long buffer", "extended"):
        assert said[part] == ARGUED, part
        assert said[f"{part}: code"] == 0


def test_a_graph_s_launches_have_the_arguments_that_they_had(said: dict) -> None:
    assert "write 10912 96 in stream 0" in said["array captured"]
    assert said["array captured"][-1].endswith(f" given {GIVEN}")


def test_what_the_driver_refuses_it_refuses_as_before(said: dict) -> None:
    """A launch with both forms, and one with a form that nobody knows."""
    for part in ("both", "strange"):
        assert said[f"{part}: code"] == 1
        assert not any("launch" in each for each in said[part])


def test_blocks_that_must_run_at_once_are_told_so_too(said: dict) -> None:
    """This kernel has more registers with records: what is launched is the plain one."""
    assert said["together"] == [f"launch 15 12x256 on 0 given {GIVEN}"]


def test_names_are_those_of_the_source() -> None:
    assert readable("_ZN2at6native12_GLOBAL__N_14walkILi4EfEEvPT0_i") == "at::native::walk"
    assert readable("matmul") == "matmul"
