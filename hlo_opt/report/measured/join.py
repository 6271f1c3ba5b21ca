"""Measured times joined with the kernels of a module: by the name of the instruction, else by the symbol that XLA:GPU
makes of it (`.` and `-` become `_`)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hlo_opt.fusion.summary import ModuleSummary
from hlo_opt.ir import Module
from hlo_opt.report.measured.events import Profile, Runs

_NO_SYMBOL = re.compile(r"[^A-Za-z0-9_]")


@dataclass(frozen=True)
class Joined:
    """The measured times of a module's kernels, by instruction, in one execution of the module.

    microseconds  of each measured kernel, all its runs of an execution together
    missing       kernels of the module without a measured time
    strange       names in the profile that the module does not have, with their microseconds, the longest first
    executions    how often the module ran
    """

    microseconds: Mapping[str, float]
    missing: list[str]
    strange: Mapping[str, float]
    executions: int
    modules: list[str] = field(default_factory=list)

    @property
    def total(self) -> float:
        return sum(self.microseconds.values())

    @property
    def kernels(self) -> int:
        """The number of the module's kernels."""
        return len(self.microseconds) + len(self.missing)

    @property
    def share(self) -> float:
        """The share of the kernels that has a measured time."""
        return len(self.microseconds) / self.kernels if self.kernels else 1.0


def symbol(name: str) -> str:
    """The kernel's symbol that XLA:GPU makes of an instruction's name."""
    return _NO_SYMBOL.sub("_", name)


def join(module: Module, figures: ModuleSummary, profile: Profile) -> Joined:
    """Look up the kernels of a module in a profile. `figures` names the kernels."""
    events, executions = profile.of(module.name)
    kernels = list(dict.fromkeys(one.instruction for one in figures.launched))
    known = set(kernels)
    others = {i.name for c in module.computations for i in c.instructions} - known
    by_symbol = _by_unique_symbol(kernels)
    by_name: dict[str, Runs] = {}
    strange: dict[str, Runs] = {}
    for name, runs in events.items():
        kernel = name if name in known else by_symbol.get(symbol(name.removeprefix("%")))
        if kernel is not None:
            by_name.setdefault(kernel, Runs()).add(runs.us, runs.count)
        elif name not in others:
            strange.setdefault(name, Runs()).add(runs.us, runs.count)
    executions = executions or _usual(runs.count for runs in by_name.values())
    spent = {name: by_name[name].us / executions for name in kernels if name in by_name}
    left = sorted(strange.items(), key=lambda item: (-item[1].us, item[0]))
    return Joined(
        spent,
        [name for name in kernels if name not in by_name],
        {name: runs.us / executions for name, runs in left},
        executions,
        sorted(profile.modules),
    )


def _by_unique_symbol(kernels: Iterable[str]) -> dict[str, str]:
    """The kernels by symbol, without symbols that several kernels share."""
    names = list(kernels)
    often = Counter(map(symbol, names))
    return {symbol(name): name for name in names if often[symbol(name)] == 1}


def _usual(counts: Iterable[int]) -> int:
    """The most frequent number of runs: most kernels run once in each execution of the module."""
    often = Counter(counts)
    return max(often, key=lambda count: (often[count], -count), default=1) or 1
