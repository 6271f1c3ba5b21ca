"""Functions that are imported when they are first called, so that declaring the table loads no NumPy."""

from __future__ import annotations

import importlib
from typing import Any


class lazy:  # noqa: N801 - used as a function
    """`lazy("movement.meaning", "pad")` is the function `pad` of `hlo_opt.ops.movement.meaning`."""

    __slots__ = ("_found", "_module", "_name")

    def __init__(self, module: str, name: str) -> None:
        self._module = module
        self._name = name
        self._found: Any = None

    def resolve(self) -> Any:
        """The function itself, or whatever bears the name; imports its module."""
        if self._found is None:
            self._found = getattr(importlib.import_module(f"hlo_opt.ops.{self._module}"), self._name)
        return self._found

    def __call__(self, *arguments: Any) -> Any:
        return self.resolve()(*arguments)
