"""Straight-line code with any number of records in it: what is counted is what they add."""

import triton
import triton.language as tl

import ikp


@triton.jit
def straight(x, p, prof, STORES: tl.constexpr, RECORDS: tl.constexpr, KIND: tl.constexpr):
    """Do STORES pieces of work, RECORDS of which have a record of KIND around or after them.

    x: *i32 [STORES, 128].
    """
    ctx = ikp.init(prof)
    lanes = tl.arange(0, 128)
    token = ikp.start_async(ctx, "token")
    for i in tl.static_range(STORES):
        if i < RECORDS:
            if KIND == "range":
                with ikp.range("work"):
                    tl.store(x + i * 128 + lanes, lanes)
            elif KIND == "payload":
                with ikp.range("work", p):
                    tl.store(x + i * 128 + lanes, lanes)
            elif KIND == "functional":
                ctx = ikp.start(ctx, "work")
                tl.store(x + i * 128 + lanes, lanes)
                ctx = ikp.end(ctx, "work")
            elif KIND == "run-time id":
                with ikp.range(p):
                    tl.store(x + i * 128 + lanes, lanes)
            elif KIND == "instant":
                tl.store(x + i * 128 + lanes, lanes)
                ikp.instant("work")
            else:  # ends of one range: all but the start
                tl.store(x + i * 128 + lanes, lanes)
                ctx = ikp.end_async(ctx, token)
        else:
            tl.store(x + i * 128 + lanes, lanes)
