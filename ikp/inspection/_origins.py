"""``Tracer``: values followed back to the instructions that define them, on every path."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from ikp.sass.control_flow.flow import Edge, Flow
from ikp.sass.control_flow.graph import inverse
from ikp.sass.disassembly.listing import Instruction
from ikp.sass.disassembly.values import Definition, ValueOrigin, constant, definitions

Place = str | int
"""The register of a value ("R7"), or the index of the instruction that defines it, once found."""

_Facts = frozenset[str]
"""Guards that are known to hold on a path: "P0", "!P1"."""

_PREDICATE = re.compile(r"U?P\d")


@dataclass(frozen=True, slots=True)
class _State:
    """The places of the values right before instruction ``at``, on a path to the traced one."""

    at: int
    places: tuple[Place, ...]
    facts: _Facts

    @property
    def done(self) -> bool:
        """Whether every value's origin is found."""
        return all(isinstance(place, int) for place in self.places)


@dataclass(frozen=True)
class Origins:
    """All paths back that were found: the states, and the successors of each."""

    states: dict[_State, list[_State]]
    """State -> the states right after it, on the way to the traced instruction."""

    @property
    def found(self) -> set[tuple[Place, ...]]:
        """The instructions that define the values, for each combination of them."""
        return {state.places for state in self.states if state.done}

    def way(self, places: tuple[Place, ...]) -> Iterator[tuple[_State, _State]]:
        """Yield each step (before, after) of the paths from where ``places`` were all defined."""
        work = [state for state in self.states if state.places == places]
        seen = set(work)
        while work:
            state = work.pop()
            for after in self.states[state]:
                yield state, after
                if after not in seen:
                    seen.add(after)
                    work.append(after)


@dataclass(frozen=True)
class Tracer:
    """Traces values in one kernel."""

    flow: Flow

    def origins(self, at: int, places: tuple[str, ...]) -> Origins:
        """Return the origins of the values in ``places``, as instruction ``at`` reads them.

        A path that contradicts itself is left out: where code runs under a guard, a definition
        under that guard counts.
        """
        deciding = self._deciding(places)
        start = _State(at, places, _known(self._instructions[at].guard, deciding))
        states: dict[_State, list[_State]] = {start: []}
        work = [start]
        while work:
            after = work.pop()
            if after.done:
                continue
            for edge in self.flow.before[after.at]:
                for state in self._step(after, edge, deciding):
                    if state not in states:
                        states[state] = []
                        work.append(state)
                    states[state].append(after)
        return Origins(states)

    @cached_property
    def _instructions(self) -> tuple[Instruction, ...]:
        return self.flow.code.instructions

    @cached_property
    def defined(self) -> list[dict[str, Definition]]:
        """The definitions of each instruction."""
        return [definitions(instruction) for instruction in self._instructions]

    @cached_property
    def _made_of(self) -> dict[str, tuple[set[str], set[str]]]:
        """For each place, the predicates that guard its definitions, and their sources."""
        found: dict[str, tuple[set[str], set[str]]] = {}
        for instruction, defined in zip(self._instructions, self.defined, strict=True):
            for place, definition in defined.items():
                predicates, sources = found.setdefault(place, (set(), set()))
                sources.update(definition.sources)
                if instruction.guard:
                    predicates.add(instruction.guard.lstrip("!"))
        return found

    def _deciding(self, places: Iterable[str]) -> frozenset[str]:
        """Return the predicates that guard definitions of the values and of their sources.

        Facts about others would only multiply the states.
        """
        predicates: set[str] = set()
        seen: set[str] = set()
        work = list(places)
        while work:
            place = work.pop()
            if place not in seen:
                seen.add(place)
                guards, sources = self._made_of.get(place, ((), ()))
                predicates.update(guards)
                work += sources
        return frozenset(predicates)

    @cached_property
    def _changed(self) -> list[_Facts]:
        """The facts that cease to hold at each instruction: on any predicate in its operands."""
        found = []
        for instruction in self._instructions:
            names = [p for o in instruction.operands for p in _PREDICATE.findall(o)]
            found.append(frozenset(fact for p in names for fact in (p, f"!{p}")))
        return found

    def _step(self, after: _State, edge: Edge, deciding: _Facts) -> Iterator[_State]:
        """Yield the states before the instruction that ``edge`` comes from."""
        at, facts = edge.source, after.facts
        if inverse(edge.guard) in facts:
            return
        facts = (facts | _known(edge.guard, deciding)) - self._changed[at]
        guard = self._instructions[at].guard
        defined = self.defined[at]
        if not any(place in defined for place in after.places):
            yield _State(at, after.places, facts)
            return
        if inverse(guard) not in facts:
            with_guard = facts | _known(guard, deciding)
            for places in _before(after.places, defined, at):
                yield _State(at, places, with_guard)
        if guard and guard not in facts:
            yield _State(at, after.places, facts | _known(inverse(guard), deciding))


def _known(guard: str, deciding: _Facts) -> _Facts:
    return frozenset([guard] if guard.lstrip("!") in deciding else [])


def _before(
    places: tuple[Place, ...], defined: dict[str, Definition], at: int
) -> list[tuple[Place, ...]]:
    """Return the places of the values before an instruction; several if it selects."""
    ways: list[tuple[Place, ...]] = [()]
    for place in places:
        definition = defined.get(place) if isinstance(place, str) else None
        if definition is None:
            options: list[Place] = [place]
        elif definition.origin is ValueOrigin.COPY:
            options = [at if constant(s) is not None else s for s in definition.sources]
        else:
            options = [at]
        ways = [(*way, option) for way in ways for option in options]
    return ways
