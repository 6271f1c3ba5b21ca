"""Loops as people write them, each with the rung of the ladder that it should reach, written down before it was tried
(`loops`).

A rung is `lanes` (one kernel, a thread for each lane), `block` (one kernel, one block), `grid` (one kernel, all
multiprocessors), or `launches` (as XLA runs it). Where a loop stays on a lower rung than `lanes`, `couples` is the
opcode that brings its lanes together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from jax import lax

from scripts.programs.case import Case

Array = Any
Rung = Literal["lanes", "block", "grid", "launches"]


@dataclass(frozen=True)
class Loop:
    """A program whose time is a loop. `heavy`: at least 20 arithmetic operations in a round, and 64 lanes."""

    case: Case
    rung: Rung
    couples: tuple[str, ...] = ()
    heavy: bool = False


LOOPS: list[Loop] = []


def loop(rung: Rung, *args: Any, couples: tuple[str, ...] = (), heavy: bool = False) -> Callable[..., Any]:
    """Declares a function as a loop of the table."""

    def declared(function: Callable[..., Any]) -> Callable[..., Any]:
        LOOPS.append(Loop(Case(function.__name__, function, args), rung, couples, heavy))
        return function

    return declared


def rounds(count: int, step: Callable[..., Any], state: Any) -> Any:
    """The state after `count` calls of `step`."""
    return lax.fori_loop(0, count, lambda _, s: step(*s) if isinstance(s, tuple) else step(s), state)


def chosen(only: str = "") -> list[Loop]:
    """The loops whose names hold a word."""
    return [found for found in LOOPS if only in found.case.name]
