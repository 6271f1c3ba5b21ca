"""The instructions of a module that show something by themselves. Where every module of a series shows it, no step is
the cause, and these are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from hlo_opt.analysis.graph.digest import module_digest
from hlo_opt.cutting.bisect import NO, Bisection
from hlo_opt.cutting.parts import part_of, tidied
from hlo_opt.ir import Instruction, Module
from hlo_opt.ir.walk import executed_computations
from hlo_opt.ops.sets import launches
from hlo_opt.text.frames import source_location

MOST = 256
"""Limit of instructions that are asked. Of those that differ in names only, one is asked."""


@dataclass(frozen=True)
class Alone:
    """An instruction that shows it by itself, its Python line, and its answer."""

    name: str
    opcode: str
    source: str
    answer: str


def alone(bisection: Bisection) -> list[Alone]:
    """The instructions of the first module that launch work and show it in a module of their own, in the order of the
    text."""
    module = bisection.first
    if module is None:
        return []
    parts = _parts(module)
    answers = bisection.trials.every([partial(_ask, bisection, part) for _, part in parts])
    return [
        Alone(i.name, i.opcode, source_location(module, i), answer)
        for (i, _), answer in zip(parts, answers, strict=True)
        if answer not in (None, NO)
    ]


def _parts(module: Module) -> list[tuple[Instruction, Module]]:
    """Each instruction that launches work, with a module of its own."""
    seen: set[str] = set()
    parts: list[tuple[Instruction, Module]] = []
    executed = set(executed_computations(module))
    for computation in module.computations:
        for i in computation.instructions if computation in executed else ():
            if not launches(i):
                continue
            try:
                part = tidied(part_of(computation, {i}).module)
            except ValueError:  # a parameter cannot have the shape of its operands or its result
                continue
            digest = module_digest(part)
            if digest not in seen and len(parts) < MOST:
                seen.add(digest)
                parts.append((i, part))
    return parts


def _ask(bisection: Bisection, part: Module) -> str | None:
    """In a child process: the answer of a part."""
    return bisection.watch.ways[bisection.way](part, part, str(part))
