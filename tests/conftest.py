"""Options and fixtures that all tests share."""

from __future__ import annotations

import gc
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# Tests use `scripts`, which is never installed. Last on the path, so that an installed hlo_opt is the one that is
# tested.
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))

pytest_plugins = ["hlo_opt.pytest_plugin", "pytester"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run every case of a sweep, not each third one")
    parser.addoption("--update-golden", action="store_true", help="write all golden files anew instead of comparing")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "sweep: of many cases of one kind each third is run, all of them with --all")
    if config.getoption("--update-golden"):
        config.option.hlo_opt_update = True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out two of three cases of each sweep, unless they were named."""
    if config.getoption("--all") or any("::" in argument for argument in config.args):
        return
    count: Counter[str] = Counter()
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        function = item.nodeid.partition("[")[0]
        is_kept = item.get_closest_marker("sweep") is None or count[function] % 3 == 0
        count[function] += 1
        (kept if is_kept else left).append(item)
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = kept


def pytest_collection_finish() -> None:
    """What was imported and collected stays: the garbage collector need not go through it again and again, which takes
    a tenth of the time of short tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


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


@pytest.fixture
def fake_plugins(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., None]]:
    """Installs packages that have entry points and nothing else:
    `fake_plugins(GROUP, package="fake", NAME="module:object")`."""
    from hlo_opt.diag.plugins import forget_plugins

    groups: dict[tuple[str, str], dict[str, str]] = {}
    folders: dict[str, Path] = {}

    def install(group: str, package: str = "fake", **entries: str) -> None:
        if package not in folders:
            folders[package] = tmp_path_factory.mktemp(package)
            monkeypatch.syspath_prepend(str(folders[package]))
        groups.setdefault((package, group), {}).update(entries)
        information = folders[package] / f"{package}-1.0.dist-info"
        information.mkdir(exist_ok=True)
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        rows = []
        for (owner, name), declared in groups.items():
            if owner == package:
                rows += [f"[{name}]", *(f"{key} = {value}" for key, value in declared.items()), ""]
        (information / "entry_points.txt").write_text("\n".join(rows))
        forget_plugins()

    yield install
    monkeypatch.undo()
    forget_plugins()


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, also in a run that a shell started in the background, which it tells to ignore
    it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
