"""Passes that write operations which no kernel computes as operations that kernels compute."""

from __future__ import annotations

from dataclasses import dataclass

from hlo_opt.ir import Module
from hlo_opt.passes.base import Pass


@dataclass(frozen=True)
class Expansion(Pass):
    """A pass that tells whether it has anything to look at: whoever must keep the module as it is copies it only then."""

    def concerns(self, module: Module) -> bool:
        """Whether the module has operations of the kind. The pass may still leave them as they are."""
        raise AssertionError(f"{type(self).__name__} does not define concerns")
