"""The backends for regions. That for the CPU imports what builds kernels when it first builds some: most processes find
theirs in the cache."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from hlo_opt.jax.handler import handler

if TYPE_CHECKING:
    from hlo_opt.ir import Module


class _Handler(Protocol):
    def has(self, key: str) -> bool: ...


@dataclass(frozen=True)
class Backend:
    """A backend for regions.

    name      its name, and what else keys must contain
    handler   the FFI handler that runs regions by their keys
    build     (module, key, preset) -> estimated microseconds of our kernels and of XLA's. It builds the kernels and
              stores them under the key. Raises an HloOptError if there are none
    is_timed  whether verdicts come from runs on drawn data instead of estimates
    estimate  for estimates: module -> microseconds that a call of ours takes at least, and those of XLA's kernels
    memory    key -> bytes of scratch memory that a region's call has as its last result
    may_share whether calls may have results in the memory of their operands. In loops they have: a round's results
              lie where its state was. XLA has inserted the copies that its own instructions need, and inserts none
              after the hook
    keeps_donations  whether JAX keeps the donations of a module for which the hook gives something back
    """

    name: str
    handler: Callable[[], _Handler]
    build: Callable[[Module, str, str], tuple[float, float]]
    is_timed: bool = True
    estimate: Callable[[Module], tuple[float, float]] = lambda _: (0.0, math.inf)
    memory: Callable[[str], int] = lambda _: 0
    may_share: bool = False
    keeps_donations: bool = False


def _build(module: Module, key: str, preset: str) -> tuple[float, float]:
    from hlo_opt.jax.decide import build_for_host

    return build_for_host(module, key, preset)


HOST = Backend("host", handler, _build, may_share=True)
