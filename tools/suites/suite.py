"""What a suite is: the tests of a public package, and how to run a part of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Role = Literal["develop", "judge"]
Venue = Literal["cpu", "gpu"]


@dataclass(frozen=True, slots=True)
class Suite:
    """Some tests of a package that uses Triton, CuTe or CUDA.

    ``folder`` is where pytest starts, in the folder of sources; empty for tests in the package's
    wheel. ``{scratch}`` in a value of ``environment`` is a folder that is new in each run. Of the
    tests that ``arguments`` select, one in ``sample`` runs, chosen by its name. A test that takes
    longer than ``limit`` seconds fails as timed out.
    """

    name: str
    role: Role
    venue: Venue
    source: str  # where the tests are from, for the reader
    packages: tuple[str, ...]  # whose versions the result depends on
    arguments: tuple[str, ...]
    folder: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()  # of ``ikp run``
    sample: int = 1
    limit: float = 60
