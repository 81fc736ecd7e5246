"""A library before the CUDA driver: what a program launches passes it, and is recorded."""

import json

import pytest

from ikp.backends.driver._names import bare, readable
from tests.backends.driver.driving import drive
from tests.sass.compiled import code

pytestmark = pytest.mark.any_pins


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """What the program printed that launched a kernel through a driver which writes all down."""
    folder = tmp_path_factory.mktemp("driver")
    return json.loads(drive(folder, "program", code("matmul").compiled.asm["cubin"], "matmul"))


PLAIN = "launch 2 12x256 on 0"
TOLD = ((1 << 33) | (680 | 96 << 32) << 64).to_bytes(16, "little").hex()
"""Where to record, and how much."""


def test_a_launch_that_is_chosen_becomes_the_patched_kernels(said: dict) -> None:
    assert said["loaded"] == ["load 1", "function 2 of 1 matmul", "set 2 8=98304"]
    assert said["first"] == [
        *("load 3 patched", "function 4 of 3 matmul", "global ikp_buffer", "set 4 8=98304"),
        *("copy 680 96 to stream 0", "launch 4 12x256 on 0"),
    ]
    assert said["again"] == ["copy 680 96 to stream 0", "launch 4 12x256 on 0"]
    assert said["address"]  # whoever asks the driver for its functions gets the same
    assert said["recorded"] == {"matmul": 11}
    wanted = {"label": "matmul", "backend": "driver", "grid": [12, 1, 1], "num_warps": 8}
    wanted["kernel"] = "matmul"
    assert said["asked"] == [wanted] * 11


def test_a_kernel_of_ikps_own_is_neither_recorded_nor_reported(said: dict) -> None:
    (launched,) = said["own PTX"]
    assert launched.startswith("launch ") and launched.endswith(" 12x256 on 0")
    assert said["own PTX: plain"] == []


def test_calls_of_cudas_profiler_are_passed_on_and_reach_the_driver(said: dict) -> None:
    """However the program found them, and with what the driver answers."""
    assert said["profiler"] == [0, 3, "starts", "stops", "profiler starts", "profiler stops"]


def test_a_reset_comes_after_what_python_reads_before_it(said: dict) -> None:
    assert said["left"] == [3, ""]
    assert said["reset"] == [0, "reset 3\n"]


def test_torch_is_not_asked_inside_of_the_programs_call(said: dict) -> None:
    """What it asks the CUDA runtime there makes CUPTI show the launch twice."""
    assert said["threads"] == ["ikp's", "MainThread", "MainThread"]


def test_no_launch_but_the_latest_holds_its_buffer(said: dict) -> None:
    """Python's collector need not run until memory of a device is given back."""
    assert said["held"] <= 1


@pytest.mark.parametrize("part", ["buffer", "array", "extended", "together"])
def test_what_the_driver_does_not_launch_with_records_runs_plain(said: dict, part: str) -> None:
    refused = f"refused {part}"
    assert said[f"{refused}: code"] == 0
    assert "refuses" in said[refused][-2] and "launch" in said[refused][-1]
    assert said[f"{refused}: plain"] == [
        "matmul: could not be marked: the driver does not launch it with records: FAKE."
    ]
    assert said[f"{refused}: more"] == [0, 0], "neither counted nor a buffer"


@pytest.mark.parametrize("part", ["buffer", "array", "extended", "together"])
def test_a_launch_that_fails_plain_too_is_the_programs(said: dict, part: str) -> None:
    wrong = f"wrong {part}"
    assert said[f"{wrong}: code"] == 1 and not said[f"{wrong}: plain"]
    assert said[f"{wrong}: more"] == [0, 0]


def test_each_stream_has_a_module_of_its_own(said: dict) -> None:
    assert said["other stream"] == [
        *("load 5 patched", "function 6 of 5 matmul", "global ikp_buffer", "set 6 8=98304"),
        *("copy 680 96 to stream 5", "launch 6 12x256 on 5"),
    ]


def test_the_begin_and_the_end_of_a_capture_are_told(said: dict) -> None:
    assert said["captures"] == ["begins", "capture 41", "ends", "capture 0"]
    assert said["ended"] == [9]


def test_a_graph_gets_the_write_and_the_launch_alone(said: dict) -> None:
    """Of a module of its own: whoever changes its node may ask for more blocks."""
    assert said["captured"] == [
        *("capture mode 2", "load 7 patched", "function 8 of 7 matmul", "global ikp_buffer"),
        *("capture mode 0", "set 8 8=98304", "capture mode 2", "capture mode 0"),
        *("write 680 96 in stream 0", "launch 8 12x256 on 0"),
    ]


def test_what_is_not_chosen_or_cannot_be_runs_plain_and_is_told(said: dict) -> None:
    for part in ("not chosen", "other context", "after"):
        assert said[part] == [PLAIN], part
    assert said["PTX"] == ["launch 10 12x256 on 0"]
    assert said["plain"] == [
        (
            "matmul: could not be marked: it runs in a CUDA context of its own, where ikp's "
            "memory can't be used."
        ),
        (
            "made: could not be marked: it was loaded as PTX, and what the driver compiles of it: "
            "there is no CUPTI."
        ),
        (
            "unknown: its machine code was not seen: the program got it from the driver in another "
            "way"
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
ARGUED = [f"launch 19 12x256 on 0 given {GIVEN}{TOLD}"]


def test_a_kernel_whose_arguments_are_seen_is_told_by_one_more(said: dict) -> None:
    """And nothing is copied: neither is anything of the module's asked for."""
    assert said["buffer"] == ["load 18", "function 19 of 18 matmul", *ARGUED]
    for part in ("array", "long buffer", "extended"):
        assert said[part] == ARGUED, part
        assert said[f"{part}: code"] == 0


def test_a_graph_s_launches_have_the_arguments_that_they_had(said: dict) -> None:
    assert "write 680 96 in stream 0" in said["array captured"]
    assert said["array captured"][-1].endswith(f" given {GIVEN}")


def test_what_the_driver_refuses_it_refuses_as_before(said: dict) -> None:
    """A launch with both forms, and one with a form that nobody knows."""
    for part in ("both", "strange"):
        assert said[f"{part}: code"] == 1
        assert not any("launch" in each for each in said[part])


def test_blocks_that_must_run_at_once_are_told_so_too(said: dict) -> None:
    """This kernel has more registers with records, and an SM room for as many blocks."""
    assert said["together"] == [f"together {ARGUED[0]}"]


def test_names_are_those_of_the_source() -> None:
    walk = "_ZN2at6native12_GLOBAL__N_14walkILi4EfEEvPT0_i"
    assert readable(walk) == "at::native::walk<4, float>"
    assert bare(walk) == "at::native::walk"
    assert readable("matmul") == bare("matmul") == "matmul"
