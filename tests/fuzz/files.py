"""Trace files that were damaged, or made to do damage."""

from random import Random


def attempt(random: Random) -> str:
    raise NotImplementedError
