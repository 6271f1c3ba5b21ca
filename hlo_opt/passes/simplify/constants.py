"""Rules for values that are known before the program runs: arrays without elements, arrays of one number, operations on
constants."""

from __future__ import annotations

import numpy as np

from hlo_opt.analysis.properties import has_side_effect
from hlo_opt.diag import HloOptError
from hlo_opt.evaluate import Interpreter
from hlo_opt.evaluate.program import face
from hlo_opt.ir import Instruction
from hlo_opt.ir.values import Array
from hlo_opt.ops import OpKind, find
from hlo_opt.ops.reduction.reducers import monoid
from hlo_opt.passes.simplify.reading import is_a, known, uniform
from hlo_opt.passes.simplify.rule import ANY, rule
from hlo_opt.passes.simplify.site import Site

LARGEST = 1024
"""The most elements of a value that is computed here: constants are text."""

_FOLDED = (OpKind.ELEMENTWISE, OpKind.MOVEMENT, OpKind.REDUCTION)
_NEVER = frozenset({"iota", "constant", "rng", "reduce-precision", "stochastic-convert"})


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
    "an elementwise operation, one that moves elements, or a fold, of constants = a constant",
    "it is computed as the interpreter computes it; of transcendental functions HLO leaves the last places open, of "
    "folds the order",
    of="constant",
)
def operation_on_constants(i: Instruction, site: Site) -> Instruction | None:
    if all(o.literal is None for o in i.operands):  # so for most
        return None
    if not i.shape.is_array or i.shape.element_count > LARGEST or i.opcode in _NEVER:
        return None
    if is_a(i, "broadcast") and i.shape.element_count > i.operands[0].shape.element_count:
        return None
    spec = find(i.opcode)
    if spec is None or spec.kind not in _FOLDED or spec.side_effects or not _is_plain(i):
        return None
    if any(o.shape.element_count > LARGEST for o in i.operands) or all(known(o) is None for o in i.operands):
        return None
    values = [v for v in map(_elements, i.operands) if v is not None]
    if len(values) < len(i.operands):
        return None
    try:
        with np.errstate(all="ignore"):
            result = face(i)(Interpreter(), i, [*values])
    except HloOptError:
        return None
    return site.literal(i.shape, np.asarray(result))


def _is_plain(i: Instruction) -> bool:
    """Whether it calls at most a computation of one elementwise operation."""
    return all(monoid(called) is not None for called in i.called())


def _elements(value: Instruction) -> Array | None:
    """The elements of a constant, of a known number broadcast to other dimensions, or of an iota."""
    if is_a(value, "iota"):
        return computed(value, LARGEST)
    elements, number = known(value), uniform(value)
    if elements is not None or number is None:
        return elements
    return np.full(value.shape.dimensions, number, number.dtype)


MOST_STEPS = 64
"""The most operations that `computed` computes."""


def computed(value: Instruction, most: int) -> Array | None:
    """The elements of a value of iotas and constants, by elementwise operations and such that move elements; None for
    any other, and for one that takes more than `MOST_STEPS` operations, or an array of more than `most` elements, to
    compute."""
    results: dict[Instruction, Array] = {}
    for node in _operands_first(value, most) or ():
        elements = known(node)
        if elements is None:
            try:
                with np.errstate(all="ignore"):
                    elements = np.asarray(face(node)(Interpreter(), node, [results[o] for o in node.operands]))
            except HloOptError:
                return None
        results[node] = elements
    return results.get(value)


def _operands_first(value: Instruction, most: int) -> list[Instruction] | None:
    """The operations that a value needs, operands before users; None where `computed` does not compute one."""
    order: dict[Instruction, None] = {}
    stack = [value]
    while stack:
        node = stack[-1]
        missing = [o for o in node.operands if o not in order]
        if node in order or not missing:
            order[stack.pop()] = None
        elif len(stack) + len(missing) > 2 * MOST_STEPS:
            return None
        else:
            stack += missing
        if not _is_computed(node, most) or len(order) > MOST_STEPS:
            return None
    return list(order)


def _is_computed(node: Instruction, most: int) -> bool:
    if not node.shape.is_array or node.shape.element_count > most:
        return False
    if node.literal is not None:
        return known(node) is not None
    spec = find(node.opcode)
    if spec is None or spec.side_effects or list(node.called()) or node.opcode in ("rng", "stochastic-convert"):
        return False
    return is_a(node, "iota") or (bool(node.operands) and spec.kind in (OpKind.ELEMENTWISE, OpKind.MOVEMENT))
