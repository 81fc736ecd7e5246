"""Launches a kernel that is recorded no more, in all ways that matter to its turns; prints which.

Run by ``test_further.py`` in a process of its own, in which no driver has been loaded.
"""

import ctypes
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ikp.backends.ahead import PatchesAhead
from ikp.backends.driver.launches import stepping_in
from ikp.backends.timed import FURTHER, QUIET, timed
from ikp.core.turns import IN_TURN
from ikp.errors import PatchError
from ikp.session.known_launch import ask_device
from tests.backends.driver.repeating import Keeping, Kept, Memory, Notice, driver, handle

UNREAD = 1 << 34
"""The address of the memory that nobody reads."""


class Ending(Keeping):
    """Records no launch any more, once it has ended."""

    ended = False

    def over(self, kernel: Any) -> str | None:
        return "over" if self.ended else None


class Unread(Memory):
    """Memory that the session does not read."""

    def data_ptr(self) -> int:
        return self.address


def main(image: Path, name: str) -> None:  # noqa: PLR0915 - one part after another
    library = driver()
    launcher, said = Ending(), dict[str, Any]()
    asked, slow = list[object](), list[int]()

    def unread(request: object) -> Unread:
        asked.append(request)
        if slow:
            ask_device()  # raises in the launching thread
        return Unread(UNREAD, Notice(request))

    def refused(request: object) -> None:
        raise PatchError("no memory")

    function, module = handle(), handle()
    values = [ctypes.create_string_buffer(64) for _ in range(16)]
    array = (handle * len(values))(*(ctypes.addressof(each) for each in values))

    def launch(block: int = 256) -> str:
        """Launch once; return what came: the function, and its last argument's first word."""
        library.fake_clear()
        library.cuLaunchKernel(function, 12, 1, 1, block, 1, 1, 0, 0, array, None)
        (line,) = [each for each in fake_log() if each.startswith("launch")]
        return line

    def fake_log() -> list[str]:
        lines: list[str] = library.fake_log().decode().splitlines()
        return lines

    def kinds(number: int, plain: str, block: int = 256) -> str:
        made = [launch(block).split() for _ in range(number)]
        return "".join("." if each[1] == plain else "R" for each in made)

    def anew(part: str, change: Callable[[], object] = lambda: None) -> None:
        """Record some launches, and then launch on."""
        timed.report()
        launcher.session, launcher.on, launcher.launches = Kept(), True, IN_TURN
        for wake in launcher.wakers:
            wake()  # else the library asks no more
        launcher.session.request.unread = unread
        launcher.failed.clear()
        asked.clear()
        lines = [launch() for _ in range(3)]
        launcher.on, launcher.ended = False, True
        change()
        more = QUIET if part == "overlapping" else 0
        said[part] = kinds(FURTHER + 2 + more, plain, 128 if part == "other block" else 256)
        said[f"{part} asked"] = len(asked)
        said[f"{part} recorded"] = [each.split()[1] for each in lines]

    library.fake_have_events(1)
    with stepping_in(launcher):
        library.cuModuleLoadData(ctypes.byref(module), image.read_bytes())
        library.cuModuleGetFunction(ctypes.byref(function), module, name.encode())
        launcher.on = False
        plain = launch().split()[1]
        anew("in turn")
        said["buffers"] = len(Kept.buffers)
        anew("other block")
        anew("chosen", lambda: setattr(launcher, "launches", range(8)))
        anew("windows", lambda: setattr(launcher, "ahead", PatchesAhead()))
        launcher.ahead = None
        anew("failed", lambda: timed.keep_plain(name))
        anew("no memory", lambda: setattr(launcher.session.request, "unread", lambda _: None))
        anew("refused memory", lambda: setattr(launcher.session.request, "unread", refused))
        slow.append(1)
        anew("slow", lambda: None)
        anew("captured", lambda: library.fake_capture(1))
        library.fake_capture(0)
        anew("refused", lambda: library.fake_refuse(1, function))
        library.fake_refuse(0, None)
        timed.overlap()
        anew("overlapping")
    print(json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
