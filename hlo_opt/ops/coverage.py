"""Which faces an opcode has for an element type, derived from its spec: for the coverage table and parametrised tests.

The element type is that of the values the operation works on (`OpSpec.accepts`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hlo_opt.ir import ELEMENT_TYPES, Attribute, Called, ElementType, Instruction, Shape
from hlo_opt.ir.element_type import PRED, S32
from hlo_opt.ops.lowering import Elementwise, compute_type
from hlo_opt.ops.spec import OpSpec, ShapeError, find

VALUES = tuple(t for t in ELEMENT_TYPES.values() if t.kind not in ("token", "opaque"))
"""The element types that have values."""


@dataclass(frozen=True, slots=True)
class Faces:
    """The faces of an opcode for one element type.

    infer     shapes are checked and inferred
    evaluate  the NumPy reference evaluates it
    cuda      kernels have a lowering
    expand    it has an expansion into simpler operations (perhaps for some instructions only)
    ulp       the bound on the distance from the reference; None where undeclared
    """

    infer: bool
    evaluate: bool
    cuda: bool
    expand: bool
    ulp: float | None


def element_types(opcode: str) -> tuple[ElementType, ...]:
    """The element types that an opcode works on; empty for an unknown opcode."""
    spec = find(opcode)
    return () if spec is None else spec.element_types


def evaluates(opcode: str, element_type: ElementType | str) -> bool:
    """Whether the NumPy reference evaluates an opcode on an element type (or the name of one)."""
    spec = find(opcode)
    known_type = ELEMENT_TYPES.get(element_type) if isinstance(element_type, str) else element_type
    return spec is not None and known_type is not None and has_evaluation(spec, known_type)


def has_evaluation(spec: OpSpec, element_type: ElementType) -> bool:
    """Whether the spec's `evaluate` covers this type: it exists, accepts the type, and NumPy has the type."""
    if spec.evaluate is None or spec.hides_state:
        return False
    return element_type in spec.element_types and bool(element_type.numpy_name)


def has_lowering(spec: OpSpec, element_type: ElementType) -> bool:
    """Whether a kernel can compute the operation on this type, without its expansion."""
    if element_type not in spec.element_types or compute_type(element_type) is None:
        return False
    if spec.cuda is None:
        return spec.is_planned
    if not isinstance(spec.cuda, Elementwise):
        return True
    computable = (i for i in samples(spec, element_type) if all(compute_type(j.shape.type) for j in (i, *i.operands)))
    return any(spec.cuda.text_for(i) is not None for i in computable)


def faces(spec: OpSpec, element_type: ElementType) -> Faces:
    """The faces for one element type; none for a type that the opcode does not accept."""
    if element_type not in spec.element_types:
        return Faces(False, False, False, False, None)
    return Faces(
        spec.infer is not None,
        has_evaluation(spec, element_type),
        has_lowering(spec, element_type),
        spec.expand is not None,
        None if spec.tolerance is None else spec.tolerance(element_type),
    )


_EXAMPLES: dict[str, str | int] = {"direction": "EQ", "exponent_bits": 5, "mantissa_bits": 2}
"""Values for required attributes of elementwise operations."""


def samples(spec: OpSpec, element_type: ElementType) -> Iterator[Instruction]:
    """Instructions of an elementwise opcode on vectors of a type, with inferred result shapes; none where `infer`
    refuses.

    Where the declaration defines the result's type, it is the operands', or s32.
    """
    attributes: dict[str, Attribute | Called] = {
        name: Attribute.of(_EXAMPLES[name]) for name, must in spec.attributes.items() if must and name in _EXAMPLES
    }
    for operands in _operands(spec, element_type):
        for declared in dict.fromkeys((element_type, S32)):
            instruction = Instruction(spec.opcode, spec.opcode, Shape(declared, (2,)), operands, attributes)
            try:
                instruction.shape = instruction.shape if spec.infer is None else spec.infer(instruction)
            except ShapeError:
                continue
            yield instruction


def _operands(spec: OpSpec, element_type: ElementType) -> Iterator[list[Instruction]]:
    """Operands of the type; also with a predicate first (select), with random bits last (stochastic-convert), and with
    an s32 last (an exponent)."""
    count = spec.arity.least
    own = [element_type] * count
    yield _parameters(own)
    if count > 2:
        yield _parameters([PRED, *own[1:]])
    bits = ELEMENT_TYPES.get(f"u{element_type.bits}")
    if count > 1 and bits is not None:
        yield _parameters([*own[:-1], bits])
    if count > 1:
        yield _parameters([*own[:-1], S32])


def _parameters(types: Sequence[ElementType]) -> list[Instruction]:
    return [Instruction(f"p{n}", "parameter", Shape(t, (2,))) for n, t in enumerate(types)]
