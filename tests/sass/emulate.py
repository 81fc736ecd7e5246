"""An emulator of the instructions that ikp inserts: 32 threads, one warp after the other.

It executes words, not what they were made from, and refuses a register that is read before it is
there: by time, for what takes a known one, and by scoreboard, for what does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ikp.sass.assembly.chips import HOPPER, Chip

LANES = 32
_ALL = np.ones(LANES, bool)
_WORD = 0xFFFFFFFF
_COMPUTED = (0x2A4, 0x8A4, 0x291, 0x892, 0x287)
"""What the uniform datapath computes: it has its own results before others read them."""
_CHAINED = 4
_TIMES = {0x805: 8, 0x2CA: 13, 0xAB9: 12, 0x890: 6, 0xC82: 6, 0x28C: _CHAINED}
_TIMES |= dict.fromkeys(_COMPUTED, 9)
_READ = 3
"""So many cycles pass until it has read a register; compilers write none before."""
_USUAL = 5
_GUARDS = 8
"""A predicate guards an instruction so many cycles after an operation could read it."""
_SLOW = {0x919, 0x9C3, 0xB82, 0x3C2, 0x7AC, 0x9A8}
_STORES = {0x986, 0x98E}


class HazardError(Exception):
    """An instruction reads what is not there yet, or writes what is still to be read."""


def bits(word: int, first: int, count: int) -> int:
    """Return some bits of a word."""
    return word >> first & ((1 << count) - 1)


@dataclass
class Machine:
    """The memory and the clock that all warps share."""

    constants: dict[tuple[int, int], int]  # (bank, offset) -> 32 bits
    memory: bytearray
    base: int  # the memory's address
    now: int = 1000
    stores: int = 0
    chip: Chip = HOPPER

    @property
    def descriptor(self) -> int:
        """Where the constants say what global memory is."""
        return self.chip.offset_of(0x208)

    @property
    def no_uniform(self) -> int:
        """The uniform register that is always zero."""
        return 255 if int(self.chip.name.removeprefix("sm_")) >= 100 else 63

    def put(self, address: int, words: Sequence[int]) -> None:
        """Store words; outside of the memory is an error."""
        at = address - self.base
        assert at % (4 * len(words)) == 0, "not aligned"
        assert 0 <= at <= len(self.memory) - 4 * len(words), "outside of the segment"
        self.memory[at : at + 4 * len(words)] = np.array(words, "<u4").tobytes()
        self.stores += 1


@dataclass
class Warp:
    """The registers of 32 threads; ``special`` gives each special register, for each thread."""

    machine: Machine
    special: dict[int, np.ndarray]
    r: np.ndarray = field(default_factory=lambda: np.full((256, LANES), 0xDEADBEEF, np.uint64))
    u: list[int] = field(default_factory=lambda: [0xBADC0DE] * 256)
    p: np.ndarray = field(default_factory=lambda: np.zeros((8, LANES), bool))
    up: list[bool] = field(default_factory=lambda: [False] * 7)
    ready: dict[tuple[str, int], int] = field(default_factory=dict)
    chained: dict[tuple[str, int], int] = field(default_factory=dict)  # for the uniform datapath
    computing: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)  # reads it
    writing: dict[tuple[str, int], int] = field(default_factory=dict)  # -> scoreboard
    reading: dict[tuple[str, int], int] = field(default_factory=dict)
    elected: int = 0  # the thread that an election chooses
    own: frozenset[int] = frozenset()  # words of a compiler, which knows how long they take
    at: int = 0  # which word is executed
    theirs: set[tuple[str, int]] = field(default_factory=set)  # registers that such words wrote

    def __post_init__(self) -> None:
        self.r[255] = 0
        self.u[self.machine.no_uniform] = 0
        self.p[7] = True

    def run(self, words: Sequence[int]) -> None:
        """Execute words until they end, or an EXIT."""
        at = 0
        while at < len(words):
            word, self.at = words[at], at
            self._wait(bits(word, 116, 6))
            stall = bits(word, 105, 4)
            at = self._execute(word, at)
            self.machine.now += max(stall, 1)

    def _wait(self, mask: int) -> None:
        for pending in (self.writing, self.reading):
            for resource, scoreboard in list(pending.items()):
                if mask >> scoreboard & 1:
                    del pending[resource]

    def _execute(self, word: int, at: int) -> int:
        opcode = bits(word, 0, 12)
        guard = self.p[self._read("P", bits(word, 12, 3), _GUARDS)].copy()
        active = ~guard if bits(word, 15, 1) else guard
        if opcode == 0x947:
            assert active.all() or not active.any(), "a branch that divides the warp"
            return at + 1 + self._distance(word) if active.all() else at + 1
        if opcode == 0x94D:
            assert active.all() or not active.any(), "an exit that divides the warp"
            return 1 << 30 if active.all() else at + 1
        OPERATIONS[opcode](self, word, active)
        return at + 1

    def _distance(self, word: int) -> int:
        """Return how many instructions a branch leads over."""
        far, halves = self.machine.chip.far, (word & (1 << 64) - 1, word >> 64)
        offset = at = 0
        for half, first, count in far.parts:
            offset |= bits(halves[half], first, count) << at
            at += count
        offset -= (offset >> far.bits - 1) << far.bits
        assert offset * far.unit % 16 == 0
        return offset * far.unit // 16

    def _read(self, file: str, number: int, later: int = 0) -> int:
        if (file, number) in self.writing:
            raise HazardError(f"{file}{number} is in flight")
        if self.at in self.own and (file, number) in self.theirs:
            return number
        if self.ready.get((file, number), 0) + later > self.machine.now:
            early = self.ready[file, number] + later - self.machine.now
            raise HazardError(f"{file}{number} is read {early} cycles early")
        return number

    def reg(self, word: int, first: int) -> np.ndarray:
        """Return the register that a field names."""
        return self.r[self._read("R", bits(word, first, 8))]

    def uniform(self, word: int, first: int) -> int:
        """Return the uniform register that a field names."""
        return self.u[self._read("U", bits(word, first, 8))]

    def chain(self, word: int, first: int) -> int:
        """Return the uniform register that a field names, to the uniform datapath."""
        number = bits(word, first, 8)
        self.computing["U", number] = self.machine.now + _READ, self.at
        if self.chained.get(("U", number), 0) > self.machine.now:
            raise HazardError(f"UR{number} is read early")
        if ("U", number) in self.chained:
            return self.u[number]
        return self.uniform(word, first)

    def counted(self, word: int) -> int:
        """Return the uniform register that is added to."""
        self.computing["U", bits(word, 24, 8)] = self.machine.now + _READ, self.at
        return self.uniform(word, 24)

    def wrote(self, word: int, file: str, number: int) -> None:
        """Note when a result is there."""
        opcode = bits(word, 0, 12)
        if (file, number) in self.reading:
            raise HazardError(f"{file}{number} is still to be read")
        if opcode in _SLOW:
            assert bits(word, 110, 3) < 6, "nobody can wait for it"
            self.writing[file, number] = bits(word, 110, 3)
        else:
            soon = opcode == 0xAB9 and self.machine.chip.near
            time = _CHAINED if soon else _TIMES.get(opcode, _USUAL)
            self.ready[file, number] = self.machine.now + time
        until, reader = self.computing.get((file, number), (0, 0))
        if until > self.machine.now and reader != self.at:
            raise HazardError(f"{file}{number} is written while the uniform datapath reads it")
        self.chained.pop((file, number), None)
        if opcode in _COMPUTED:
            self.chained[file, number] = self.machine.now + _CHAINED
        (self.theirs.add if self.at in self.own else self.theirs.discard)((file, number))

    def set(self, word: int, value: object, active: np.ndarray, offset: int = 0) -> None:
        """Set the register that bits 16 to 23 name."""
        number = bits(word, 16, 8) + offset
        if number < 255:
            self.wrote(word, "R", number)
            self.r[number] = np.where(active, np.asarray(value, np.uint64) & _WORD, self.r[number])

    def set_uniform(self, word: int, value: int, offset: int = 0) -> None:
        """Set the uniform register that bits 16 to 21 name."""
        self.wrote(word, "U", bits(word, 16, 8) + offset)
        self.u[bits(word, 16, 8) + offset] = int(value) & _WORD

    def set_predicate(self, word: int, value: np.ndarray, active: np.ndarray) -> None:
        """Set the predicate that bits 81 to 83 name."""
        number = bits(word, 81, 3)
        self.wrote(word, "P", number)
        self.p[number] = np.where(active, value, self.p[number])


def _clock(w: Warp, word: int, active: np.ndarray) -> None:
    which = bits(word, 72, 8)
    value = {0x50: w.machine.now, 0x52: 10**18 + 2 * w.machine.now}[which]
    w.set(word, np.uint64(value & _WORD), active)
    if bits(word, 80, 1):
        w.set(word, np.uint64(value >> 32), active, 1)


def _special(w: Warp, word: int, active: np.ndarray) -> None:
    w.set(word, w.special[bits(word, 72, 8)], active)


def _constant(w: Warp, word: int, active: np.ndarray) -> None:
    late = bits(word, 0, 12) == 0x7AC
    bank, offset = bits(word, 54, 5), bits(word, 37, 17) if late else bits(word, 38, 16)
    w.set_uniform(word, w.machine.constants[bank, offset])
    if bits(word, 72, 4) == 0xA:
        w.set_uniform(word, w.machine.constants[bank, offset + 4], 1)


def _load_constant(w: Warp, word: int, active: np.ndarray) -> None:
    bank, offset = bits(word, 54, 5), bits(word, 40, 14) * 4
    if not bits(word, 72, 4):  # a byte
        _load_byte(w, word, active, bank, offset)
        return
    for number in range({0x8: 1, 0xA: 2}[bits(word, 72, 4)]):
        w.set(word, np.uint64(w.machine.constants[bank, offset + 4 * number]), active, number)


def _load_byte(w: Warp, word: int, active: np.ndarray, bank: int, offset: int) -> None:
    at = offset + w.reg(word, 24).astype(int)
    words = [w.machine.constants[bank, int(each) & ~3] for each in at]
    w.reading["R", bits(word, 24, 8)] = bits(word, 110, 3)
    w.set(word, [each >> 8 * (int(n) & 3) & 255 for each, n in zip(words, at, strict=True)], active)


def _shift(w: Warp, word: int, active: np.ndarray) -> None:
    how = bits(word, 72, 9)
    if how == 0x1E:
        _rotate(w, word, active)
        return
    assert how in (0x6, 0x102) and bits(word, 64, 8) == 255, "another shift"
    value, count = w.reg(word, 24), w.reg(word, 32)
    made = [int(one) << int(n) if n < 64 else 0 for one, n in zip(value, count, strict=True)]
    w.set(word, np.array([each >> 32 * (how == 0x102) & _WORD for each in made], np.uint64), active)


def _select(w: Warp, word: int, active: np.ndarray) -> None:
    assert bits(word, 72, 19) == 0x78ECA, "another function of three bits"
    mask, other = w.reg(word, 24), w.reg(word, 64)
    opcode = bits(word, 0, 12)
    one = w.reg(word, 32) if opcode == 0x212 else np.uint64(bits(word, 32, 32))
    one = np.uint64(w.uniform(word, 32)) if opcode == 0xC12 else one
    w.set(word, mask & one | ~mask & other, active)


def _permute(w: Warp, word: int, active: np.ndarray) -> None:
    both = w.reg(word, 24) | w.reg(word, 64) << np.uint64(32)
    made = np.zeros(LANES, np.uint64)
    for place in range(4):
        which = bits(word, 32 + 4 * place, 4)
        byte = both >> np.uint64(8 * (which & 7)) & np.uint64(0xFF)
        byte = (byte >> np.uint64(7)) * np.uint64(0xFF) if which & 8 else byte
        made |= byte << np.uint64(8 * place)
    w.set(word, made, active)


def _rotate(w: Warp, word: int, active: np.ndarray) -> None:
    assert bits(word, 64, 8) == bits(word, 24, 8), "what is shifted in is another register"
    value, count = w.reg(word, 24), w.reg(word, 32) & np.uint64(31)
    w.set(word, value >> count | value << np.uint64(32) - count, active)


def _elect(w: Warp, word: int, active: np.ndarray) -> None:
    assert bits(word, 16, 8) == w.machine.no_uniform and bits(word, 87, 4) == 7
    w.set_predicate(word, np.arange(LANES) == w.elected, active)


def _compared_with(w: Warp, word: int, other: object, active: np.ndarray) -> None:
    """Compare numbers that are not negative, and set a predicate if another holds, too."""
    one, also = w.reg(word, 24), w.p[w._read("P", bits(word, 87, 3))]
    also = ~also if bits(word, 90, 1) else also
    how = (np.less, np.equal, np.less_equal, np.greater, np.not_equal, np.greater_equal)
    w.set_predicate(word, how[bits(word, 76, 3) - 1](one, other) & also, active)


def _below_other(w: Warp, word: int, active: np.ndarray) -> None:
    _compared_with(w, word, w.reg(word, 32), active)


def _vote(w: Warp, word: int, active: np.ndarray) -> None:
    assert bits(word, 64, 41) & ~(7 << 23) == 0x000E0100
    there = active & w.p[w._read("P", bits(word, 87, 3))]
    w.set(word, np.uint64(sum(1 << int(lane) for lane in np.flatnonzero(there))), active)


def _scaled(w: Warp, word: int, active: np.ndarray) -> None:
    made = (w.reg(word, 24) << np.uint64(bits(word, 75, 5))) + np.uint64(w.uniform(word, 32))
    w.set(word, made, active)


def _scaled_own(w: Warp, word: int, active: np.ndarray) -> None:
    made = (w.reg(word, 24) << np.uint64(bits(word, 75, 5))) + w.reg(word, 32)
    w.set(word, made, active)


def _special_uniform(w: Warp, word: int, active: np.ndarray) -> None:
    (value,) = set(w.special[bits(word, 72, 8)].tolist())
    w.set_uniform(word, value)


def _multiply_uniform(w: Warp, word: int, active: np.ndarray) -> None:
    other = bits(word, 32, 32) if bits(word, 0, 12) == 0x8A4 else w.chain(word, 32)
    w.set_uniform(word, w.chain(word, 24) * other + w.chain(word, 64))


def _scaled_uniform(w: Warp, word: int, active: np.ndarray) -> None:
    assert bits(word, 64, 8) == w.machine.no_uniform
    made = (w.chain(word, 24) << bits(word, 75, 5)) + w.chain(word, 32)
    w.set_uniform(word, made)


def _masked_uniform(w: Warp, word: int, active: np.ndarray) -> None:
    assert bits(word, 72, 8) == 0xC0, "another function of three numbers"
    w.set_uniform(word, w.chain(word, 24) & bits(word, 32, 32))


def _below_uniform(w: Warp, word: int, active: np.ndarray) -> None:
    assert bits(word, 64, 17) == 0x1070, "another comparison"
    number = bits(word, 81, 3)
    made = w.chain(word, 24) < w.chain(word, 32)
    w.wrote(word, "UP", number)
    w.up[number] = made


def _choose_uniform(w: Warp, word: int, active: np.ndarray) -> None:
    number = w._read("UP", bits(word, 87, 3))
    w.computing["UP", number] = w.machine.now + _READ, w.at
    w.set_uniform(word, w.chain(word, 24 if w.up[number] else 32))


def _uniform_pair(w: Warp, word: int, active: np.ndarray) -> None:
    assert bits(word, 24, 8) == bits(word, 64, 8) == 255, "nothing is multiplied"
    number = bits(word, 32, 8)
    assert number % 2 == bits(word, 16, 8) % 2 == 0
    for half in range(2):
        w.set(word, w.u[w._read("U", number + half)], active, half)


def _store_near(w: Warp, word: int, active: np.ndarray) -> None:
    count = {0x9: 1, 0xB: 2, 0xD: 4}[bits(word, 72, 5)]
    assert bits(word, 90, 1) == 0, "the offset has 64 bits"
    offset, value, pair = bits(word, 24, 8), bits(word, 32, 8), bits(word, 64, 8)
    assert pair % 2 == 0
    beyond = bits(word, 40, 24)
    beyond -= (beyond >> 23) << 24
    for number in (offset, *range(value, value + count)):
        w._read("R", number)
        w.reading["R", number] = bits(word, 113, 3)
    base = w.u[w._read("U", pair)] | w.u[w._read("U", pair + 1)] << 32
    for lane in np.flatnonzero(active):
        address = base + int(w.r[offset][lane]) + beyond
        w.machine.put(address, [int(w.r[value + i][lane]) for i in range(count)])


def _store(w: Warp, word: int, active: np.ndarray) -> None:
    if not bits(word, 76, 1):
        _store_near(w, word, active)
        return
    count = {0x19: 1, 0x1B: 2, 0x1D: 4}[bits(word, 72, 5)]
    low, high, value = bits(word, 24, 8), bits(word, 24, 8) + 1, bits(word, 32, 8)
    offset = bits(word, 40, 24)
    offset -= (offset >> 23) << 24
    descriptor = w.machine.constants[0, w.machine.descriptor]
    assert w.u[w._read("U", bits(word, 64, 8))] == descriptor
    registers = [low, high, *range(value, value + count)]
    for number in registers:
        w._read("R", number)
        w.reading["R", number] = bits(word, 113, 3)
    for lane in np.flatnonzero(active):
        address = int(w.r[high][lane]) << 32 | int(w.r[low][lane])
        w.machine.put(address + offset, [int(w.r[value + i][lane]) for i in range(count)])


def _count_up(w: Warp, word: int, active: np.ndarray) -> None:
    low, value = bits(word, 24, 8), bits(word, 32, 8)
    offset = bits(word, 40, 24)
    offset -= (offset >> 23) << 24
    for number in (low, low + 1, value):
        w.reading["R", w._read("R", number)] = bits(word, 113, 3)
    for lane in np.flatnonzero(active):
        at = (int(w.r[low + 1][lane]) << 32 | int(w.r[low][lane])) + offset - w.machine.base
        old = int.from_bytes(w.machine.memory[at : at + 4], "little")
        w.machine.memory[at : at + 4] = (old + int(w.r[value][lane])).to_bytes(4, "little")


def _count(w: Warp, word: int, active: np.ndarray) -> None:
    """Add to memory, and return what was there: the last lane comes first."""
    before = np.zeros(LANES, np.uint64)
    for lane in np.flatnonzero(active)[::-1]:
        low = bits(word, 24, 8)
        address = int(w.r[low + 1][lane]) << 32 | int(w.r[low][lane])
        at = address + bits(word, 40, 24) - w.machine.base
        before[lane] = int.from_bytes(w.machine.memory[at : at + 4], "little")
        one = np.arange(LANES) == lane
        _count_up(w, word, one)
    w.set(word, before, active)


def _below(w: Warp, word: int, active: np.ndarray) -> None:
    _compared_with(w, word, w.uniform(word, 32), active)


def _compared(w: Warp, word: int, active: np.ndarray) -> None:
    _compared_with(w, word, bits(word, 32, 32), active)


def _save(w: Warp, word: int, active: np.ndarray) -> None:
    mask = bits(word, 32, 7)
    held = [w.p[w._read("P", n)] << np.uint64(n) for n in range(7) if mask >> n & 1]
    w.set(word, np.sum(held, axis=0, dtype=np.uint64), active)


def _choose(w: Warp, word: int, active: np.ndarray) -> None:
    chosen = w.p[w._read("P", bits(word, 87, 3))]
    w.set(word, np.where(chosen, w.reg(word, 24), np.uint64(bits(word, 32, 32))), active)


def _late_to_uniform(w: Warp, word: int, active: np.ndarray) -> None:
    w.set_uniform(word, int(w.reg(word, 24)[0]))
    w.reading["R", bits(word, 24, 8)] = bits(word, 110, 3)


def _add(w: Warp, word: int, active: np.ndarray) -> None:
    w.set(word, w.reg(word, 24) + np.uint64(bits(word, 32, 32)), active)


def _move_constant(w: Warp, word: int, active: np.ndarray) -> None:
    bank, offset = bits(word, 54, 5), bits(word, 38, 16)
    w.set(word, np.uint64(w.machine.constants[bank, offset]), active)


OPERATIONS: dict[int, Callable[[Warp, int, np.ndarray], None]] = {
    **dict.fromkeys((0x918, 0x9C8), lambda w, word, active: None),  # NOP, USETMAXREG
    0x81C: lambda w, word, active: w.set_predicate(word, active, active),  # who asks, is given
    0x805: _clock,
    0x919: _special,
    0x9C3: _special_uniform,
    **dict.fromkeys((0x2A4, 0x8A4), _multiply_uniform),
    0x291: _scaled_uniform,
    0x892: _masked_uniform,
    0x28C: _below_uniform,
    0x287: _choose_uniform,
    0xE25: _uniform_pair,
    0xAB9: _constant,
    0x424: lambda w, word, active: w.set(word, bits(word, 32, 32), active),
    0x224: lambda w, word, active: w.set(
        word, w.reg(word, 24) * w.reg(word, 32) + w.reg(word, 64), active
    ),
    0x82F: _elect,
    0xB82: _load_constant,
    0x20C: _below_other,
    0x806: _vote,
    0xC11: _scaled,
    0x211: _scaled_own,
    0x890: lambda w, word, active: w.set_uniform(word, w.counted(word) + bits(word, 32, 32)),
    0xC82: lambda w, word, active: w.set_uniform(word, w.uniform(word, 32)),
    0xE24: lambda w, word, active: w.set(word, w.uniform(word, 32), active),
    0x2CA: lambda w, word, active: w.set_uniform(word, int(w.reg(word, 24)[0])),
    0x3C2: _late_to_uniform,
    0x7AC: _constant,
    0xA02: _move_constant,
    0x802: lambda w, word, active: w.set(word, bits(word, 32, 32), active),
    0x202: lambda w, word, active: w.set(word, w.reg(word, 32), active),
    0xC02: lambda w, word, active: w.set(word, w.uniform(word, 32), active),
    **dict.fromkeys((0x836, 0x810, 0x835), _add),
    0x819: lambda w, word, active: w.set(
        word, w.reg(word, 64) >> np.uint64(bits(word, 32, 5)), active
    ),
    0x219: _shift,
    0x816: _permute,
    **dict.fromkeys((0x212, 0x812, 0xC12), _select),
    0x824: lambda w, word, active: w.set(
        word, w.reg(word, 24) * np.uint64(bits(word, 32, 32)) + w.reg(word, 64), active
    ),
    0xC36: lambda w, word, active: w.set(
        word, w.reg(word, 24) + np.uint64(w.uniform(word, 32)), active
    ),
    0xC0C: _below,
    0x80C: _compared,
    0x803: _save,
    0x807: _choose,
    0x986: _store,
    0x98E: _count_up,
    0x9A8: _count,
}
