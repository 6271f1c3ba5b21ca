"""The pytest plugin: golden files of HLO are tests, collected where a project asks for it and nowhere else.

    # pyproject.toml
    [tool.pytest.ini_options]
    hlo_opt_goldens = ["tests/goldens"]      # folders whose .hlo files are golden files; or `pytest --hlo-opt-goldens`
    for all

`pytest --hlo-opt-update` writes goldens that differ anew. The files and their RUN lines are those of `hlo-opt test`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from hlo_opt.cli.golden.commands import Case


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options and the setting. All have the program's name in theirs, for other plugins have goldens, too."""
    options = parser.getgroup("hlo-opt", "golden files of HLO")
    options.addoption(
        "--hlo-opt-goldens",
        action="store_true",
        help="collect .hlo files with RUN lines or goldens wherever pytest looks for tests",
    )
    options.addoption("--hlo-opt-update", action="store_true", help="write goldens of .hlo files that differ anew")
    parser.addini("hlo_opt_goldens", "folders whose .hlo files are golden files", type="paths", default=[])


def pytest_configure(config: pytest.Config) -> None:
    """Raises pytest.UsageError for a folder of the setting that does not exist: its tests would be lost unseen."""
    for folder in config.getini("hlo_opt_goldens"):
        if not folder.exists():
            raise pytest.UsageError(f"hlo_opt_goldens: there is no folder {shown(str(folder))}")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """A file of golden tests, for a golden file in a folder of the setting, or anywhere with the option."""
    if file_path.suffix not in (".hlo", ".txt", ".json"):
        return None
    root = _root(file_path, parent.config)
    if root is None:
        return None
    from hlo_opt.cli.golden.commands import case_of

    case = case_of(file_path, root)
    if case is None:
        return None
    collected: GoldenFile = GoldenFile.from_parent(parent, path=file_path)
    collected.case = case
    return collected


def _root(path: Path, config: pytest.Config) -> Path | None:
    """The folder under test that a file is in; None for one that is not asked for."""
    folders: list[Path] = config.getini("hlo_opt_goldens")
    inside = [folder for folder in folders if path.is_relative_to(folder)]
    if inside:
        return inside[0]
    return config.rootpath if config.getoption("--hlo-opt-goldens") else None


class GoldenFile(pytest.File):
    """A module with RUN lines or a golden: one test."""

    case: Case

    def collect(self) -> Iterator[pytest.Item]:
        """The one test of the file."""
        item: GoldenItem = GoldenItem.from_parent(self, name="golden" if self.case.golden is not None else "check")
        item.case = self.case
        yield item


class GoldenFailedError(Exception):
    """A golden file wants something else than what is printed."""


class GoldenItem(pytest.Item):
    """One golden file as a test."""

    case: Case

    def runtest(self) -> None:
        """Run the file. Raises GoldenFailedError with the difference."""
        from hlo_opt.cli.golden.execute import execute

        result = execute(self.case, update=bool(self.config.getoption("--hlo-opt-update")))
        if result.status == "failed":
            raise GoldenFailedError(shown(str(result)))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], *args: Any, **options: Any) -> Any:
        """The difference alone; a fault of the plugin itself with its traceback."""
        if isinstance(excinfo.value, GoldenFailedError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, *args, **options)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where the test is, and what it is called."""
        return self.path, None, f"hlo-opt {self.name}: {self.path.name}"


def shown(text: str) -> str:
    """A text from a module, safe for a terminal."""
    from hlo_opt.diag.errors import printable

    return "\n".join(map(printable, text.split("\n")))
