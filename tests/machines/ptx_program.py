"""PTX text to instructions: the kernel's body, with a name of its own per register and scope."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

_COMMENT = re.compile(r"//.*")
_ENTRY = re.compile(r"\.entry\s+\S+?\s*\((?P<params>[^)]*)\)[^{]*\{(?P<body>.*)", re.DOTALL)
_PARAM = re.compile(r"(\w+)\s*(?:,|$)")
_TOKEN = re.compile(
    r"\s*(?:(?P<open>\{)|(?P<close>\})|(?P<label>[$\w]+):|(?P<statement>(?:\{[^{}]*\}|[^;{}])+);)"
)
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s][^,]*")
_NAME = re.compile(r"(?<![%$\w.])[a-zA-Z_]\w*")
_SKIPPED = (".loc", ".file", ".section", ".pragma")


class FaultError(Exception):
    """The program did what no correct program does, or what this machine can't."""


@dataclass(frozen=True)
class Instruction:
    """One instruction; ``guard`` is a predicate register and the value that lets it run."""

    name: str  # "st"
    types: tuple[str, ...]  # ("global", "v4", "b32")
    operands: tuple[str, ...]  # ("[a+16]", "{%r1, %r2, t@3, 7}")
    guard: tuple[str, bool] | None
    text: str
    scopes: tuple[int, ...]  # the braces around it, outermost first


class Program:
    """A kernel's instructions, the position of each label, and the index of each parameter."""

    def __init__(self, ptx: str) -> None:
        lines = [_COMMENT.sub("", line) for line in ptx.splitlines()]
        kept = "\n".join(line for line in lines if not line.strip().startswith(_SKIPPED))
        entry = _ENTRY.search(kept)
        if entry is None:
            raise FaultError("the text has no kernel entry")
        self.params = {name: i for i, name in enumerate(_PARAM.findall(entry["params"]))}
        self.instructions: list[Instruction] = []
        self._labels: dict[tuple[int, str], int] = {}
        self._scopes: list[dict[str, str]] = [{}]
        self._open = [0]
        self._numbers = itertools.count()
        self._parse(entry["body"])

    def _parse(self, body: str) -> None:
        at = 0
        while self._scopes:  # until the brace that closes the kernel
            token = _TOKEN.match(body, at)
            if token is None:
                raise FaultError(f"not PTX: {body[at : at + 60]!r}")
            at = token.end()
            if token["open"]:
                self._scopes.append({})
                self._open.append(next(self._numbers))
            elif token["close"]:
                self._scopes.pop()
                self._open.pop()
            elif token["label"]:
                self._labels[self._open[-1], token["label"]] = len(self.instructions)
            elif token["statement"].strip().startswith(".reg"):
                self._declare(token["statement"])
            else:
                self.instructions.append(self._instruction(token["statement"].strip()))

    def _instruction(self, text: str) -> Instruction:
        head, *rest = text.split(None, 1)
        guard = None
        if head.startswith("@"):
            register = head.lstrip("@!")
            guard = (self._scoped(register), not head.startswith("@!"))
            head, *rest = rest[0].split(None, 1)
        operands = [self._scoped(part.strip()) for part in _OPERAND.findall("".join(rest))]
        name, *types = head.split(".")
        scopes = tuple(self._open)
        return Instruction(name, tuple(types), tuple(operands), guard, text, scopes)

    def target(self, branch: Instruction) -> int:
        """Return where a branch leads: to the label in the innermost scope that has it."""
        for scope in reversed(branch.scopes):
            if (scope, branch.operands[0]) in self._labels:
                return self._labels[scope, branch.operands[0]]
        raise FaultError(f"no such label: {branch.text}")

    def _declare(self, text: str) -> None:
        for name in re.split(r"[,\s]+", text.split(None, 2)[2].strip()):
            if "<" in name:  # the compiler's own, unique in the function: %r<20>
                continue
            if name in self._scopes[-1]:
                raise FaultError(f"register {name} is declared twice in one scope")
            self._scopes[-1][name] = f"{name}@{next(self._numbers)}"

    def _scoped(self, operand: str) -> str:
        """Replace the names of declared registers by those of the innermost scope."""

        def replace(match: re.Match[str]) -> str:
            found = (scope[match[0]] for scope in reversed(self._scopes) if match[0] in scope)
            return next(found, match[0])

        return _NAME.sub(replace, operand)
