"""``SeenCode``: which kernel a launched function is, and its machine code as the driver has it."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256

from ikp.backends import loaded
from ikp.backends.driver._chip_cubins import NoCodeError, compiled, cubin
from ikp.backends.driver._hook import DriverObject, HandleKind, Hook, InterposedLaunch
from ikp.backends.driver._seen_kernels import KernelMemory, Same, SeenKernel, digest
from ikp.backends.labels import Labels
from ikp.driver import cuda, cuda_functions
from ikp.errors import PatchError

_MANY = 4
"""The most entries from a launched function up to the module or library that has its image."""
_IMAGES = 2
"""The most images kept in memory: a program's kernels come by library, and each may be large."""
_COMPILED = 64
"""The most cubins kept that the driver compiled: each takes a process."""
_GONE = 256
"""After so many dropped handles, their kernels' patches and modules are released."""


@dataclass(slots=True)
class SeenCode:
    """The kernels that were launched, by their functions' ids, and the code that holds them."""

    hook: Hook
    labels: Labels
    _kernels: dict[int, SeenKernel] = field(default_factory=dict)
    _same: Same = field(default_factory=Same)
    _memory: dict[int, KernelMemory] = field(default_factory=dict)  # of those that were patched
    _images: dict[int, bytes] = field(default_factory=dict)  # by the holder's id
    _compiled: dict[tuple[int, str], bytes] = field(default_factory=dict)  # by holder and kernel
    _dropped: int = 0
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def known(self, number: int) -> SeenKernel | None:
        """Return a kernel that was launched before, by its function's id."""
        return self._kernels.get(number)

    def let_go(self, launch: InterposedLaunch) -> None:
        """Release patches and modules of kernels that are unloaded, and of ended contexts."""
        dropped = self.hook.dropped()
        if dropped - self._dropped < _GONE or cuda.capturing(launch.stream or 0):
            return
        with self._lock:
            self._dropped = dropped
            gone = {
                number
                for number, each in self._kernels.items()
                if not self.hook.lives(each.launched.handle, number)
            }
            for number in gone:
                del self._kernels[number]
                self._memory.pop(number, None)
        over = loaded.modules.drop(gone.__contains__, lambda *each: not self.hook.lives(*each))
        for module in over:
            if module.context[1] == cuda.context_number():
                cuda_functions.unload(module.module)

    def kernel(self, launch: InterposedLaunch) -> SeenKernel | None:
        """Return the launched kernel; None where its image was not seen."""
        with self._lock:
            if launch.id in self._kernels:
                return self._kernels[launch.id]
            above: list[DriverObject] = []
            handle = int(launch.function)
            while handle and len(above) < _MANY and (known := self.hook.about(handle)):
                above.append(known)
                handle = known.parent
            symbol = next((each.name for each in above if each.name), "")
            if not (symbol and above[-1].size and above[0].id == launch.id):
                return None
            holder = above[-1]
            number = self._same.number(symbol, holder.id, partial(self._digest, symbol, holder))
            made = SeenKernel(symbol, above[0], holder, self.labels, number)
            self._kernels[launch.id] = made
            return made

    def _image(self, holder: DriverObject) -> bytes:
        with self._lock:
            if holder.id not in self._images:
                while len(self._images) >= _IMAGES:
                    del self._images[next(iter(self._images))]
                self._images[holder.id] = self.hook.image(holder)
            return self._images[holder.id]

    def _digest(self, symbol: str, holder: DriverObject) -> bytes | None:
        """Return the digest of a kernel's code; None where the code can't be read any more."""
        try:
            image = self._image(holder)
        except PatchError:
            return None
        try:
            return digest(cubin(image, symbol, cuda.chip()), symbol)
        except PatchError:  # the driver compiles the code: only the image is at hand
            return sha256(image).digest()

    def code(self, kernel: SeenKernel) -> bytes:
        """Return the cubin with a kernel that the driver loaded.

        Raises:
            PatchError: it can't be obtained.
        """
        holder = kernel.holder
        image, key = self._image(holder), (holder.id, kernel.symbol)
        try:
            return cubin(image, kernel.symbol, cuda.chip())
        except NoCodeError as error:
            lacking = str(error)
        with self._lock:
            code = self._compiled.get(key)
        if code is None:
            try:
                code = compiled(
                    *(image, kernel.symbol, kernel.function(), self.hook.options(holder)),
                    library=holder.kind is HandleKind.LIBRARY,
                )
            except PatchError as error:
                raise PatchError(
                    f"{lacking}, and what the driver compiles of it: {error}"
                ) from error
            with self._lock:
                while len(self._compiled) >= _COMPILED:
                    del self._compiled[next(iter(self._compiled))]
                self._compiled[key] = code
        return code

    def own_code(self, kernel: SeenKernel, chip: tuple[int, int]) -> bytes | None:
        """Return the cubin with a kernel that its image has for a chip; None where it has none.

        Raises:
            PatchError: the image is gone.
        """
        with suppress(NoCodeError):
            return cubin(self._image(kernel.holder), kernel.symbol, chip)
        return None

    def to_patch(self, kernel: SeenKernel) -> bytes:
        """Return the cubin with a kernel that is to be patched, and note what memory it refers to.

        Raises:
            PatchError: it can't be obtained, or is of a form that is not known.
        """
        code = self.code(kernel)
        read = partial(self._digest, kernel.symbol, kernel.holder)
        self._same.seen(kernel.symbol, kernel.number, read)
        self._memory[kernel.id] = KernelMemory.of(code, kernel.symbol)
        return code

    def memory(self, kernel: SeenKernel) -> KernelMemory:
        """Return the memory that a kernel refers to, which was patched before."""
        return self._memory[kernel.id]
