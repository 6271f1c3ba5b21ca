"""Options and fixtures that all tests share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# Tests use `scripts`, which is never installed. Last on the path, so that an installed hlo_opt is the one that is tested.
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew instead of comparing")


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's top folder."""
    return ROOT


@pytest.fixture(scope="session")
def dumps() -> Path:
    """The folder with our own dumps."""
    return ROOT / "testdata" / "dumps"


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be written anew."""
    return bool(request.config.getoption("--update-golden"))
