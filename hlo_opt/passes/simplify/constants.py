"""What is known before the program runs: arrays without elements, numbers that are all the same, operations on
constants."""

from __future__ import annotations

import numpy as np

from hlo_opt.analysis.properties import has_side_effect
from hlo_opt.diag import HloOptError
from hlo_opt.evaluate import Interpreter
from hlo_opt.evaluate.program import face
from hlo_opt.ir import Instruction
from hlo_opt.ops import OpKind, find
from hlo_opt.passes.simplify.reading import known, uniform
from hlo_opt.passes.simplify.rule import ANY, rule
from hlo_opt.passes.simplify.site import Site

LARGEST = 1024
"""Elements of a value that is computed beforehand: constants are text."""

_FOLDED = (OpKind.ELEMENTWISE, OpKind.MOVEMENT)
_NEVER = frozenset({"broadcast", "iota", "constant", "rng", "reduce-precision", "stochastic-convert"})


@rule("value-of-nothing", ANY, "an array without elements = a constant", "it has no values")
def value_of_nothing(i: Instruction, site: Site) -> Instruction | None:
    if not i.shape.is_array or i.shape.element_count or i.literal is not None or i.parameter_number is not None:
        return None
    if has_side_effect(i) or list(i.called()) or not i.operands:
        return None
    return site.literal(i.shape, np.zeros(i.shape.dimensions, i.shape.type.dtype))


@rule("constant-of-same", "constant", "constant array of one number = broadcast of it", "all elements are the same")
def constant_of_same(i: Instruction, site: Site) -> Instruction | None:
    if not i.shape.is_array or i.shape.element_count < 2 or i.shape.element_count * i.shape.type.bytes > 1 << 26:
        return None
    number = uniform(i)
    return None if number is None else site.full(i.shape, number)


@rule(
    "operation-on-constants",
    ANY,
    "an elementwise operation, or one that moves elements, of constants = a constant",
    "it is computed as the interpreter computes it; of transcendental functions HLO leaves the last places open",
)
def operation_on_constants(i: Instruction, site: Site) -> Instruction | None:
    if not i.operands or not i.shape.is_array or i.shape.element_count > LARGEST or i.opcode in _NEVER:
        return None
    values = [v for v in map(known, i.operands) if v is not None]
    if len(values) < len(i.operands):
        return None
    spec = find(i.opcode)
    if spec is None or spec.kind not in _FOLDED or spec.side_effects or list(i.called()):
        return None
    if any(v.size > LARGEST for v in values):
        return None
    try:
        with np.errstate(all="ignore"):
            made = face(i)(Interpreter(), i, [*values])
    except HloOptError:
        return None
    return site.literal(i.shape, np.asarray(made))
