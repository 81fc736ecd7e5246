"""Which language's code calls a verb: each that the program has imported is asked in turn.

``import ikp`` does in a kernel of any language, so a verb has to find its own by how it is called.
What the sign is, each language's backend knows (docs/decisions/0008, 0026); nothing that the
program has not imported is loaded to ask.
"""

from __future__ import annotations

from typing import Any

from ikp import registry
from ikp.errors import KernelError
from ikp.verbs.dsl import Dsl
from ikp.verbs.off import Off


def tracing(semantic: Any, verb: str) -> Dsl:
    """Return the adapter of the language whose code calls a verb.

    Args:
        semantic: what the caller handed the verb beside its arguments, as Triton and Gluon do.
        verb: its name.

    Raises:
        KernelError: none of them does.
    """
    guess: Dsl | None = None
    for backend in registry.imported():
        found: Dsl | None = backend.adapter(semantic, verb)
        if found is not None and not isinstance(found, Off):
            return found
        guess = guess or found  # one that can't be recorded, and may be none of that language
    if guess is None:
        raise _outside(verb)
    return guess


def _outside(verb: str) -> KernelError:
    *most, last = dict.fromkeys(each.mark for each in registry.languages() if each.mark)
    broken = "".join(f" Not loaded: {text}" for text in registry.broken())
    return KernelError(
        f"ikp.{verb} is called outside a kernel. Call it in a function marked {', '.join(most)} or "
        f"{last}, while that kernel is launched.{broken}"
    )
