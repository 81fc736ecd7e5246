"""What is asked of a patch before it is made."""

import pytest

from ikp.backends.patched import Launch, made
from ikp.core.abi import Language
from ikp.errors import PatchError
from ikp.unedited.plan import plan
from ikp.verbs.dsl import known
from tests.machine.compiled import code

pytestmark = [pytest.mark.compiled, pytest.mark.any_pins]


def test_the_environment_can_turn_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = code("matmul").compiled
    monkeypatch.setattr("ikp.verbs.dsl._names", {})  # other tests have a region of that name
    launch = Launch(plan(level="machine"), Language.TRITON, lambda *_: None)
    image = compiled.asm["cubin"]
    assert made(image, "matmul", "", launch, shared=0, shown="math::matmul").names[0] == "matmul"
    assert "math::matmul" in known().values()
    monkeypatch.setenv("IKP_PATCH", "0")
    with pytest.raises(PatchError, match="IKP_PATCH=0"):
        made(image, "matmul", "", launch, shared=0)


def test_a_refusal_names_the_kernel_as_people_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a mistake of ikp's is a refusal, too: the program goes on with the plain kernel."""
    compiled = code("matmul").compiled
    launch = Launch(plan(level="machine"), Language.TRITON, lambda *_: None)
    monkeypatch.setattr("ikp.machine.patch.frame", lambda *_: None)
    with pytest.raises(PatchError, match=r"^math::matmul<T> uses all"):
        made(compiled.asm["cubin"], "matmul", "", launch, shared=0, shown="math::matmul<T>")
    monkeypatch.setattr("ikp.machine.patch.Places", lambda *_: [].pop())
    with pytest.raises(
        PatchError, match=r"matmul could not be read \(IndexError: .*mistake of ikp"
    ):
        made(compiled.asm["cubin"], "matmul", "", launch, shared=0)
