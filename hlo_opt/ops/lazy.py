"""Functions that are imported when they are first called, so that declaring the table loads no NumPy."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


class lazy:  # noqa: N801 - used as a function
    """`lazy("movement_numpy", "pad")` is the function `pad` of `hlo_opt.ops.movement_numpy`."""

    __slots__ = ("_found", "_module", "_name")

    def __init__(self, module: str, name: str) -> None:
        self._module = module
        self._name = name
        self._found: Callable[..., Any] | None = None

    def resolve(self) -> Callable[..., Any]:
        """The function itself; imports its module."""
        if self._found is None:
            found: Callable[..., Any] = getattr(importlib.import_module(f"hlo_opt.ops.{self._module}"), self._name)
            self._found = found
        return self._found

    def __call__(self, *arguments: Any) -> Any:
        return self.resolve()(*arguments)
