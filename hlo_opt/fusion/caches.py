"""What is known of the instructions of a module that is being fused. A cache is declared once, with the changes that
its values outlast; `Caches` holds the values for one module. All else is forgotten when an instruction changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from hlo_opt.ir import Instruction

if TYPE_CHECKING:
    from hlo_opt.fusion.state import FusionState

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, eq=False)
class Cache(Generic[T_co]):
    """A question about single instructions.

    compute    finds the answer
    grows      the value of a fusion is kept up while it takes in producers, and where another instruction gives the
               value of an operand: who changes the fusion tells the value
    settled    the answer is the same when other instructions give the values of the operands, and when a fusion has
               stopped growing
    in_copies  the answer names no instructions, and so holds for their copies in a copy of the module
    """

    compute: Callable[[FusionState, Instruction], T_co]
    grows: bool = False
    settled: bool = False
    in_copies: bool = False


class Caches:
    """The values of all caches for the instructions of one module."""

    def __init__(self, state: FusionState) -> None:
        self._state = state
        self._tables: dict[Cache[object], dict[Instruction, object]] = {}

    def of(self, cache: Cache[T], instruction: Instruction) -> T:
        """The value for an instruction, computed where it is not known."""
        try:
            return self._tables[cache][instruction]  # type: ignore[return-value]
        except KeyError:
            value = self.table(cache)[instruction] = cache.compute(self._state, instruction)
            return value

    def table(self, cache: Cache[T]) -> dict[Instruction, T]:
        """The known values of a cache."""
        return cast("dict[Instruction, T]", self._tables.setdefault(cache, {}))

    def take(self, instruction: Instruction, known: Mapping[Cache[object], object]) -> None:
        """Values that need not be computed."""
        for cache, value in known.items():
            self.table(cache)[instruction] = value

    def forget(self, instruction: Instruction) -> None:
        """The instruction has changed."""
        for table in self._tables.values():
            table.pop(instruction, None)

    def keep(self, fusion: Instruction, *, growing: bool = False, settled: bool = False) -> None:
        """A fusion has changed: forget all values but those that are kept up while it grows, and those that stay the
        same when it does not."""
        for cache, table in self._tables.items():
            if not ((growing and cache.grows) or (settled and cache.settled)):
                table.pop(fusion, None)

    def copy_from(self, other: Caches, copies: Mapping[Instruction, Instruction]) -> None:
        """Take what is known of instructions for their copies, as far as it holds for these."""
        for cache, table in other._tables.items():
            if cache.in_copies:
                self.table(cache).update({copies[i]: value for i, value in table.items() if i in copies})
