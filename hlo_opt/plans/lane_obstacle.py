"""What keeps a loop from being one kernel by lanes, for explanations."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial

from hlo_opt.ir import Instruction, Module
from hlo_opt.ops.sets import looped, tuple_elements
from hlo_opt.plans.lane_rounds import has_text
from hlo_opt.plans.lane_search import found_by, searches_of
from hlo_opt.plans.opened_loop import by_itself, opened_with


@dataclass(frozen=True)
class Obstacle:
    """Why a loop is not one kernel.

    `instruction` is the operation of a round at which lanes meet, or that kernels have no text for; of a loop whose
    form is not supported, the operation that gives it that form, or the loop itself. It is None if the loop is one
    kernel (`has_plan`).
    """

    instruction: Instruction | None = None
    has_plan: bool = False


def obstacle(module: Module, loop: Instruction) -> Obstacle:
    """The obstacle of a loop of a module."""
    alone = by_itself(module, loop)
    ways = cache(partial(opened_with, alone))
    opened = ways(chooses=False) or ways(chooses=True)
    if opened is None:
        members = [i for c in alone.called() for i in c.instructions]
        members += [i for loop in members if looped(loop) is not None for c in loop.called() for i in c.instructions]
        without = [i for i in members if i.parameter_number is None and not has_text(i)]
        named = next((i for i in without if looped(i) is None), next(iter(without), None))
        return Obstacle(named or _of_another_form(loop))
    searches = list(searches_of(ways, opened.read_of(loop)))
    if found_by(searches) is not None:
        return Obstacle(has_plan=True)
    return Obstacle(next(filter(None, (search.blamed for search in searches)), loop))


def _of_another_form(loop: Instruction) -> Instruction:
    """The operation that makes the tuple of a loop, before the first round or after a round, where that is none of
    arrays that are known one by one; else the loop."""
    ends = (loop.operands[0], loop.called_by("body").root)
    return next((end for end in ends if tuple_elements(end) is None), loop)
