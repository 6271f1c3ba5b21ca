"""Which module of a folder that XLA dumped into is taken, and why the other files are not: by the names that XLA gives
its files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from hlo_opt.cli import failure
from hlo_opt.cli.mistaken import SHOWN, beside_folder
from hlo_opt.diag import UsageError

_XLA = re.compile(
    r"(?P<program>module_\d+\..+?)\."
    r"(?:(?P<before>before_optimizations)|(?P<after>(?:sm_[\d.]+_gpu_|\w*)after_optimizations)|(?P<number>\d{4,})\..+"
    r"|(?P<snapshot>(?:execution_\d+\.hlo_unoptimized_)?snapshot(?:\.-?\d+)?(?=\.pb)))"
    r"\.(?:txt|hlo|hlo\.pb|pb)(?:\.gz)?"
)
_OTHER = re.compile(r".+\.(?:hlo|mlir|mlirbc|hlo\.pb|jaxexport|jax_export)(?:\.gz)?")
_STAGES = {
    "before": "before XLA's optimisations",
    "after": "after XLA's optimisations",
    "snapshot": "a snapshot",
    "number": "after one of XLA's passes",
}
"""What a name says, those first that are taken first."""


@dataclass(frozen=True)
class _Dumped:
    """A module in the folder: its program, and the stage that it is of."""

    path: Path
    program: str
    stage: str

    @property
    def order(self) -> tuple[int, bool, str]:
        """Text comes before binary."""
        return list(_STAGES).index(self.stage), ".pb" in self.path.suffixes, self.path.name


def chosen(folder: Path) -> Path:
    """The module in a folder to read: of the largest program the one before XLA's optimisations, where there is one.
    Reports on stderr which file it took and which it left.

    Raises UsageError where there is none, or several whose names say nothing; OSError for a folder that cannot be read.
    """
    names = sorted(p for p in folder.iterdir() if p.is_file())
    dumped = [_dumped(p) for p in names]
    modules = [d for d in dumped if d is not None]
    if not modules:
        return _only(folder, names)
    firsts: dict[str, _Dumped] = {}
    for each in sorted(modules, key=lambda d: d.order):
        firsts.setdefault(each.program, each)
    choice = max(firsts.values(), key=lambda d: d.path.stat().st_size)
    failure.say(f"{folder}: takes {choice.path.name}, {_STAGES[choice.stage]}")
    for line in _left(choice, modules, firsts, len(names) - len(modules)):
        failure.say(f"  left: {line}")
    return choice.path


def every(folder: Path) -> list[Path]:
    """The modules in a folder that are programs of their own, by name: of each program that XLA dumped the one before
    its optimisations, where there is one, and every other file of a module.

    Raises UsageError where there is none, OSError for a folder that cannot be read.
    """
    names = sorted(p for p in folder.iterdir() if p.is_file())
    dumped = sorted((d for p in names if (d := _dumped(p)) is not None), key=lambda d: d.order)
    firsts: dict[str, Path] = {}
    for each in dumped:
        firsts.setdefault(each.program, each.path)
    others = [p for p in names if _dumped(p) is None and _OTHER.fullmatch(p.name)]
    if not firsts and not others:
        raise UsageError("is a folder without a module", filename=str(folder), hint=beside_folder(folder))
    return sorted([*firsts.values(), *others])


def _dumped(path: Path) -> _Dumped | None:
    match = _XLA.fullmatch(path.name)
    if match is None:
        return None
    return _Dumped(path, match["program"], next(stage for stage in _STAGES if match[stage]))


def _left(choice: _Dumped, modules: list[_Dumped], firsts: dict[str, _Dumped], others: int) -> list[str]:
    """Why the other files of a folder are not taken, a line for each reason."""
    lines = []
    for stage, title in _STAGES.items():
        same = [d.path.name for d in modules if d.program == choice.program and d.stage == stage and d is not choice]
        if same:
            lines.append(f"{_names(same)}: {title}")
    smaller = [d.path.name for d in firsts.values() if d is not choice]
    if smaller:
        lines.append(f"{_names(smaller)}: of {len(smaller)} smaller program{'s' * (len(smaller) > 1)}")
    if others:
        lines.append(f"{others} file{'s' * (others > 1)} without a module")
    return lines


def _only(folder: Path, names: list[Path]) -> Path:
    candidates = [p for p in names if _OTHER.fullmatch(p.name)]
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        raise UsageError(
            f"is a folder with {len(candidates)} modules",
            filename=str(folder),
            hint=f"name one: {_names([p.name for p in candidates])}",
        )
    raise UsageError("is a folder without a module", filename=str(folder), hint=beside_folder(folder))


def _names(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
