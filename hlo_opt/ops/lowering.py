"""The `cuda` face: how a kernel computes one element of an operation.

It is an `Elementwise` expression, or a function `(builder, instruction, index) -> Code` that asks a `KernelBuilder` for
operand values. The resulting C++ compiles with NVRTC and with the host compiler.

Registers hold the *compute type* (`compute_type`): `bool` for pred, the C integer of the width (8 bits for narrower
ones), `float` for f32 and narrower floats, `double` for f64, and a pair of these for complex types. After each
operation `KernelBuilder.bind` rounds a narrow float to its type and truncates a narrow integer, so one operation is one
rounding, as in XLA's evaluator. Memory holds the *storage type* (`storage_type`): `unsigned char` for pred and integers
below 8 bits, unsigned integers for narrow floats. In shared memory and tables an `unsigned char` holds one element; in
global arrays, elements of 2 and 4 bits are packed (`hlo_opt.library.arrays`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from hlo_opt.ir.element_type import ELEMENT_TYPES, ElementType
from hlo_opt.ir.index_map import Condition, Expression, add, multiply
from hlo_opt.ir.module import Computation, Instruction
from hlo_opt.ops.code import Code, both, code

Index = tuple[Expression, ...]
Element = tuple[Instruction, Index]
"""An element of an instruction's value."""


class KernelBuilder(Protocol):
    """What a lowering may use while a kernel is written. Returned expressions are names or constants, cheap to
    repeat."""

    def value(self, instruction: Instruction, index: Index) -> Code:
        """The value of an array-shaped instruction at a logical index, computed once per (instruction, index) and
        scope."""

    def element(self, instruction: Instruction, number: int, index: Index) -> Code:
        """The value of element `number` of a tuple-shaped instruction (a variadic reduce, a tuple) at an index."""

    def bind(self, element_type: ElementType, value: Code) -> Code:
        """Declare a constant of the compute type with a value rounded to the element type. Returns its name."""

    def variable(self, element_type: ElementType, value: Code) -> Code:
        """Declare a variable with an initial value. Returns its name."""

    def assign(self, name: Code, value: Code) -> None:
        """Assign a variable."""

    def loop(self, extent: int) -> AbstractContextManager[Expression]:
        """A loop over 0 <= i < extent; yields the loop variable. Values computed inside are not reused after it."""

    def branch(self, condition: Code) -> AbstractContextManager[None]:
        """Statements under `if (condition)`. Values computed inside are not reused after it."""

    def likely(self, condition: Code) -> AbstractContextManager[Code]:
        """Like `branch`, for a condition that usually holds, so parameters may be read (in bounds) before it is known.

        Yields the condition where the statements run unconditionally, else the empty expression.
        """

    def otherwise(self) -> AbstractContextManager[None]:
        """Statements under `else`, directly after a branch."""

    def text(self, expression: Expression) -> Code:
        """An index expression as C++."""

    def index(self, value: Code, low: int, high: int) -> Expression:
        """An index variable from an integer, clamped to [low, high]."""

    def start(self, start: Instruction, at: Index, most: int) -> Expression:
        """An element of an instruction, clamped to [0, most], as an index variable."""

    def unclamped_index(self, value: Code) -> Code:
        """A 64-bit integer variable with an unclamped value. Returns its name, for conditions."""

    def apply(self, computation: Computation, arguments: Sequence[Code], *, wide: bool = False) -> list[Code]:
        """The root's value (or the elements of a tuple root) of a scalar computation such as a reducer.

        `wide`: accumulate in a wider type (`hlo_opt.ops.reduction.reducers`).
        """


@dataclass(frozen=True)
class Elementwise:
    """A C++ expression per kind of element type.

    Keys are element type names (`f64`) or kinds (`float`, `signed`, `unsigned`, `pred`, `complex`); names take
    precedence. In a template, `{0}`, `{1}` are operand values in their compute types, `{T}` the compute type of the
    result, `{F}` the suffix of C math functions (`f` for float, "" for double), `{bits}` the width of the result's
    type, `{W}` is `{T}` followed by the width where that is below 8 (`signed char, 4`), `{P}` the helper prefix of the
    result's type (`hlo_f32`, `hlo_s8`, ...). `by` says whose type selects the template: `result`, or an operand number,
    as for compare. A callable maps the instruction to such a mapping, for templates that depend on attributes. `rounds`
    names narrow floats whose template returns a rounded value; for others, rounding is added.
    """

    texts: Mapping[str, str] | Callable[[Instruction], Mapping[str, str]]
    by: str | int = "result"
    rounds: tuple[str, ...] = ()

    def text_for(self, instruction: Instruction) -> str | None:
        """The template for an instruction; None where its type has no lowering."""
        texts = self.texts(instruction) if callable(self.texts) else self.texts
        shape = instruction.shape if isinstance(self.by, str) else instruction.operands[self.by].shape
        if not shape.is_array:
            return None
        element_type = shape.type
        return texts.get(element_type.name, texts.get(element_type.kind))


Lowering = Elementwise | Callable[[KernelBuilder, Instruction, Index], Code | Sequence[Code]]
"""A function for a tuple-shaped instruction returns one expression per element."""

_INTEGERS = {2: "char", 4: "char", 8: "char", 16: "short", 32: "int", 64: "long long"}

SMALL_FLOATS = tuple(t.name for t in ELEMENT_TYPES.values() if t.is_float and t.bits < 16)
"""Floats stored in a byte (`hlo_opt/codegen/device/small_floats.cuh`)."""

_FLOATS = {"f64": "double", **dict.fromkeys(("f32", "bf16", "f16", *SMALL_FLOATS), "float")}

COMPLEX_TYPES = {"c64": "hlo_complex<float>", "c128": "hlo_complex<double>"}
"""The C++ types, in registers and in memory."""


def part_type(element_type: ElementType) -> str:
    """The C++ type of a complex type's real and imaginary part."""
    return "float" if element_type.bits == 64 else "double"


def compute_type(element_type: ElementType) -> str | None:
    """The C++ type of a value in a register; None when kernels do not support the type."""
    if element_type.kind == "pred":
        return "bool"
    if element_type.is_integer and element_type.bits in _INTEGERS:
        base = _INTEGERS[element_type.bits]
        return f"unsigned {base}" if element_type.kind == "unsigned" else ("signed char" if base == "char" else base)
    return _FLOATS.get(element_type.name, COMPLEX_TYPES.get(element_type.name))


def storage_type(element_type: ElementType) -> str | None:
    """The C++ type of a value in memory; None when kernels do not support the type."""
    if element_type.kind == "pred" or element_type.bits < 8 or element_type.name in SMALL_FLOATS:
        return "unsigned char" if compute_type(element_type) is not None else None
    if element_type.name in ("bf16", "f16"):
        return "unsigned short"
    return compute_type(element_type)


def width_text(element_type: ElementType) -> str | None:
    """The template arguments of a helper for an integer's bits: its compute type, followed by its width where that is
    below 8."""
    kind = compute_type(element_type)
    return f"{kind}, {element_type.bits}" if element_type.is_integer and element_type.bits < 8 else kind


def is_rounded(element_type: ElementType) -> bool:
    """Whether registers are wider than the type, so that `hlo_round_*` follows each operation; such floats have
    `hlo_load_*` and `hlo_store_*`."""
    return (element_type.is_integer and element_type.bits < 8) or (element_type.is_float and element_type.bits < 32)


def guard(builder: KernelBuilder, conditions: Iterable[Condition]) -> Code:
    """A C++ condition equivalent to all conditions; `NOTHING` when they always hold.

    Omits comparisons that the range of their expression implies.
    """
    parts: list[Code] = []
    conditions = tuple(conditions)
    for condition in conditions:
        expression = condition.expression
        if condition.always:
            continue
        text = builder.text(expression)
        if condition.low == condition.high:
            parts.append(code("({} == {})", text, condition.low))
            continue
        if expression.low < condition.low:
            parts.append(code("({} >= {})", text, condition.low))
        if expression.high > condition.high:
            parts.append(code("({} <= {})", text, condition.high))
    return Code(both(*parts).pieces, says=conditions)


def never(conditions: Iterable[Condition]) -> bool:
    """Whether the range of some expression alone makes its condition false."""
    return any(c.expression.high < c.low or c.expression.low > c.high for c in conditions)


def difference(left: Expression, right: Expression) -> Expression:
    """left - right"""
    return add(left, multiply(right, -1))


def zero(element_type: ElementType) -> Code:
    """A C++ zero of the compute type."""
    return code(f"({compute_type(element_type)})0")
