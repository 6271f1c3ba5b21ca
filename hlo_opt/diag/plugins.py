"""What installed packages add through entry points, and one error that names the package when it cannot be used.

An entry point is `NAME = "module:object"` in a group such as `hlo_opt.passes`. What the object must be is said where the group is read.
"""

from __future__ import annotations

import functools
import traceback
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

from hlo_opt.diag.errors import UsageError

PASSES = "hlo_opt.passes"
CHOICES = "hlo_opt.choices"
REASONS = "hlo_opt.reasons"

BROKEN = "HLO310"
DUPLICATE = "HLO311"


@dataclass(frozen=True)
class Plugin:
    """One entry point: its group and name, `module:object`, and the package (with its version) that declares it."""

    group: str
    name: str
    value: str
    package: str

    def load(self) -> object:
        """The object. Raises UsageError (HLO310), which names the plugin, when it cannot be imported."""
        from importlib import metadata

        try:
            return metadata.EntryPoint(self.name, self.value, self.group).load()
        except Exception as error:
            raise self.broken(f"cannot be loaded: {told(error)}") from error

    def broken(self, why: str) -> UsageError:
        """The error that says what is wrong with this plugin."""
        return UsageError(
            f"plugin {self.name!r} ({self.value}, from {self.package}) {why}",
            code=BROKEN,
            hint=f"it is an entry point of the group {self.group}; mend or uninstall {self.package}",
        )


def told(error: Exception) -> str:
    """An exception of a plugin in one line, with the file and line that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    text = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}{': ' if text else ''}{text}{place}"


def plugins(group: str, taken: Container[str] = ()) -> list[Plugin]:
    """The plugins of a group by name. Raises UsageError (HLO311) for a name that two of them, or the program (`taken`) and one of them, declare."""
    found = _installed(group)
    for before, plugin in zip((None, *found), found, strict=False):
        if plugin.name in taken:
            owner = "hlo-opt itself"
        elif before is not None and before.name == plugin.name:
            owner = before.package
        else:
            continue
        raise UsageError(
            f"plugin {plugin.name!r} ({plugin.value}, from {plugin.package}) has a name that {owner} declares already",
            code=DUPLICATE,
            hint=f"names in the group {group} must differ; rename it or uninstall one of the two",
        )
    return found


@functools.cache
def _installed(group: str) -> list[Plugin]:
    from importlib import metadata  # takes a while, and not every command asks

    found = {
        Plugin(
            group, e.name, e.value, f"{e.dist.name} {e.dist.version}" if e.dist is not None else "an unnamed package"
        )
        for e in metadata.entry_points(group=group)
    }
    return sorted(found, key=lambda p: (p.name, p.package, p.value))


def forget_plugins() -> None:
    """Look at what is installed again, when it is next asked for."""
    _installed.cache_clear()
