"""``ReplayKernel``: the last node of a captured graph, which keeps the records of each replay."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Final

from ikp.driver import cuda
from ikp.driver.replay_code import code
from ikp.driver.replay_moves import SLOTS, WARP

_WARPS: Final = 256
_MOST_WARPS: Final = 1024
_TURNS: Final = 4
"""More warps than the usual ones are there for so many turns of a warp each. A warp takes 3 ns of
the GPU, as all add to the same numbers; a turn takes some microseconds."""


def warps(slots: Sequence[int]) -> int:
    """Return how many warps of the node each segment has.

    Args:
        slots: of each segment; 0 where that is not known.
    """
    turns = [-(-each // SLOTS) for each in slots]
    all_warps = min(_MOST_WARPS, max(_WARPS, sum(turns) // _TURNS))
    share = max(1, all_warps // len(slots))
    return min(share, max(turns)) if all(turns) else share


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

    def launch(self, control: int, slots: Sequence[int], stream: int) -> None:
        """Launch it behind all that a stream has, or captures.

        Args:
            control: the address of the graph's control block.
            slots: of each segment whose address lies behind that; 0 where that is not known.
            stream: the driver's handle.

        Raises:
            PatchError: the driver refuses.
        """
        given = ctypes.c_uint64(control)
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(given))
        wide = warps(slots)
        cuda.call(
            "cuLaunchKernel",
            *(self._function, wide, len(slots), 1, WARP, 1, 1, 0, ctypes.c_void_p(stream)),
            *(parameters, None),
            to="launch the kernel that keeps replays",
        )
