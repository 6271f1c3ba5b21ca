"""Reports on modules: explanations, comparisons, pages. The package can be called: `hlo_opt.report(module)` is a
report that notebooks show."""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hlo_opt.ir import Module
    from hlo_opt.report.notebook import Report


class _Callable(types.ModuleType):
    """The package, with a meaning for calls: the name `hlo_opt.report` is both."""

    def __call__(
        self,
        module: Module | str,
        *,
        preset: str = "default",
        target: str | None = None,
        source_root: str | None = None,
    ) -> Report:
        """Fuse a module, or a text, and report on it: see `hlo_opt.report.notebook.report`."""
        from hlo_opt.report.notebook import report

        return report(module, preset=preset, target=target, source_root=source_root)


sys.modules[__name__].__class__ = _Callable
