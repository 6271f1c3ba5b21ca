"""Elementwise operations: one `elementwise(...)` entry declares all faces of an opcode.

An entry names the accepted operand kinds, the NumPy meaning and the C++ text. Arity, shape inference, index maps,
rounding, flops and tolerance follow. Operand rules: xla/service/shape_inference.cc (InferUnaryOpShape,
InferBinaryOpShape); what is expensive: xla/service/instruction_fusion.cc (IsExpensive).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from hlo_opt.ir import ELEMENT_TYPES, ElementType, IndexMap, Instruction, Shape
from hlo_opt.ir.index_map import identity
from hlo_opt.ops import faces
from hlo_opt.ops import omitted as omitted_shapes
from hlo_opt.ops.faces import lazy
from hlo_opt.ops.lowering import Elementwise, Lowering
from hlo_opt.ops.numeric import Call, narrow, widen
from hlo_opt.ops.spec import EVERYTHING, Arity, Evaluator, OpKind, OpSpec, ShapeError, declare

Meaning = Callable[..., Any]
"""(call, *operands) -> array. Operands arrive in a type that NumPy computes in; the result is rounded to the op's type
afterwards."""

Precision = Literal["own", "f32", "f64"]
CostClass = Literal["cheap", "complex", "always"] | Callable[[Instruction], bool]

INTEGERS = ("signed", "unsigned")
NUMBERS = ("signed", "unsigned", "float", "complex")
REALS = ("float", "complex")


def elementwise(
    opcode: str,
    operands: int,
    meaning: Meaning,
    *,
    accepts: tuple[str, ...] = EVERYTHING,
    cuda: Mapping[str, str] | Lowering | None = None,
    by: str | int = "result",
    result: Literal["same", "real", "pred"] = "same",
    infer: Callable[[Instruction], Shape] | None = None,
    index: Callable[[Instruction, int], IndexMap | None] | None = None,
    ulp: float = 0.0,
    complex_ulp: float = 0.0,
    on_gpu: Mapping[str, float] | None = None,
    expensive: CostClass = "cheap",
    commutative: bool = False,
    precision: Precision = "f32",
    attributes: Mapping[str, bool] | None = None,
    spread: faces.Spreading = faces.UNKNOWN,
    slow: bool = False,
    one_step: bool = False,
    ways: str = "",
    aligned: Callable[[Instruction, int | None], bool] | None = None,
    omitted: omitted_shapes.Omitted | None = omitted_shapes.elementwise,
) -> OpSpec:
    """Declare an elementwise opcode and register it. Raises ValueError when the opcode is registered already.

    meaning    the NumPy function
    precision  the type the meaning computes in. `f32`: narrow floats arrive as f32 and are rounded once at the end.
               `f64`: f32 and c64 arrive as f64 and c128, so that the reference is nearly correctly rounded. `own`:
               operands arrive unchanged, bit for bit
    accepts    kinds (or names) of element types of its operands, which all have one type and shape
    cuda       C++ texts per type or kind, or another lowering (see `hlo_opt.ops.lowering`); a missing kind has no
               lowering
    by         whose type selects the text: `result`, or an operand number
    result     the operands' type, its real part, or pred
    infer      replaces the rules of `accepts` (one type, one shape) and `result`: gives the result's shape without a
               layout, or raises ShapeError
    ulp        bound on f32 and f64 results' distance from the reference; for narrower floats 1, unless this is 0
    on_gpu     additional ULP per type in kernels compiled to be as accurate as XLA:GPU's; a narrow float without an
               entry has that of f32
    complex_ulp  bound for complex results, in ULP of the modulus, of an op that is exact on reals; else derived from
               `ulp`
    expensive  whether recomputing costs too much: cheap, complex (when complex), always, or a predicate
    spread     how value bounds propagate through it (`ops.faces`); left out, they are sampled between the
               operands' bounds
    one_step   whether the meaning is one NumPy function, without temporaries
    ways       the name in `ops.ways` of the cases that an instruction can take, which drawn inputs are to reach
    index      which element of an operand an element reads, where that is not the one at the same place
    commutative, slow, omitted, aligned  as in OpSpec
    """
    lowering = Elementwise(cuda, by) if isinstance(cuda, Mapping) else cuda
    return declare(
        opcode,
        OpKind.ELEMENTWISE,
        Arity(operands, operands),
        attributes or {},
        accepts,
        infer=infer or _infer(opcode, accepts, result),
        evaluate=Evaluation(meaning, precision, one_step),
        index=index or elementwise_index,
        cuda=lowering,
        flops=lambda instruction: float(instruction.shape.element_count),
        tolerance=_tolerance(ulp, complex_ulp),
        on_gpu=None if on_gpu is None else _on_gpu(on_gpu),
        commutative=commutative,
        expensive=_expensive(expensive),
        spread=spread,
        is_slow=slow,
        omitted=omitted,
        aligned=aligned,
        ways=lazy("ways", ways) if ways else None,
        plain=lazy("elementwise.functions", "plain"),
        call=lazy("calls.steps", "of_complex"),
    )


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The `evaluate` face of a meaning: widen operands, silence floating-point warnings, round the result once."""

    meaning: Meaning
    precision: Precision = "f32"
    one_step: bool = False

    def __call__(self, evaluator: Evaluator, instruction: Instruction, values: list[Any]) -> Any:
        import numpy as np

        with np.errstate(all="ignore"):
            call = Call(np, instruction, evaluator)
            if self.precision == "own":
                operands = [np.asarray(value) for value in values]
            else:
                operands = [widen(value, further=self.precision == "f64") for value in values]
            return narrow(self.meaning(call, *operands), instruction.shape.type)


def elementwise_index(instruction: Instruction, operand: int) -> IndexMap:
    """Each element reads the one at its own index; a scalar operand (a predicate, a bound) has the empty index."""
    if not instruction.operands[operand].shape.rank:
        return IndexMap(())
    return identity(instruction.shape.dimensions)


def _infer(opcode: str, accepts: tuple[str, ...], result: str) -> Callable[[Instruction], Shape]:
    def infer(instruction: Instruction) -> Shape:
        shapes = array_operands(instruction)
        check_kind(opcode, shapes[0].type, accepts)
        element_type = same_type(opcode, shapes)
        if result == "pred":
            element_type = ELEMENT_TYPES["pred"]
        elif result == "real" and element_type.is_complex:
            element_type = ELEMENT_TYPES["f32" if element_type.bits == 64 else "f64"]
        return same_dimensions(opcode, shapes, element_type)

    return infer


def array_operands(instruction: Instruction) -> list[Shape]:
    """The operands' shapes. Raises ShapeError where one is not an array."""
    shapes = [operand.shape for operand in instruction.operands]
    for number, shape in enumerate(shapes):
        if not shape.is_array:
            raise ShapeError(f"operand {number} of {instruction.opcode} must be an array, not {shape}")
    return shapes


def check_kind(opcode: str, element_type: ElementType, accepts: tuple[str, ...]) -> None:
    """Raises ShapeError for an element type that the opcode does not take."""
    if element_type.kind not in accepts and element_type.name not in accepts:
        raise ShapeError(f"{opcode} takes {' or '.join(accepts)} values, not {element_type}")


def same_type(opcode: str, shapes: list[Shape]) -> ElementType:
    """The operands' common type; of different floats the widest, as XLA allows. Raises ShapeError."""
    common = shapes[0].type
    for shape in shapes[1:]:
        if shape.type is common or shape.type == common:
            continue
        if not (shape.type.is_float and common.is_float):
            raise ShapeError(f"operands of {opcode} differ in type: {common} and {shape.type}")
        common = max(common, shape.type, key=lambda t: t.bits)
    return common


def same_dimensions(opcode: str, shapes: list[Shape], element_type: ElementType) -> Shape:
    """An array of the operands' common dimensions. Raises ShapeError where they differ: HLO has no implicit
    broadcast."""
    first = shapes[0]
    dynamic = first.dynamic
    for shape in shapes[1:]:
        if shape.dimensions != first.dimensions:
            raise ShapeError(f"operands of {opcode} differ in dimensions: {first} and {shape}")
        if shape.dynamic:
            dynamic = tuple(a or b for a, b in zip(dynamic or (False,) * first.rank, shape.dynamic, strict=True))
    return Shape(element_type, first.dimensions, dynamic=dynamic)


def _tolerance(ulp: float, products: float = 0.0) -> Callable[[ElementType], float]:
    def tolerance(element_type: ElementType) -> float:
        if element_type.is_narrow_float:
            return min(ulp, 1.0)
        if element_type.is_complex:
            # a complex function consists of several real ones
            return products if products or not ulp else 4.0 * ulp + 4.0
        return ulp * element_type.is_float

    return tolerance


def _on_gpu(ulp: Mapping[str, float]) -> Callable[[ElementType], float]:
    def on_gpu(element_type: ElementType) -> float:
        return ulp.get(element_type.name, ulp.get("f32", 0.0) if element_type.is_narrow_float else 0.0)

    return on_gpu


def _expensive(cost: CostClass) -> Callable[[Instruction], bool]:
    if callable(cost):
        return cost
    if cost == "complex":
        return lambda instruction: instruction.operands[0].shape.type.is_complex
    return lambda instruction: cost == "always"
