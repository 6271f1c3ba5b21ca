"""Elements as Z3 terms: truth values, bit vectors, floats of IEEE 754, or real numbers, and what an elementwise
operation makes of them.

`exact` terms have the bits of the type. In terms that are not, floats are real numbers: what a rule that makes use of
an order of rounding that HLO leaves open keeps is the exact value.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import z3

from hlo_opt.ir import ElementType, Instruction

FLOATS = {"f16": (5, 11), "bf16": (8, 8), "f32": (8, 24), "f64": (11, 53), "f8e5m2": (5, 3)}
"""Exponent bits and significand bits, the hidden one included, of types that follow IEEE 754."""
NAMED_ONLY = frozenset({"tanh", "exponential", "sqrt", "cosine", "sine", "log", "cbrt", "erf", "logistic", "power"})
"""Operations of which nothing is said but that equal operands give equal results, and `Terms.assumed`."""


class UnknownError(Exception):
    """Nothing here says what an operation gives."""


class Terms:
    """`assumed` are the facts about functions that have met so far: a square root, squared, and what rises. With
    `any_operation`, nothing is said of the arithmetic of floats."""

    def __init__(self, exact: bool = True, any_operation: bool = False) -> None:
        self.exact, self.any_operation = exact, any_operation
        self.assumed: list[Any] = []
        self._rising: dict[str, list[tuple[Any, Any]]] = {}

    def is_real(self, kind: ElementType) -> bool:
        return kind.is_float and not self.exact

    def sort_of(self, kind: ElementType) -> Any:
        if kind.kind == "pred":
            return z3.BoolSort()
        if kind.is_integer:
            return z3.BitVecSort(kind.bits)
        if kind.is_float and not self.exact:
            return z3.RealSort()
        if kind.name in FLOATS:
            return z3.FPSort(*FLOATS[kind.name])
        raise UnknownError(kind.name)

    def number(self, value: Any, kind: ElementType) -> Any:
        """A known element."""
        if kind.kind == "pred":
            return z3.BoolVal(bool(value))
        if kind.is_integer:
            return z3.BitVecVal(int(value), kind.bits)
        if kind.is_complex:
            part = parts_of(kind)
            return tuple(self.number(np.asarray(p, part.dtype), part) for p in (value.real, value.imag))
        if self.is_real(kind):
            if not np.isfinite(np.float64(value)):
                raise UnknownError("infinity is no real number")
            fraction = Fraction(float(value))
            return z3.Q(fraction.numerator, fraction.denominator)
        bits = int.from_bytes(np.asarray(value).astype(kind.dtype).tobytes(), "little")
        return z3.fpBVToFP(z3.BitVecVal(bits, kind.bits), self.sort_of(kind))

    def fresh(self, name: str, kind: ElementType) -> Any:
        """An unknown element."""
        if kind.is_complex:
            return tuple(z3.Const(f"{name}.{k}", self.sort_of(parts_of(kind))) for k in (0, 1))
        return z3.Const(name, self.sort_of(kind))

    # ---- operations

    def operation(self, i: Instruction, v: list[Any]) -> Any:
        """One element of an elementwise operation. Raises UnknownError where no line below says what it is."""
        kind, target = i.operands[0].shape.type, i.shape.type
        try:
            if i.opcode in ("complex", "real", "imag"):
                return self._of_parts(i.opcode, kind, v)
            if kind.is_complex:
                part = parts_of(kind)
                return tuple(self._plain(i, part, part, [x[k] for x in v]) for k in (0, 1))
            return self._plain(i, kind, target, v)
        except (KeyError, TypeError, z3.Z3Exception) as error:
            raise UnknownError(f"{i.opcode} of {kind.name}") from error

    def _of_parts(self, opcode: str, kind: ElementType, v: list[Any]) -> Any:
        if opcode == "complex":
            return tuple(v)
        if kind.is_complex:
            return v[0][0 if opcode == "real" else 1]
        if opcode == "real":
            return v[0]
        raise UnknownError(opcode)

    def _plain(self, i: Instruction, kind: ElementType, target: ElementType, v: list[Any]) -> Any:
        if i.opcode == "compare":
            return self.compared(i.word("direction"), kind, *v)
        if i.opcode == "select":
            return chosen(*v)
        if i.opcode == "convert":
            return self.converted(v[0], kind, target)
        if i.opcode == "reduce-precision":
            digits = i.attribute("exponent_bits", int), i.attribute("mantissa_bits", int) + 1
            narrow = z3.fpToFP(z3.RNE(), v[0], z3.FPSort(*digits))
            return z3.fpToFP(z3.RNE(), narrow, self.sort_of(kind))
        if i.opcode == "copy":
            return v[0]
        if kind.kind == "pred":
            names = {"add": "or", "maximum": "or", "multiply": "and", "minimum": "and"}
            return {"and": z3.And, "or": z3.Or, "xor": z3.Xor, "not": z3.Not}[names.get(i.opcode, i.opcode)](*v)
        if i.opcode in ("maximum", "minimum"):
            return self.extreme(i.opcode == "maximum", kind, *v)
        if i.opcode == "clamp":
            return self.extreme(False, kind, self.extreme(True, kind, v[1], v[0]), v[2])
        if i.opcode in NAMED_ONLY:
            return self._named(i.opcode, kind, v)
        if self.is_real(kind):
            return real_operation(i.opcode, v)
        if kind.is_float and self.any_operation and i.opcode in ("add", "subtract", "multiply", "divide"):
            return z3.Function(f"{i.opcode} {kind.name}", *[self.sort_of(kind)] * 3)(*v)
        return float_operation(i.opcode, v) if kind.is_float else integer_operation(i.opcode, kind, v)

    def _named(self, opcode: str, kind: ElementType, v: list[Any]) -> Any:
        sort = self.sort_of(kind)
        function = z3.Function(f"{opcode} {kind.name}", *[sort] * (len(v) + 1))
        value = function(*v)
        if opcode == "sqrt" and self.is_real(kind):
            self.assumed.append(z3.Implies(v[0] >= 0, z3.And(value >= 0, value * value == v[0])))
        if opcode in ("tanh", "exponential", "cbrt", "erf", "logistic") and not self.is_real(kind):
            self.assumed.append(z3.fpIsNaN(value) == z3.fpIsNaN(v[0]))
            met = self._rising.setdefault(function.name(), [])
            for x, y in met:
                self.assumed += [
                    z3.Implies(below(x, v[0]), below(y, value)),
                    z3.Implies(below(v[0], x), below(value, y)),
                ]
            met.append((v[0], value))
        return value

    def compared(self, direction: str, kind: ElementType, a: Any, b: Any) -> Any:
        if kind.is_float and self.exact:
            of_floats = {"LT": z3.fpLT, "LE": z3.fpLEQ, "GT": z3.fpGT, "GE": z3.fpGEQ, "EQ": z3.fpEQ, "NE": z3.fpNEQ}
            return of_floats[direction](a, b)
        if direction in ("EQ", "NE"):
            return (a == b) if direction == "EQ" else (a != b)
        if kind.kind == "pred":
            a, b = (z3.If(x, z3.BitVecVal(1, 2), z3.BitVecVal(0, 2)) for x in (a, b))
        unsigned = {"LT": z3.ULT, "LE": z3.ULE, "GT": z3.UGT, "GE": z3.UGE}
        signed: dict[str, Callable[..., Any]] = {
            "LT": lambda x, y: x < y,
            "LE": lambda x, y: x <= y,
            "GT": lambda x, y: x > y,
            "GE": lambda x, y: x >= y,
        }
        return (unsigned if kind.kind in ("unsigned", "pred") else signed)[direction](a, b)

    def extreme(self, greatest: bool, kind: ElementType, a: Any, b: Any) -> Any:
        """IEEE 754's maximum and minimum: NaN stays, and -0 lies below 0."""
        first = self.compared("GT" if greatest else "LT", kind, a, b)
        if not kind.is_float or not self.exact:
            return z3.If(first, a, b)
        positive = z3.fpIsPositive(a) if greatest else z3.fpIsNegative(a)
        first = z3.Or(first, z3.And(z3.fpIsZero(a), z3.fpIsZero(b), positive))
        return z3.If(z3.fpIsNaN(a), a, z3.If(z3.fpIsNaN(b), b, z3.If(first, a, b)))

    def converted(self, value: Any, source: ElementType, target: ElementType) -> Any:
        if source == target:
            return value
        if source.is_float:
            if target.is_float:
                return value if not self.exact else z3.fpToFP(z3.RNE(), value, self.sort_of(target))
            raise UnknownError("a float that becomes an integer")
        if target.is_float:
            if source.kind == "pred":
                return z3.If(value, self.number(1, target), self.number(0, target))
            if not self.exact:
                raise UnknownError("bits that become a real number")
            convert = z3.fpSignedToFP if source.kind == "signed" else z3.fpUnsignedToFP
            return convert(z3.RNE(), value, self.sort_of(target))
        if source.kind == "pred":
            return z3.If(value, z3.BitVecVal(1, target.bits), z3.BitVecVal(0, target.bits))
        if target.kind == "pred":
            return value != 0
        if target.bits <= source.bits:
            return z3.Extract(target.bits - 1, 0, value)
        more = target.bits - source.bits
        return z3.SignExt(more, value) if source.kind == "signed" else z3.ZeroExt(more, value)

    def of_bits(self, low_first: list[Any], source: ElementType, target: ElementType) -> list[Any]:
        """`bitcast-convert` of the elements that stand side by side."""
        if not self.exact or source.kind == "pred" or target.kind == "pred":
            raise UnknownError("bits of real numbers")
        vectors = [z3.fpToIEEEBV(v) if source.is_float else v for v in low_first]
        whole = vectors[0] if len(vectors) == 1 else z3.Concat(*reversed(vectors))
        parts = [z3.Extract(at + target.bits - 1, at, whole) for at in range(0, whole.size(), target.bits)]
        return [z3.fpBVToFP(p, self.sort_of(target)) if target.is_float else p for p in parts]


def parts_of(kind: ElementType) -> ElementType:
    from hlo_opt.ir import ELEMENT_TYPES

    return ELEMENT_TYPES["f64" if kind.bits == 128 else "f32"]


def chosen(p: Any, x: Any, y: Any) -> Any:
    if isinstance(x, tuple):
        return tuple(z3.If(p, a, b) for a, b in zip(x, y, strict=True))
    return z3.If(p, x, y)


def below(a: Any, b: Any) -> Any:
    """Whether one float stands at or below another in the order of all numbers, where -0 comes before 0."""
    zeros = z3.And(z3.fpIsZero(a), z3.fpIsZero(b))
    return z3.And(z3.fpLEQ(a, b), z3.Implies(zeros, z3.Or(z3.fpIsNegative(a), z3.fpIsPositive(b))))


def float_operation(opcode: str, v: list[Any]) -> Any:
    rounding = z3.RNE()
    operations: dict[str, Callable[..., Any]] = {
        "add": lambda a, b: z3.fpAdd(rounding, a, b),
        "subtract": lambda a, b: z3.fpSub(rounding, a, b),
        "multiply": lambda a, b: z3.fpMul(rounding, a, b),
        "divide": lambda a, b: z3.fpDiv(rounding, a, b),
        "negate": z3.fpNeg,
        "abs": z3.fpAbs,
        "floor": lambda a: z3.fpRoundToIntegral(z3.RTN(), a),
        "ceil": lambda a: z3.fpRoundToIntegral(z3.RTP(), a),
    }
    return operations[opcode](*v)


def real_operation(opcode: str, v: list[Any]) -> Any:
    operations: dict[str, Callable[..., Any]] = {
        "add": lambda a, b: a + b,
        "subtract": lambda a, b: a - b,
        "multiply": lambda a, b: a * b,
        "divide": lambda a, b: a / b,
        "negate": lambda a: -a,
        "abs": lambda a: z3.If(a < 0, -a, a),
    }
    return operations[opcode](*v)


def integer_operation(opcode: str, kind: ElementType, v: list[Any]) -> Any:
    """Integers wrap around; what is divided by 0 is -1, or leaves itself; what is shifted out is 0, or the sign."""
    zero, bits, signed = z3.BitVecVal(0, kind.bits), kind.bits, kind.kind == "signed"

    def shifted(value: Any, by: Any, shift: Callable[..., Any], beyond: Any) -> Any:
        return z3.If(z3.UGE(by, bits), beyond, shift(value, by))

    operations: dict[str, Callable[..., Any]] = {
        "add": lambda a, b: a + b,
        "subtract": lambda a, b: a - b,
        "multiply": lambda a, b: a * b,
        "negate": lambda a: -a,
        "not": lambda a: ~a,
        "and": lambda a, b: a & b,
        "or": lambda a, b: a | b,
        "xor": lambda a, b: a ^ b,
        "abs": lambda a: z3.If(a < zero, -a, a) if signed else a,
        "divide": lambda a, b: z3.If(b == zero, z3.BitVecVal(-1, bits), (a / b) if signed else z3.UDiv(a, b)),
        "remainder": lambda a, b: z3.If(b == zero, a, z3.SRem(a, b) if signed else z3.URem(a, b)),
        "shift-left": lambda a, b: shifted(a, b, lambda x, y: x << y, zero),
        "shift-right-logical": lambda a, b: shifted(a, b, z3.LShR, zero),
        "shift-right-arithmetic": lambda a, b: shifted(a, b, lambda x, y: x >> y, z3.If(a < zero, zero - 1, zero)),
        "sign": lambda a: z3.If(a == zero, zero, z3.If(a < zero, zero - 1, zero + 1)),
    }
    return operations[opcode](*v)
