"""Launches kernels while no window is open, and again in one, on a driver without a device.

Run by ``test_ahead.py`` in a process of its own, in which no driver has been loaded; prints what
was patched ahead, and what in the window.
"""

import ctypes
import json
import sys
import time
from pathlib import Path
from typing import Any

import triton
from triton import knobs

from ikp.backends.ahead import PatchesAhead
from ikp.backends.driver.launches import stepping_in
from ikp.backends.patch_input import PatchInput
from ikp.backends.triton.unedited import _special as special
from ikp.backends.triton.unedited._reasons import tuning
from ikp.backends.triton.unedited.everything import Everything
from ikp.probes import patch
from ikp.probes.kept_patch import KeptPatch
from ikp.unedited.plan import plan
from tests.backends.driver.repeating import driver, handle
from tests.backends.triton.test_foreign import arguments
from tests.backends.triton.unedited.leaving import Here, Session, counted

GRIDS = 6, 700
"""Blocks of launches: of the second a sample records, by another patch."""
PATIENCE_S = 120


def named(kernels: list[PatchInput]) -> list[str]:
    """Return kernels as texts, each once."""
    return sorted({f"{each.name}: {each.options['blocks']}" for each in kernels})


def wrong(*_: object) -> None:
    """Make a mistake, which must neither stop the program nor keep a kernel from being recorded."""
    raise KeyError


def kept(kernels: list[PatchInput]) -> bool:
    """Return whether each kernel's patch is in the cache."""
    entries = [KeptPatch.of(each.code, each.name, each.options) for each in kernels]
    return all(each is not None and each.read() is not None for each in entries)


def main(image: Path, symbol: str) -> None:
    """Launch two kernels, one of them of Triton's, between windows and in one."""
    library = driver()
    special.drives_cuda = lambda: True  # type: ignore[attr-defined]
    triton.runtime.driver._active = Here(library)
    knobs.compilation.always_compile = True
    module, function = handle(), handle()
    window: list[Any] = [None]
    launcher = Everything(plan("loops", level=None, sample=None), lambda: window[0], idle=True)

    def launch() -> None:
        for grid in GRIDS:
            counted[(grid,)](*arguments())
            library.cuLaunchKernel(function, grid, 1, 1, 256, 1, 1, 0, None, None, None)

    launcher.look_ahead()
    assert launcher.ahead is not None
    with launcher.stepping_in(), stepping_in(launcher):
        library.cuModuleLoadData(ctypes.byref(module), image.read_bytes())
        library.cuModuleGetFunction(ctypes.byref(function), module, symbol.encode())
        with tuning():
            counted[(6,)](*arguments(), STEP=5)
        assert not launcher.ahead.is_due and not launcher.ahead._noted
        note, PatchesAhead.note = PatchesAhead.note, wrong  # type: ignore[method-assign]
        launch()
        PatchesAhead.note = note  # type: ignore[method-assign]
        for grid in GRIDS:  # once in an idle time, a function is asked about
            launcher.begin_anew()
            counted[(grid,)](*arguments())
            library.cuLaunchKernel(function, grid, 1, 1, 256, 1, 1, 0, None, None, None)
        ahead = [made for each in launcher.ahead._noted if (made := each()) is not None]
        while not launcher.ahead.is_due:
            time.sleep(0.1)
        launcher.ahead.send(launcher.ahead.take(), sys.path)
        until = time.monotonic() + PATIENCE_S
        while not kept(ahead) and time.monotonic() < until:
            time.sleep(0.1)
        asked, patched = list[PatchInput](), list[str]()
        plainly, really = PatchInput.patched, patch.patch

        def noted(self: PatchInput) -> Any:
            asked.append(self)
            return plainly(self)

        def made_now(code: bytes, name: str, **options: Any) -> Any:
            patched.append(name)
            return really(code, name, **options)

        PatchInput.patched = noted  # type: ignore[method-assign]
        patch.patch = made_now
        launcher.begin_anew()
        window[0], launcher.idle = Session(), False
        launch()
    said = {"ahead": named(ahead), "asked": named(asked), "patched": patched}
    print(json.dumps(said | {"recorded": launcher.recorded, "failed": launcher.failed}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
