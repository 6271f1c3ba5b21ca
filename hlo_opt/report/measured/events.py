"""What a profile says of one name: how often it ran and how long all its runs took together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass
class Runs:
    """All runs of one name: how many, and their microseconds together."""

    count: int = 0
    us: float = 0.0

    def add(self, us: float, count: int = 1) -> None:
        self.count += count
        self.us += us


@dataclass
class Profile:
    """The events of a profile by module and name. `module` is empty where the profile does not say; `executions` holds
    how often each module ran, as far as the profile says."""

    events: dict[str, dict[str, Runs]] = field(default_factory=dict)
    executions: dict[str, set[int]] = field(default_factory=dict)

    def add(self, name: str, us: float, *, module: str = "", run: int | None = None, count: int = 1) -> None:
        """One event, or several of one name."""
        self.events.setdefault(module, {}).setdefault(name, Runs()).add(us, count)
        if run is not None:
            self.executions.setdefault(module, set()).add(run)

    def of(self, module: str) -> tuple[Mapping[str, Runs], int]:
        """The events of a module, and how often it ran (0 where the profile does not say); those that belong to no
        module, where the profile tells none apart."""
        if module in self.events:
            return self.events[module], len(self.executions.get(module, ()))
        return self.events.get("", {}), 0

    @property
    def modules(self) -> Iterable[str]:
        """The modules that the profile names."""
        return [name for name in self.events if name]
