"""Keep the source lines of compiled PTX true around assembly blocks.

LLVM counts: it says that the n-th line of an assembly block comes from the n-th source line after
the block's own, and what follows the block without a line of its own then seems to come from there,
too. Debuggers, profilers and ``ikp inspect`` would show the wrong lines.
"""

from __future__ import annotations

BEGIN = "// begin inline asm"
FINISH = "// end inline asm"
LOCATION = ".loc"


def without_counted_lines(lines: list[str]) -> list[str]:
    """Return the lines without the locations inside assembly blocks: the block's own holds."""
    kept = []
    inside = False
    for line in lines:
        text = line.strip()
        inside = (inside or text == BEGIN) and text != FINISH
        if not (inside and text.startswith(LOCATION)):
            kept.append(line)
    return kept
