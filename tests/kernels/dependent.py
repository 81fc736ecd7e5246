"""Address arithmetic that waits for a load, in and beside ranges: who is charged with the wait?"""

import triton
import triton.language as tl

import ikp

TYPES = {
    "looked_up": {"table": "*i32", "keys": "*fp32", "out": "*fp32", "n": "i32"},
    "hash_after": {"x": "*i32", "table": "*i32", "out": "*i32"},
    "hash_inside": {"x": "*i32", "table": "*i32", "out": "*i32"},
}
SIZES = {
    "looked_up": {"BLOCK": 128},
    "hash_after": {"BLOCK": 128, "ROUNDS": 20},
    "hash_inside": {"BLOCK": 128, "ROUNDS": 20},
}
ENTRIES = 1 << 16  # of a table


@triton.jit
def looked_up(table, keys, out, n, prof, BLOCK: tl.constexpr):
    """An unmarked lookup, float work in a range, then a load whose address needs the lookup."""
    ikp.init(prof)
    lanes = tl.arange(0, BLOCK)
    peak = tl.load(out + lanes)
    total = tl.zeros((BLOCK,), tl.float32)
    for i in range(n):
        page = tl.load(table + i)
        with ikp.range("softmax"):
            peak = tl.maximum(peak, total) * 1.5 + 1.0
            total = total * tl.exp(peak - total)
        with ikp.range("load K"):
            key = tl.load(keys + page * BLOCK + lanes)
        total += key
    tl.store(out + lanes, total + peak)


@triton.jit
def hash_after(x, table, out, prof, BLOCK: tl.constexpr, ROUNDS: tl.constexpr):
    """A load in a range, then unmarked arithmetic of many steps that makes the next address."""
    ikp.init(prof)
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    with ikp.range("load x"):
        value = tl.load(x + lanes)
    for _ in tl.static_range(ROUNDS):
        value = (value ^ (value >> 13)) * 0x5BD1E995
        value = value + (value << 5)
    with ikp.range("gather"):
        found = tl.load(table + (value & 0xFFFF))
    tl.store(out + lanes, found)


@triton.jit
def hash_inside(x, table, out, prof, BLOCK: tl.constexpr, ROUNDS: tl.constexpr):
    """The same arithmetic and gather in one range."""
    ikp.init(prof)
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + lanes)
    with ikp.range("hash and gather"):
        for _ in tl.static_range(ROUNDS):
            value = (value ^ (value >> 13)) * 0x5BD1E995
            value = value + (value << 5)
        found = tl.load(table + (value & 0xFFFF))
    tl.store(out + lanes, found)
