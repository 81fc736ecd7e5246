import pytest

from ikp.errors import UsageError
from ikp.patterns import choose, dotted


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [
        ("load", ["load"]),
        ("lo*", ["lo*"]),
        ("load[0]", ["load[0]"]),
        ("load[1]", ["load1"]),
        (["load?", "dot"], ["load0", "load1", "dot"]),
        (lambda name: "[" in name, ["load[0]"]),
    ],
)
def test_a_pattern_is_a_glob_and_a_name_as_written_goes_first(wanted, chosen):
    names = ["load", "load[0]", "load0", "load1", "lo*", "dot"]
    picked = choose(names, wanted, "region")
    assert [name for name, yes in zip(names, picked, strict=True) if yes] == chosen


def test_what_matches_nothing_is_told_with_what_there_is():
    with pytest.raises(UsageError, match="no region matches 'Load'; there are: 'dot', 'load'"):
        choose(["load", "dot", "load"], "Load", "region")
    with pytest.raises(UsageError, match=r"'n19' and 80 more\.$"):
        choose([f"n{i:02}" for i in range(100)], "x", "region")
    with pytest.raises(UsageError, match="chosen by a pattern like 'load\\*', not by 3"):
        choose(["load"], [3], "region")
    assert choose([], "x", "region") == []


@pytest.mark.parametrize(
    ("pattern", "yes"),
    [
        ("mm", ["ops.mm"]),
        ("*mm*", ["ops.mm", "ops.mm_2", "mm.k"]),
        ("ops.*", ["ops.mm", "ops.mm_2"]),
        ("ops.mm", ["ops.mm"]),
        ("(", []),
    ],
)
def test_a_kernel_goes_by_its_name_or_with_its_module(pattern, yes):
    names = ["ops.mm", "ops.mm_2", "mm.k", "k"]
    assert [name for name in names if dotted(pattern).search(name)] == yes
