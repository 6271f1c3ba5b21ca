"""Which files are golden files: those with a RUN line, and `NAME.hlo` next to a `NAME.golden.hlo` (or `.golden.txt`, `.golden.json`)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hlo_opt.cli.golden.commands import has_run_line
from hlo_opt.diag import UsageError

SUFFIX = ".hlo"
GOLDENS = (".golden.hlo", ".golden.txt", ".golden.json")


@dataclass(frozen=True)
class Case:
    """One file to test.

    path      the module, or a golden that has none
    root      the folder under test; a RUN line reads nothing outside it
    golden    the text that it must give; None where RUN and CHECK lines say all
    is_named  whether the user named the file itself, so that `--update` may write its first golden
    """

    path: Path
    root: Path
    golden: Path | None = None
    is_named: bool = False


def find_cases(names: Sequence[str]) -> list[Case]:
    """The cases of files and folders, each folder's in the order of their paths. Raises UsageError for a path that does not exist, and when there is no case."""
    found: dict[Path, Case] = {}
    for name in names:
        path = Path(name)
        try:
            is_folder, is_file = path.is_dir(), path.is_file()
        except ValueError:
            is_folder = is_file = False
        if not (is_folder or is_file):
            raise UsageError("no such file or folder", filename=name)
        for case in _in_folder(path) if is_folder else [named(path)]:
            found.setdefault(case.path, case)
    if not found:
        raise UsageError(
            "there is no golden file",
            filename=names[0] if len(names) == 1 else None,
            hint="a golden file is NAME.hlo with a `// RUN:` line, or with a NAME.golden.hlo next to it",
        )
    return list(found.values())


def named(path: Path) -> Case:
    """The case of a file that the user named: the module, or its golden."""
    module = _module_of(path) or path
    return Case(module if module.is_file() else path, path.parent, _golden_of(module), is_named=True)


def case_of(path: Path, root: Path) -> Case | None:
    """The case of a file that was found; None for one that is no golden file."""
    if not path.name.endswith(SUFFIX) and not path.name.endswith(GOLDENS):
        return None
    if not path.is_file():
        return None
    module = _module_of(path)
    if module is not None:
        return None if module.is_file() else Case(path, root, path)
    golden = _golden_of(path)
    if golden is None and not _asks(path):
        return None
    return Case(path, root, golden)


def _in_folder(root: Path) -> Iterator[Case]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f != "__pycache__")
        for name in sorted(names):
            case = case_of(Path(folder) / name, root)
            if case is not None:
                yield case


def _module_of(path: Path) -> Path | None:
    """The module that a golden belongs to, whether or not it exists; None for a path that is no golden."""
    for suffix in GOLDENS:
        if path.name.endswith(suffix) and len(path.name) > len(suffix):
            return path.with_name(path.name[: -len(suffix)] + SUFFIX)
    return None


def _golden_of(module: Path) -> Path | None:
    stem = module.name.removesuffix(SUFFIX)
    goldens = [module.with_name(stem + suffix) for suffix in GOLDENS]
    return next((g for g in goldens if g.is_file()), None)


def first_golden(module: Path) -> Path:
    """Where the first golden of a module is written."""
    return module.with_name(module.name.removesuffix(SUFFIX) + GOLDENS[0])


def _asks(path: Path) -> bool:
    try:
        return has_run_line(path.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return True  # running it tells why it cannot be read
