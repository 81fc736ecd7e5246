"""What the Gluon cases share: a ring of tiles in shared memory, and descriptors of operands."""

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

load_tile = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared  # Triton 3.6's name


@gluon.jit
def barriers(COUNT: gl.constexpr):
    """Return so many barriers, each for one arrival."""
    made = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(COUNT):
        mbarrier.init(made.index(i), count=1)
    fence_async_shared()
    return made


def tiles(matrix: torch.Tensor, shape: list[int]) -> TensorDescriptor:
    """Return the TMA descriptor of a matrix of float16 for tiles of ``shape``."""
    layout = gl.NVMMASharedLayout.get_default_for(shape, gl.float16)
    return TensorDescriptor.from_tensor(matrix, shape, layout)
