"""``ReplayKernel``: the last node of a captured graph, which keeps the records of each replay."""

from __future__ import annotations

import ctypes
from typing import Final

from ikp.driver import cuda
from ikp.driver.replay_code import WARP, code

_MOST_WARPS: Final = 1024


class ReplayKernel:
    """The kernel, loaded in the current context: the primary one of a device.

    Raises:
        PatchError: the driver refuses.
    """

    def __init__(self) -> None:
        module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        load = "load the kernel that keeps replays"
        cuda.call("cuModuleLoadData", ctypes.byref(module), code().encode(), to=load)
        cuda.call(
            "cuModuleGetFunction", ctypes.byref(self._function), module, b"ikp_replay", to=load
        )

    def launch(self, control: int, segments: int, stream: int) -> None:
        """Launch it behind all that a stream has, or captures.

        Args:
            control: the address of the graph's control block.
            segments: how many addresses lie behind that.
            stream: the driver's handle.

        Raises:
            PatchError: the driver refuses.
        """
        given = ctypes.c_uint64(control)
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(given))
        wide = max(1, _MOST_WARPS // segments)
        cuda.call(
            "cuLaunchKernel",
            *(self._function, wide, segments, 1, WARP, 1, 1, 0, ctypes.c_void_p(stream)),
            *(parameters, None),
            to="launch the kernel that keeps replays",
        )
