"""Which instructions of a module show something by themselves: where every step of a series shows it, no step is to
blame, and this says what is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from hlo_opt.analysis.graph.digest import module_digest
from hlo_opt.cutting.parts import part_of, tidied
from hlo_opt.cutting.turns import NO, Bisection
from hlo_opt.ir import Instruction, Module
from hlo_opt.ir.walk import executed_computations
from hlo_opt.ops.sets import launches
from hlo_opt.text.frames import source_location

MOST = 256
"""Instructions that are asked, none twice that differ in names only."""


@dataclass(frozen=True)
class Alone:
    """An instruction that shows it by itself, its Python line, and what is said of it."""

    name: str
    opcode: str
    source: str
    answer: str


def alone(bisection: Bisection) -> list[Alone]:
    """The instructions of the first module that launch work and show it with nothing else around them, in the order of
    the text."""
    module = bisection.first
    if module is None:
        return []
    parts = _parts(module)
    found = bisection.trials.every([partial(_asked, bisection, part) for _, part in parts])
    return [
        Alone(i.name, i.opcode, source_location(module, i), answer)
        for (i, _), answer in zip(parts, found, strict=True)
        if answer not in (None, NO)
    ]


def _parts(module: Module) -> list[tuple[Instruction, Module]]:
    """Each instruction that launches work, and a module of it."""
    seen: set[str] = set()
    found: list[tuple[Instruction, Module]] = []
    executed = set(executed_computations(module))
    for computation in module.computations:
        for i in computation.instructions if computation in executed else ():
            if not launches(i):
                continue
            try:
                part = tidied(part_of(computation, {i}).module)
            except ValueError:  # what it gives or takes no parameter can have
                continue
            digest = module_digest(part)
            if digest not in seen and len(found) < MOST:
                seen.add(digest)
                found.append((i, part))
    return found


def _asked(bisection: Bisection, part: Module) -> str | None:
    """In a process of its own."""
    return bisection.asks.ways[bisection.way](part, part, str(part))
