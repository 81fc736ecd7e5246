"""``Tracer``: values followed back to the instructions that define them, on every path."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ikp.sass.control_flow.flow import Edge, Flow
from ikp.sass.control_flow.graph import inverse
from ikp.sass.disassembly.listing import Instruction
from ikp.sass.disassembly.values import Definition, ValueOrigin, constant, definitions

Place = str | int
"""The register of a value ("R7"), or the index of the instruction that defines it, once found."""

_Facts = frozenset[str]
"""Guards that are known to hold on a path: "P0", "!P1"."""

_NO_FACTS: _Facts = frozenset()
_PREDICATE = re.compile(r"U?P\d")


class _State(NamedTuple):
    """The places of the values right before instruction ``at``, on a path to the traced one."""

    at: int
    places: tuple[Place, ...]
    facts: _Facts

    @property
    def done(self) -> bool:
        """Whether every value's origin is found."""
        return str not in map(type, self.places)


_States = dict[_State, list[tuple[int, _State]]]
"""State -> the states that follow, on the way to the traced instruction; with each the end of the
instructions up to there: one, or several in a row that concern no value and no guard."""


class OriginStep(NamedTuple):
    """Instructions that are executed one after the other, and the values' places around them."""

    instructions: range
    before: tuple[Place, ...]
    after: tuple[Place, ...]


@dataclass(frozen=True)
class Origins:
    """All paths back that were found: the states, and the successors of each."""

    states: _States

    @cached_property
    def found(self) -> set[tuple[Place, ...]]:
        """The instructions that define the values, for each combination of them."""
        return {state.places for state in self.states if state.done}

    def way(self, places: tuple[Place, ...]) -> Iterator[OriginStep]:
        """Yield each step of the paths from where ``places`` were all defined."""
        work = [state for state in self.states if state.places == places]
        seen = set(work)
        while work:
            state = work.pop()
            for end, after in self.states[state]:
                yield OriginStep(range(state.at, end), state.places, after.places)
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
        key = at, places
        if key not in self._answers:
            states: _States = {}
            deque(self._explored(at, places, states, {}), maxlen=0)
            self._answers[key] = Origins(states)
        return self._answers[key]

    def are_clocks(self, at: int, place: str) -> bool:
        """Return whether a value comes from clock reads alone, as instruction ``at`` reads it.

        A kernel's own stores are many, and so are its exits: the first other origin ends a search,
        and no search goes twice where one has been.
        """
        known = self._verdicts.setdefault(self._deciding((place,)), {})
        states: _States = {}
        ends = []
        for state in self._explored(at, (place,), states, known):
            if not known.get(state, state.places[0] in self.clocks):
                known.update(dict.fromkeys(_onward(states, [state]), False))
                return False
            ends.append(state)
        known.update(dict.fromkeys(_onward(states, ends), True))
        return bool(ends)

    @cached_property
    def _verdicts(self) -> dict[_Facts, dict[_State, bool]]:
        """By the guards that decide: whether what comes to a state are clock reads alone."""
        return {}

    @cached_property
    def clocks(self) -> frozenset[Place]:
        """The instructions that read a clock."""
        return frozenset(
            at
            for at, defined in enumerate(self.defined)
            if any(each.origin is ValueOrigin.CLOCK for each in defined.values())
        )

    def _explored(
        self, at: int, places: tuple[str, ...], states: _States, known: Container[_State]
    ) -> Iterator[_State]:
        """Put all states into ``states``; yield the last ones: those that are done, or known."""
        deciding = self._deciding(places)
        start = _State(at, places, _known(self._instructions[at].guard, deciding))
        states[start] = []
        work = [start]
        while work:
            after = work.pop()
            if after in known or after.done:
                yield after
                continue
            for end, state in self._earlier(after, deciding):
                if state not in states:
                    states[state] = []
                    work.append(state)
                states[state].append((end, after))

    def _earlier(self, after: _State, deciding: _Facts) -> Iterator[tuple[int, _State]]:
        """Yield the states before one, with the end of the instructions between.

        In its basic block that is as far back as nothing concerns it.
        """
        first = self._straight(after)
        if first < after.at:
            yield after.at, _State(first, after.places, after.facts)
            return
        for edge in self.flow.before[after.at]:
            for state in self._step(after, edge, deciding):
                yield edge.source + 1, state

    def _straight(self, after: _State) -> int:
        """Return where the instructions begin that lead to a state straight, and change nothing."""
        graph = self.flow.graph
        first = graph.blocks[graph.block(after.at)].first
        names = [place for place in after.places if isinstance(place, str)]
        names += [fact.lstrip("!") for fact in after.facts]
        for name in names:
            last = self.last(after.at, name)
            if last is not None and last >= first:
                first = last + 1
        return first

    def last(self, at: int, name: str) -> int | None:
        """Return the last instruction before another that defines a place, or may change a guard.

        The last one by its place in the code; None where there is none.
        """
        where = self._concerning.get(name, ())
        number = bisect_left(where, at)
        return where[number - 1] if number else None

    @cached_property
    def _answers(self) -> dict[tuple[int, tuple[str, ...]], Origins]:
        return {}

    @cached_property
    def _concerning(self) -> dict[str, list[int]]:
        """Place or predicate -> the instructions that define the one, or may change the other."""
        found: dict[str, list[int]] = defaultdict(list)
        for at, (defined, changed) in enumerate(zip(self.defined, self._changed, strict=True)):
            for name in (*defined, *(fact for fact in changed if fact[0] != "!")):
                found[name].append(at)
        return dict(found)

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
        return [_changed(instruction) for instruction in self._instructions]

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


def _onward(states: _States, ends: list[_State]) -> set[_State]:
    """Return some states, and all that follow on the way to the traced instruction."""
    seen, work = {*ends}, [*ends]
    while work:
        new = {after for _, after in states[work.pop()]} - seen
        seen |= new
        work += new
    return seen


def _changed(instruction: Instruction) -> _Facts:
    """Return the facts on the predicates in an instruction's operands."""
    if "P" not in instruction.rest:
        return _NO_FACTS
    names = [name for each in instruction.operands for name in _PREDICATE.findall(each)]
    return frozenset(fact for name in names for fact in (name, f"!{name}")) if names else _NO_FACTS


def _known(guard: str, deciding: _Facts) -> _Facts:
    if not guard:
        return _NO_FACTS
    return frozenset([guard]) if guard.lstrip("!") in deciding else _NO_FACTS


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
