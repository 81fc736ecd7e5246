"""Launches a Triton kernel again and again, all recorded, on a driver without a device.

Run by ``test_left.py`` in a process of its own, in which no driver has been loaded; prints what
came of each part of the test.
"""

import ctypes
import json
import os
import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import triton
import triton.language as tl
from triton import knobs
from triton.backends.nvidia.driver import CudaLauncher

from ikp.backends.driver.launches import stepping_in
from ikp.backends.triton.unedited import _repeated as repeated
from ikp.backends.triton.unedited import _special as special
from ikp.backends.triton.unedited.everything import Everything
from ikp.session.known_launch import LASTS_S, SlowError, revoke
from ikp.unedited.plan import ALL, plan
from tests.backends.driver.repeating import counts, driver, handle
from tests.backends.driver.stocking import AHEAD, Ahead, Stocked
from tests.backends.triton.test_foreign import Gpu, arguments

OUT, MANY = 0x7F00_0000_1000, 200


@triton.jit
def counted(out, n, STEP: tl.constexpr = 1):
    for k in range(n):
        tl.store(out + k * STEP, k)


class Session(Stocked):
    """A session of a whole program."""

    held = 0

    def __init__(self) -> None:
        super().__init__()
        self.given: list[Ahead] = self.stocks

    def collected(self) -> int:
        """Return how many launches took buffers ahead; their launcher counts them."""
        found = 0
        for each in self.given:
            new = sum(at > 0 for at in each.times) - getattr(each, "counted", 0)
            each.counted = getattr(each, "counted", 0) + new  # type: ignore[attr-defined]
            each.launched(new)
            found += new
        return found


class Here(Gpu):
    """The driver's GPU: Triton loads and launches on it as on any other."""

    def __init__(self, library: ctypes.CDLL) -> None:
        super().__init__()
        self.library, self.at = library, 0

    def load_binary(self, name: str, *binary: Any) -> tuple[Any, ...]:
        code = next(each for each in binary if isinstance(each, bytes))
        module, function = handle(), handle()
        self.library.cuModuleLoadData(ctypes.byref(module), code)
        self.library.cuModuleGetFunction(ctypes.byref(function), module, name.encode())
        return module.value, function.value, 32, 0, 1024

    def launcher_cls(self, source: Any, metadata: Any) -> Any:
        made = CudaLauncher.__new__(CudaLauncher)
        made.launch = self.launch
        made.num_ctas, made.launch_cooperative_grid, made.launch_pdl = 1, 0, 0
        made.gsan_enabled, made.arg_annotations, made.kernel_signature = False, (), ()
        for name in ("global_scratch", "profile_scratch"):
            setattr(made, f"{name}_size", 0)
            setattr(made, f"{name}_align", 1)
        return made

    def launch(self, *args: Any) -> None:
        """Launch as Triton's C code does: two words of scratch memory behind the arguments."""
        if not self.at:
            nothing = enumerate(pairwise(args))
            self.at = next(n for n, pair in nothing if pair == (None, None))
        scratch = [int(each or 0) for each in args[self.at : self.at + 2]]
        words = [OUT, 64, *scratch]
        values = [ctypes.c_uint64(each) for each in words]
        array = (handle * 4)(*(ctypes.addressof(each) for each in values))
        x, y, z, stream, function = args[:5]
        self.library.cuLaunchKernel(function, x, y, z, 128, 1, 1, 0, stream, array, None)


class Program:
    """Launches the kernel, and writes down what came of each part of the test."""

    def __init__(self, library: ctypes.CDLL, launcher: Everything, session: Session) -> None:
        self.library, self.launcher, self.session = library, launcher, session
        self.said = dict[str, Any]()

    def launch_in_turns(self, part: str, times: int) -> None:
        """Launch two specialisations, one behind the other."""
        self.launch(part, times, turns=({"STEP": 2}, {"STEP": 3}))

    def launch(
        self, part: str, times: int = 1, grid: int = 6, turns: Sequence[Any] = (), **options: Any
    ) -> None:
        self.library.fake_clear()
        counts["asked"], before = 0, self.recorded()
        for _ in range(times):
            for each in turns or (options,):
                counted[(grid,)](*arguments(), **each)
        lines = self.library.fake_log().decode().splitlines()
        made = [each for each in lines if each.startswith("launch")]
        given = [bytes.fromhex(each.rpartition(" ")[2]) for each in made]
        after = self.recorded()
        self.said[part] = {
            "asked": counts["asked"],
            "functions": [each.split()[1] for each in made],
            "arguments": [each[:-16].hex() for each in given],
            "addresses": [int.from_bytes(each[-16:-8], "little") for each in given],
            "behind": [each[-8:].hex() for each in given],
            "recorded": {key: after[key] - before.get(key, 0) for key in after},
            "plain": {f"{name}: {why}": n for (name, why), n in self.launcher.plain.items()},
        }

    def function(self, part: str) -> int:
        """Return the driver's handle of the function that a part has launched."""
        first, number = (int(self.said[each]["functions"][0]) for each in ("plain", part))
        return triton_functions()[0] + number - first

    def recorded(self) -> dict[str, int]:
        self.session.collected()
        return dict(self.launcher.recorded)

    def ready(self, **options: Any) -> None:
        """Launch until the library takes buffers that were taken ahead."""
        for _ in range(60):
            self.launch("ready", **options)
            if not self.said["ready"]["asked"] and self.said["ready"]["addresses"][0] >= AHEAD:
                return
        raise AssertionError(f"each launch asks: {self.said['ready']}")


def slow(request: object) -> None:
    """Be a session that has no buffer at hand."""
    raise SlowError


def unlike(program: Program) -> None:
    """Make launches that differ from those before in one thing each."""
    library, launcher = program.library, program.launcher
    for part, options in (
        ("other grid", {"grid": 7}),
        ("other constant", {"STEP": 2}),
        ("option named", {"num_warps": 4}),
        ("both", {"num_warps": 4, "STEP": 2, "grid": 7}),
    ):
        program.ready()
        program.launch(part, **options)
    program.ready(STEP=2)
    program.launch("other value", STEP=3)
    program.ready(STEP=3)
    program.launch_in_turns("in turns", 20)
    program.ready()
    thread = threading.Thread(target=program.launch, args=("other thread",))
    thread.start()
    thread.join()
    program.ready()
    revoke()
    program.launch("revoked")
    program.ready()
    time.sleep(1.2 * LASTS_S)
    program.launch("late")
    program.ready()
    request: Any = program.session.request
    request.again = slow
    os.environ["ANY"] = "a change of the environment has the library ask"
    program.launch("slow")
    request.again = program.session.again
    program.ready()
    os.environ["IKP"] = "0"
    program.launch("off")
    del os.environ["IKP"]
    program.ready()
    library.plain = handle(program.function("off"))
    library.fake_refuse(1, library.plain)
    program.launch("refused")
    library.fake_refuse(0, None)
    program.said["refused, told"] = dict(launcher.failed)
    launcher.failed.clear()
    program.ready()
    program.session.held = 1 << 40
    revoke()
    program.launch("no room")
    program.session.held = 0
    program.ready()
    os.environ["IKP"] = "0"
    program.launch("switched off", 2)
    del os.environ["IKP"]
    program.ready()


def main() -> None:
    library = driver()
    special.drives_cuda = lambda: True  # type: ignore[attr-defined]
    triton.runtime.driver._active = Here(library)
    knobs.compilation.always_compile = True
    session = Session()
    open_: list[Any] = [session]
    launcher = Everything(plan("loops", level="machine"), lambda: open_[0], ALL, {}, room=1 << 30)
    program = Program(library, launcher, session)
    anew, real = [0], repeated.NextLaunch.made

    def made(self: Any) -> Any:
        anew[0] += 1
        return real(self)

    repeated.NextLaunch.made = made  # type: ignore[method-assign]
    program.launch("plain")
    with launcher.stepping_in(), stepping_in(launcher):
        program.launch("many", MANY)
        program.said["many"]["anew"] = anew[0]
        program.said["in order"] = all(
            each.times[:count] == sorted(each.times[:count])
            for each in session.stocks
            for count in [sum(at > 0 for at in each.times)]
        )
        unlike(program)
        open_[0] = None
        revoke()
        program.launch("no session", 2)
    program.launch("after the end")
    print(json.dumps(program.said))


def triton_functions() -> list[int]:
    """Return the driver's handles of the loaded kernels."""
    caches = counted.device_caches.values()
    return [each.function for cache in caches for each in cache[0].values()]


if __name__ == "__main__":
    main()
