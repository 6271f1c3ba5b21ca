"""What somebody who watches a run sees: every evaluation of an instruction, with where in the loops it happened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hlo_opt.ir import Instruction
from hlo_opt.ops.values import Value


@dataclass(frozen=True, slots=True)
class Event:
    """One evaluation of one instruction.

    operands  the operands' values, in order; none for a parameter
    value     an array, a NumPy scalar, or a tuple of such
    loops     the loops that run, the outermost first, each with the iterations that it has done
    device    the simulated device, from 0
    """

    instruction: Instruction
    operands: Sequence[Value]
    value: Value
    loops: tuple[tuple[Instruction, int], ...]
    device: int

    def place(self) -> str:
        """Where it happened, in words: the computation, the iteration of each loop (from 0, the outermost first). Names are as the text has them."""
        parent = self.instruction.parent
        found = [] if parent is None else [parent.name]
        found += [f"iteration {done} of {loop.name}" for loop, done in self.loops]
        return ", ".join(found)


Watcher = Callable[[Event], None]
Change = Callable[[Instruction, Sequence[Value], Value], Value]
"""Puts another value in the place of one that was computed; it is given the instruction, its operands' values and that value."""


def watching(*watchers: Watcher | None) -> Watcher | None:
    """One watcher for several; None where there are none."""
    found = [w for w in watchers if w is not None]
    if len(found) < 2:
        return found[0] if found else None

    def tell(event: Event) -> None:
        for watcher in found:
            watcher(event)

    return tell
