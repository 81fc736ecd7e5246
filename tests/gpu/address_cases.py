"""Kernels of PTX whose addresses are known, and what each asks of memory, counted by hand."""

from __future__ import annotations

from dataclasses import dataclass

THREADS, BLOCKS, TURNS = 128, 16, 3
LANES, SECTOR, WORD, BANKS = 32, 32, 4, 32
NAMES = {4: "u32", 8: "u64", 16: "v2.u64", 2: "u16", 1: "u8"}


@dataclass(frozen=True)
class Case:
    """A kernel with one access, of lanes below ``below`` whose number ``every`` divides.

    A lane's address is ``lane * step + lane // group * skip + beyond``, and further by block and
    warp in global memory, by ``turn`` for each turn of a loop.
    """

    name: str
    space: str
    kind: str
    width: int = 4
    step: int = 4
    group: int = 1
    skip: int = 0
    beyond: int = 0
    below: int = 32
    every: int = 1
    turn: int = 0

    @property
    def lanes(self) -> list[int]:
        return [lane for lane in range(LANES) if lane < self.below and lane % self.every == 0]

    @property
    def addresses(self) -> list[int]:
        """Of one request, from a multiple of 4096 bytes on."""
        return [
            lane * self.step + lane // self.group * self.skip + self.beyond for lane in self.lanes
        ]

    @property
    def cost(self) -> int:
        """Sectors or wavefronts of one request."""
        if self.space == "global":
            return len({at // SECTOR for at in self.addresses})
        together = LANES * WORD // max(self.width, WORD)
        parts = [
            [a for lane, a in zip(self.lanes, self.addresses, strict=True) if lane // together == n]
            for n in range(LANES // together)
        ]
        return sum(map(self._wavefronts, parts))

    def _wavefronts(self, addresses: list[int]) -> int:
        words = {at // WORD + n for at in addresses for n in range(max(self.width // WORD, 1))}
        each = addresses if self.kind == "atomic" else [word * WORD for word in words]
        return max((sum(at // WORD % BANKS == b for at in each) for b in range(BANKS)), default=0)

    @property
    def same(self) -> int:
        """The most lanes with one address."""
        return max(map(self.addresses.count, self.addresses))

    @property
    def ptx(self) -> str:
        """The kernel: it takes memory, of which each block has 256 KiB, and each warp 64."""
        shared = self.space == "shared"
        base = "mov.u32 s13, room; add.u32 s9, s8, s13;" if shared else ""
        place = "[s9]" if shared else "[b]"
        wide = {16: "{v, w}", 8: "v"}.get(self.width, "s1")
        kind = f"volatile.{self.space}"
        what = {
            "load": f"ld.{kind}.{NAMES[self.width]} {wide}, {place};",
            "store": f"st.{kind}.{NAMES[self.width]} {place}, {wide};",
            "atomic": f"atom.{self.space}.add.u32 s1, {place}, s2;",
        }[self.kind]
        room = ".shared .align 1024 .b8 room[32768];" if shared else ""
        return f"""
.visible .entry {self.name}(.param .u64 p) .reqntid {THREADS}
{{
 .reg .u64 a, b, v, w; .reg .u32 s<20>; .reg .b16 h; .reg .pred q, r, t; {room}
 ld.param.u64 a, [p]; mov.u32 s2, %tid.x; mov.u32 s3, %ctaid.x; mov.u32 s10, 0;
 and.b32 s4, s2, 31; shr.u32 s5, s2, 5; mov.u64 v, 0; mov.u64 w, 0; mov.u32 s1, 0;
 div.u32 s6, s4, {self.group}; mul.lo.u32 s6, s6, {self.skip}; mad.lo.u32 s6, s4, {self.step}, s6;
 add.u32 s6, s6, {self.beyond}; rem.u32 s7, s4, {self.every};
 setp.eq.u32 q, s7, 0; setp.lt.and.u32 q, s4, {self.below}, q;
 shl.b32 s11, s3, 18; {"" if shared else "shl.b32 s12, s5, 16; add.u32 s11, s11, s12;"}
LOOP:
 .pragma "nounroll";
 mad.lo.u32 s8, s10, {self.turn}, s6;
 {base or "add.u32 s8, s8, s11;"}
 cvt.u64.u32 b, s8; add.u64 b, b, a;
 @q {what}
 add.u32 s10, s10, 1; setp.lt.u32 r, s10, {TURNS}; @r bra LOOP;
 cvt.u64.u32 b, s1; add.u64 v, v, b; add.u64 v, v, w;
 setp.eq.u64 t, v, 0x123456789; @t st.global.u64 [a], v;
 ret;
}}
"""


def _global(kind: str) -> list[Case]:
    return [
        Case(f"{kind}_next", "global", kind),
        Case(f"{kind}_second", "global", kind, step=8),
        Case(f"{kind}_apart", "global", kind, step=32),
        Case(f"{kind}_off", "global", kind, beyond=16),
        Case(f"{kind}_groups", "global", kind, step=4, group=8, skip=4064),
        Case(f"{kind}_even", "global", kind, every=2),
        Case(f"{kind}_few", "global", kind, below=5),
    ]


CASES = [
    *_global("load"),
    *_global("store")[1:5],
    Case("load_one", "global", "load", step=0),
    Case("load_wide", "global", "load", width=16, step=16),
    Case("load_wide_apart", "global", "load", width=8, step=64),
    Case("load_next_turns", "global", "load", turn=128),
    Case("store_wide", "global", "store", width=16, step=16),
    *[
        Case(f"shared_{kind}_{step}", "shared", kind, step=step)
        for kind, steps in (("load", (4, 8, 128, 132, 0, 64)), ("store", (4, 16, 128)))
        for step in steps
    ],
    Case("shared_load_wide", "shared", "load", width=16, step=16),
    Case("shared_load_wide_128", "shared", "load", width=16, step=128),
    Case("shared_load_few", "shared", "load", step=128, below=8),
    Case("atomic_next", "global", "atomic"),
    Case("atomic_groups", "global", "atomic", step=0, group=8, skip=4),
    Case("atomic_pairs", "global", "atomic", step=0, group=2, skip=64),
    Case("shared_atomic_groups", "shared", "atomic", step=0, group=4, skip=4),
]
