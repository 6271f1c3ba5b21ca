"""The rule about scatters whose updates no atomic operation can do, and the two rewrites that it advises."""

from __future__ import annotations

from collections.abc import Iterator

from hlo_opt.ir import ELEMENT_TYPES, Attribute, Called, Instruction, edit
from hlo_opt.ops.sets import combines_updates
from hlo_opt.passes.simplify.site import Site
from hlo_opt.plans.scatter import ScatterForm, Update
from hlo_opt.report.lint.base import Finding, FusedProgram
from hlo_opt.report.page import size

F32 = ELEMENT_TYPES["f32"]


def scatters(program: FusedProgram) -> Iterator[Finding]:
    """A scatter whose updates no atomic operation can do: each retries until no other thread came between."""
    places = []
    for kernel in program.kernels:
        for hero in filter(combines_updates, kernel.members):
            form = ScatterForm(hero)
            if form.meets and not form.in_turns and Update.SWAP in form.updates:
                places.append((kernel.price.us * kernel.rounds, (kernel, hero, form)))
    for kernel, hero, form in program.worth_trying("LNT106", places):
        advice, us = _without_swaps(hero, program)
        if us <= 0:
            continue
        numbers = {
            "advice": advice,
            "name": hero.name,
            "combiner": form.combiner.root.opcode,
            "type": hero.operands[0].shape.type.name,
            "updates": size(hero.operands[-1].shape.byte_size),
        }
        yield Finding("LNT106", numbers, program.source(kernel, hero), hero.name, us, saves=True)


def _without_swaps(scatter: Instruction, program: FusedProgram) -> tuple[str, float]:
    """What to do about a scatter, and the microseconds that it saves: sums of narrow floats in f32, else unique
    indices."""
    copy = program.copy_with(scatter)
    if copy is None:
        return "", 0.0
    module, own = copy
    if own.shape.is_array and own.shape.type.is_narrow_float:
        if Update.SWAP not in ScatterForm(_in_f32(own)).updates:
            return "sum in f32, where one atomic operation does it", program.saved(module) or 0.0
        module, own = program.copy_with(scatter) or copy
    edit.set_attribute(own, "unique_indices", Attribute.of(True))
    return "say unique_indices=True, if no index comes twice", program.saved(module) or 0.0


def _in_f32(scatter: Instruction) -> Instruction:
    """Combine in f32 what a scatter of one array combines in a narrower type. Returns the new scatter."""
    site, combiner = Site(scatter), edit.clone_computation(scatter.called_by("to_apply"))
    for instruction in combiner.instructions:
        edit.set_shape(instruction, instruction.shape.with_type(F32))
    array, indices, updates = scatter.operands
    operands = [site.convert(array, F32), indices, site.convert(updates, F32)]
    wide = site.again(scatter, operands, scatter.shape.with_type(F32))
    edit.set_attribute(wide, "to_apply", Called(combiner))
    edit.replace_all_uses(scatter, site.convert(wide, scatter.shape.type))
    edit.remove(scatter)
    return wide
