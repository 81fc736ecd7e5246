"""The model, compiled once."""

import pytest

from tests.backends.driver.model.building import Built, build


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The model of the driver, the library before it, and random programs."""
    return build(tmp_path_factory.mktemp("model"))
