"""Entry points of installed packages. Errors name the package at fault.

An entry point is `NAME = "module:object"` in a group such as `hlo_opt.passes`. The reader of each group documents what
the object must be.
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
    """An entry point: its group and name, its value `module:object`, and the package and version that declare it."""

    group: str
    name: str
    value: str
    package: str

    def load(self) -> object:
        """Import the object. Raises UsageError (HLO310), which names the plugin, when that fails."""
        from importlib import metadata

        try:
            return metadata.EntryPoint(self.name, self.value, self.group).load()
        except Exception as error:
            raise self.broken(f"cannot be loaded: {error_text(error)}") from error

    def broken(self, why: str) -> UsageError:
        """The UsageError for this plugin; `why` completes the sentence."""
        return UsageError(
            f"plugin {self.name!r} ({self.value}, from {self.package}) {why}",
            code=BROKEN,
            hint=f"it is an entry point of the group {self.group}; fix or uninstall {self.package}",
        )


def error_text(error: Exception) -> str:
    """A plugin's exception in one line, with the file and line that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    text = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}{': ' if text else ''}{text}{place}"


def plugins(group: str, reserved: Container[str] = ()) -> list[Plugin]:
    """The plugins of a group, sorted by name. Raises UsageError (HLO311) for a name in `reserved` or declared by two of
    them."""
    installed = _installed(group)
    for before, plugin in zip((None, *installed), installed, strict=False):
        if plugin.name in reserved:
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
    return installed


@functools.cache
def _installed(group: str) -> list[Plugin]:
    from importlib import metadata  # slow to import, and few commands need it

    entries = {
        Plugin(
            group, e.name, e.value, f"{e.dist.name} {e.dist.version}" if e.dist is not None else "an unnamed package"
        )
        for e in metadata.entry_points(group=group)
    }
    return sorted(entries, key=lambda p: (p.name, p.package, p.value))


def forget_plugins() -> None:
    """Clear the cache, so that the next call reads what is installed."""
    _installed.cache_clear()
