"""Memory of a GPU that this process's sessions hold: other processes use the same GPU."""

import ctypes

from ikp.driver.cuda import call
from ikp.driver.memory_pool import Pool
from ikp.session.service import services
from ikp.session.storage import DriverStorage

_RESERVED = 5
"""``CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT``."""


def held() -> int:
    """Return the bytes that the pools of this process's sessions have from the driver."""
    pools = [
        each.storage._pool for _, each in services() if isinstance(each.storage, DriverStorage)
    ]
    assert pools, "no session has had memory of the driver's"
    return sum(map(_reserved, pools))


def _reserved(pool: Pool) -> int:
    found = ctypes.c_uint64()
    call("cuMemPoolGetAttribute", pool._pool, _RESERVED, ctypes.byref(found), to="measure a pool")
    return found.value
