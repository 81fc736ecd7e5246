"""What a launch is asked for, the copy with records is launched with."""

import pytest

from ikp.backends.driver import _launch_recorder, launches
from ikp.backends.driver._hook import InterposedLaunch, NodeKind
from ikp.sass.cubins.extra_argument import ExtraArgument
from tests.backends.driver.model import driven as driving
from tests.backends.driver.model.building import Built
from tests.backends.driver.model.driven import Counting, Driven, driven

pytestmark = pytest.mark.any_pins

OVERLAPS = 6
ATTRIBUTES = [each for each in range(1, 17) if each != OVERLAPS]
"""All that ``cuda.h`` has for launches, but for that of programmatic dependent launches."""


def _function(program: Driven) -> int:
    return program.call("cuModuleGetFunction", program.load(1), b"a")


@pytest.mark.parametrize("attribute", ATTRIBUTES)
def test_attributes_of_a_launch_are_those_of_the_copys(built: Built, attribute: int) -> None:
    with driven(built, Counting()) as program:
        ran = program.launch_with(_function(program), [attribute, 8], shared=512, stream=64)
        assert ran.patched and ran.attributes == 1 << attribute | 1 << 8
        assert (ran.shared, ran.stream) == (512, 64)


@pytest.mark.parametrize("argued", [True, False])
def test_a_dependent_launch_is_recorded_where_nothing_comes_between(
    built: Built, argued: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the copy has one more argument, nothing is written before it is launched."""
    plain = driving.patched_form

    def with_argument(code: bytes) -> object:
        made = plain(code)
        made.argument = ExtraArgument(1, 8, 16)
        return made

    if argued:
        monkeypatch.setattr(driving, "patched_form", with_argument)
    with driven(built, launcher := Counting()) as program:
        function = _function(program)
        ran = program.launch_with(function, [OVERLAPS])
        assert bool(ran.patched) is argued and ran.attributes == 1 << OVERLAPS
        told = [] if argued else [f"a: {_launch_recorder._OVERLAPS}"]
        assert launcher.plain == told and not launcher.failed
        assert program.launch_with(function, []).patched  # the next may be recorded


def test_an_idle_launcher_is_asked_once_and_a_decision_lasts_until_it_is_taken_back(
    built: Built,
) -> None:
    with driven(built, launcher := Counting(most=1)) as program:
        function, asked = _function(program), list[int]()
        launcher.during = lambda: asked.append(1)
        launcher.idle = True
        assert not any(program.launch(function)[2] for _ in range(3))
        assert not asked
        launcher.idle = False
        assert not program.launch(function)[2]  # it was decided
        program.hook.wake()
        assert [program.launch(function)[2] for _ in range(4)] == [True, False, False, False]
        assert len(asked) == 2  # then the kernel is over
        launcher.seen.clear()
        assert not program.launch(function)[2]
        program.hook.wake()
        assert program.launch(function)[2]


def test_a_launch_captured_into_a_graph_of_the_programs_is_plain_and_reported(
    built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A conditional node's body, say: what writes a buffer's address there makes it invalid."""
    with driven(built, launcher := Counting()) as program:
        function = _function(program)
        monkeypatch.setattr(launches, "end_capture", lambda _: None)
        monkeypatch.setattr(launches.cuda, "capture_number", lambda _: 9)
        captured = [True]
        monkeypatch.setattr(launches.cuda, "capturing", lambda _: captured[0])
        program.launches.asked(InterposedLaunch(node=NodeKind.CAPTURE_INTO, stream=5))
        assert not program.launch(function)[2]
        assert launcher.plain == [f"a: {_launch_recorder._BODY}"] and not launcher.failed
        program.launches.asked(InterposedLaunch(node=NodeKind.CAPTURE_ENDS, stream=5))
        captured[0] = False
        assert program.launch(function)[2]
