"""Which faces an opcode has for an element type, from its spec: what the coverage table shows and tests are parametrised over.

An element type counts as that of the values that the operation works on (`OpSpec.accepts`).
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
    """What an opcode has for one element type.

    infer     shapes of operations on it are checked and inferred
    evaluate  the NumPy reference has a meaning
    cuda      kernels have a lowering
    expand    there is a computation of simpler operations (for some instructions, perhaps)
    ulp       how far results may be from the reference; None where nothing is declared
    """

    infer: bool
    evaluate: bool
    cuda: bool
    expand: bool
    ulp: float | None


def element_types(opcode: str) -> tuple[ElementType, ...]:
    """The element types that an opcode works on; none for an opcode that the table does not know."""
    spec = find(opcode)
    return () if spec is None else spec.element_types


def evaluates(opcode: str, element_type: ElementType | str) -> bool:
    """Whether the NumPy reference has a meaning for an opcode on values of an element type, given as such or by its name."""
    spec = find(opcode)
    found = ELEMENT_TYPES.get(element_type) if isinstance(element_type, str) else element_type
    return spec is not None and found is not None and has_evaluation(spec, found)


def has_evaluation(spec: OpSpec, element_type: ElementType) -> bool:
    """Whether the spec's `evaluate` gives values of this type: it is there, takes the type, and NumPy can hold it."""
    if spec.evaluate is None or spec.hides_state:
        return False
    return element_type in spec.element_types and bool(element_type.numpy_name)


def has_lowering(spec: OpSpec, element_type: ElementType) -> bool:
    """Whether a kernel can compute the operation on values of this type (without its expansion)."""
    if element_type not in spec.element_types or compute_type(element_type) is None:
        return False
    if spec.cuda is None:
        return spec.is_planned
    if not isinstance(spec.cuda, Elementwise):
        return True
    held = (i for i in samples(spec, element_type) if all(compute_type(j.shape.type) for j in (i, *i.operands)))
    return any(spec.cuda.text_for(i) is not None for i in held)


def faces(spec: OpSpec, element_type: ElementType) -> Faces:
    """The faces for one element type. A type that the opcode does not take has none."""
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
"""Values for the attributes that elementwise operations must have."""


def samples(spec: OpSpec, element_type: ElementType) -> Iterator[Instruction]:
    """Instructions of an elementwise opcode on vectors of a type, with the results that its `infer` gives; none where it refuses the type.

    Where the result's type is for the declaration to say, it is the operands', or s32.
    """
    attributes: dict[str, Attribute | Called] = {
        name: Attribute.of(_EXAMPLES[name]) for name, must in spec.attributes.items() if must and name in _EXAMPLES
    }
    for operands in _operands(spec, element_type):
        for declared in dict.fromkeys((element_type, S32)):
            made = Instruction(spec.opcode, spec.opcode, Shape(declared, (2,)), operands, attributes)
            try:
                made.shape = made.shape if spec.infer is None else spec.infer(made)
            except ShapeError:
                continue
            yield made


def _operands(spec: OpSpec, element_type: ElementType) -> Iterator[list[Instruction]]:
    """Operands all of the type; with a predicate first, as select has it; with random bits last, as stochastic-convert has them."""
    count = spec.arity.least
    own = [element_type] * count
    yield _parameters(own)
    if count > 2:
        yield _parameters([PRED, *own[1:]])
    bits = ELEMENT_TYPES.get(f"u{element_type.bits}")
    if count > 1 and bits is not None:
        yield _parameters([*own[:-1], bits])


def _parameters(types: Sequence[ElementType]) -> list[Instruction]:
    return [Instruction(f"p{n}", "parameter", Shape(t, (2,))) for n, t in enumerate(types)]
