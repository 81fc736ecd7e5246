"""Why the library can't come before the driver, where that is there already."""

import pytest

from ikp.backends.driver import _library
from ikp.errors import PatchError

pytestmark = pytest.mark.any_pins

DRIVER = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95"


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ([DRIVER], "Start the program with `ikp run`"),
        (
            [DRIVER, "/usr/local/cuda/compute-sanitizer/libInterceptorInjectionTarget.so"],
            "compute-sanitizer has loaded the CUDA driver before Python began",
        ),
        (
            [DRIVER, "/usr/local/cuda/compute-sanitizer/libsanitizer-public.so"],
            "Run the program under one of the two",
        ),
    ],
)
def test_who_has_loaded_it_is_told(
    files: list[str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_library, "mapped", lambda: files)
    monkeypatch.setattr(_library, "_loaded", [])
    with pytest.raises(PatchError, match=words):
        _library.install()
