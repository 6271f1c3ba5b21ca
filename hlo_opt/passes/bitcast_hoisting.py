"""Bitcasts between an operand of a fusion and the update in place inside it move in front of the fusion.

A bitcast launches nothing on either side. Inside, it hides that the kernel writes a part of its operand and leaves the
rest: XLA's cost analysis (xla/service/hlo_cost_analysis.cc, FusionParameterReadBytes) then counts the whole buffer as
read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

from hlo_opt.ir import Computation, Instruction, edit
from hlo_opt.ops.sets import UPDATES, fused, keeps_values, results_of
from hlo_opt.passes.base import PassContext, RewritingPass

_VIEWS = ("bitcast",)


@dataclass(frozen=True)
class BitcastHoisting(RewritingPass):
    """Move bitcasts of operands that a fusion updates in place in front of the fusion."""

    name: ClassVar[str] = "bitcast-hoisting"
    preserves: ClassVar[Literal["graph", "meaning"]] = "graph"

    def rewrites(self, computation: Computation, context: PassContext) -> Iterator[Callable[[], object]]:
        for fusion in list(computation.instructions):
            body = fused(fusion)
            if body is None or fusion.word("kind") == "kCustom":
                continue
            for result in results_of(body):
                update = _behind_views(result)
                views = _views(update) if update.opcode in UPDATES else []
                if views:
                    yield partial(_hoist, fusion, views)


def _behind_views(result: Instruction) -> Instruction:
    while keeps_values(result, _VIEWS):
        result = result.operands[0]
    return result


def _views(update: Instruction) -> list[Instruction]:
    """The bitcasts between a parameter and its update, the last first; empty where the parameter has other readers."""
    views: list[Instruction] = []
    place = update.operands[0]
    while keeps_values(place, _VIEWS) and not place.control_predecessors:
        views.append(place)
        place = place.operands[0]
        if len(place.users) > 1 or place.is_root:
            return []
    return views if place.parameter_number is not None else []


def _hoist(fusion: Instruction, views: list[Instruction]) -> None:
    parameter = views[-1].operands[0]
    number = parameter.parameter_number
    assert number is not None
    outside = fusion.operands[number]
    for view in reversed(views):
        outside = edit.clone_into(fusion.computation, view, [outside])
    edit.replace_operand(fusion, number, outside)
    edit.redirect_users(views[0], parameter)
    edit.set_shape(parameter, views[0].shape)
    for view in views:
        edit.remove(view)
