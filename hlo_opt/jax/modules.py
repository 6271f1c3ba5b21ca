"""Jitted functions as modules."""

from __future__ import annotations

from typing import Protocol, TypeAlias

from jax.typing import ArrayLike
from jaxlib import _hlo

from hlo_opt.fusion.decision import Decisions
from hlo_opt.ir import Module
from hlo_opt.passes import ExplainReport, report_on, run
from hlo_opt.passes import fuse as fuse_module
from hlo_opt.text import parse

Tree: TypeAlias = "ArrayLike | tuple[Tree, ...] | list[Tree] | dict[str, Tree] | None"
"""An argument: a pytree of arrays."""


class _Lowered(Protocol):
    def compiler_ir(self, dialect: str) -> _hlo.XlaComputation: ...


class Jitted(Protocol):
    """The result of `jax.jit`."""

    def lower(self, *args: Tree, **kwargs: Tree) -> _Lowered: ...


def lower(jitted: Jitted, *args: Tree, **kwargs: Tree) -> Module:
    """The module that JAX passes to XLA for these arguments, with Python lines and the values of constants. Raises what
    JAX raises."""
    options = _hlo.HloPrintOptions()
    options.print_large_constants = True
    return parse(jitted.lower(*args, **kwargs).compiler_ir("hlo").get_hlo_module().to_string(options))


def fuse(jitted: Jitted, *args: Tree, preset: str = "default", **kwargs: Tree) -> tuple[Module, Decisions]:
    """The fused module, and the decisions. Raises what `lower` and `hlo_opt.fuse` raise."""
    return fuse_module(lower(jitted, *args, **kwargs), preset)


def explain(jitted: Jitted, *args: Tree, preset: str = "default", **kwargs: Tree) -> ExplainReport:
    """The decision on every edge of the module, as in `hlo-opt explain`. Raises what `fuse` raises."""
    return report_on(run(lower(jitted, *args, **kwargs), preset))
