"""The work of an operation: the instructions that a thread issues for an element, as in machine code for an H100, and
those among them for the slow pipe (MUFU for functions, F2F and I2F for conversions) and for the units of f64, which
some devices have few of. The counts are for the options that kernels are compiled with (`hlo_opt.codegen.options`):
XLA:GPU's division and roots, and no contraction."""

from __future__ import annotations

import functools
import re
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from hlo_opt.ir import Computation, ElementType, Instruction
from hlo_opt.ir.index_map import Expression, Product, Quotient, Remainder, Sum
from hlo_opt.ir.walk import needed_first
from hlo_opt.ops.lowering import Elementwise
from hlo_opt.ops.reduction.online import together as steps_together
from hlo_opt.ops.reduction.reducers import is_wide
from hlo_opt.ops.sets import rounds_nothing
from hlo_opt.ops.spec import OpKind, OpSpec, find


@dataclass(slots=True, unsafe_hash=True)
class Work:
    """Instructions issued, and those of the slow pipe and of the units of f64 among them. It does not change: sums of
    many are made for a price, and a frozen one takes three times as long to create."""

    slots: float = 0.0
    slow: float = 0.0
    doubles: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(self.slots + other.slots, self.slow + other.slow, self.doubles + other.doubles)

    def __mul__(self, times: float) -> Work:
        return Work(self.slots * times, self.slow * times, self.doubles * times)

    @property
    def chain(self) -> float:
        """The length of the way from operands to the result of one operation, in instructions that each need the one
        before: two halves of a long function run beside each other."""
        return min(self.slots, SHORT) + max(0.0, self.slots - SHORT) / 2 + SLOW_STEPS * self.slow


SHORT = 8
"""Instructions of a function, such as a division, that are a chain."""
SLOW_STEPS = 4
"""Instructions for which one has to wait longer on a result of the slow pipe than on another's: some 20 cycles."""
NOTHING = Work()
LITTLE = 4
"""The most instructions for an element of an operation that the rounds of a loop may compute again and again."""
_NEAR = (OpKind.ELEMENTWISE, OpKind.MOVEMENT, OpKind.INDEXING)
THREAD = Work(14)
"""The fixed work of a thread: its number, its bounds, its end."""
ACCESS = Work(2.5)
"""The work of a load or a store, its address included."""
ROUND = Work(3)
"""The work of a round of a loop besides its body: count, compare, jump."""
DIVISION = Work(4)
"""The work of an index divided by a constant: a product, its upper half, shifts."""
_ROUNDING = {"bf16": Work(1), "f16": Work(2, 1)}
"""The work of rounding to a narrow float and back. Two bf16 are converted together, and are the upper halves of f32;
`cvt.rn.f16.f32` uses F2F."""
_ROUNDING_TO_BITS = Work(12, 1)
"""The work of rounding to f8 and narrower floats, by instructions on bits."""
_WIDTH = {64: 2.0, 128: 8.0}
"""By width in bits, the number of 32-bit instructions that one instruction takes."""
_DOUBLES = {"f64": 1, "c128": 4}
"""Instructions of the units of f64 for one operation, by type."""
_TO_OR_FROM_F64 = Work(1, 1, 1)
"""The work of a conversion between f64 and another float (CUDA C++ Programming Guide, "Arithmetic Instructions": 16 for
each cycle of a multiprocessor, or 2 on devices with few units of f64)."""
_RANDOM = Work(80)
"""The work of a random number: ten rounds of Philox."""
_DIVIDE, _RECIPROCAL = Work(8, 1), Work(5, 1)
_INVERTED_AGAIN = Work(5, 1)
"""The work that a division saves if the division before has the same divisor: scaling and inverting it."""
_WHOLE = Work(16, 1)
"""The work that a division of integers saves if a compiler knows the divisor: a product, its upper half and shifts are
left."""
_WHOLE_DIVISIONS = frozenset({"hlo_divide", "hlo_remainder"})
_NARROW = "hlo_divide_narrow"
_FUNCTIONS = {
    "sqrtf": Work(1, 1),
    "cbrtf": Work(20, 2),
    "expf": Work(7, 1),
    "expm1f": Work(22, 1),
    "logf": Work(16),
    "log1pf": Work(24),
    "tanhf": Work(16, 2),
    "erff": Work(24, 1),
    "powf": Work(60, 2),
    "fmodf": Work(20, 1),
    **dict.fromkeys(("sinf", "cosf"), Work(24)),
    **dict.fromkeys(("tanf", "atan2f", "sinhf", "coshf", "asinf", "acosf", "asinhf", "acoshf", "atanhf"), Work(35, 1)),
    **dict.fromkeys(_WHOLE_DIVISIONS, Work(20, 1)),
    _NARROW: _DIVIDE,
    "hlo_power": Work(100),
    "hlo_rsqrt": Work(4, 1),
    "hlo_exp_narrow": Work(3, 1),
    "hlo_logistic_narrow": Work(8, 2),
    "hlo_log_bf16": Work(5, 1),
    "hlo_tanh_bf16": Work(1, 1),
}
"""The work of functions of f32, on the usual path; `Work(1)` for others."""
_SHIFTS = {"shift-left", "shift-right-logical"}
_CALLED, _OPERATOR = re.compile(r"\b[a-z]\w*(?=[(<])"), re.compile(r" [-+*&|^<>=?]+ |^[-~]")


def divides(instruction: Instruction) -> bool:
    """Whether an instruction divides by its second operand, in f32."""
    spec = find(instruction.opcode)
    if spec is None or not isinstance(spec.cuda, Elementwise) or len(instruction.operands) != 2:
        return False
    text = spec.cuda.text_for(instruction) or ""
    return _NARROW in text or (" / " in text and ")1 / " not in text and instruction.shape.type.bits <= 32)


def divides_by_constant(instruction: Instruction) -> bool:
    """Whether an instruction divides by a number that a compiler knows, and inverts."""
    return _is_by_number(instruction) and divides(instruction)


def _is_by_number(instruction: Instruction) -> bool:
    """Whether the second of two operands is one number that a compiler knows."""
    if len(instruction.operands) != 2:
        return False
    by = instruction.operands[1]
    literal = (by.operands[0] if len(by.operands) == 1 and by.literal is None else by).literal
    return literal is not None and not literal.shape.rank


def inverted_again(division: Instruction) -> Work:
    """The work that a division saves if the division before has the same divisor."""
    return _INVERTED_AGAIN + Work(division.shape.type.is_narrow_float)


def of_value(instruction: Instruction, *, rounds: bool = True) -> Work:
    """The work of one element of a result, by its text in kernels. `rounds` says whether rounding is included. Nothing
    for operations that only move elements."""
    spec, shape = find(instruction.opcode), instruction.shape
    if instruction.opcode in _SHIFTS and _is_half_a_turn(instruction):
        return NOTHING
    if spec is None or not isinstance(spec.cuda, Elementwise) or not shape.is_array:
        return _RANDOM if spec is not None and spec.kind is OpKind.RANDOM else NOTHING
    if callable(spec.cuda.texts):
        return _of_elementwise(instruction, spec.cuda, rounds=rounds)
    types = [operand.shape.element_type for operand in instruction.operands]
    key = instruction.opcode, rounds, shape.type.name, *[t.name if t is not None else "" for t in types]
    known = _KNOWN.get(key)
    if known is None or known[0] is not spec:
        known = _KNOWN[key] = spec, _of_elementwise(instruction, spec.cuda, rounds=rounds), _divided(instruction)
    if known[2] is None or not _is_by_number(instruction):
        return known[1]
    return known[1] + known[2] * -1


_KNOWN: dict[Hashable, tuple[OpSpec, Work, Work | None]] = {}
"""Work by opcode and element types, for operations whose text depends on nothing else; and what one that divides saves
if its divisor is a known number."""


def _divided(instruction: Instruction) -> Work | None:
    """The work that a division, or a remainder of one, saves if a compiler knows the divisor; None for any other
    operation."""
    if divides(instruction):
        return inverted_again(instruction)
    spec = find(instruction.opcode)
    if spec is None or not isinstance(spec.cuda, Elementwise) or not instruction.shape.type.is_integer:
        return None
    text = spec.cuda.text_for(instruction) or ""
    return (
        _WHOLE * _WIDTH.get(instruction.shape.type.bits, 1.0) if _WHOLE_DIVISIONS & {*_CALLED.findall(text)} else None
    )


def _of_elementwise(instruction: Instruction, how: Elementwise, *, rounds: bool) -> Work:
    is_rounded = rounds and not rounds_nothing(instruction)
    text = how.text_for(instruction) or ""
    return _of_text(text, instruction.operands[0].shape.type, instruction.shape.type, is_rounded)


@functools.cache
def _of_text(text: str, operand_type: ElementType, result_type: ElementType, rounds: bool) -> Work:
    text = text.replace("{F}", "f")
    inverted = text.count(")1 / ")
    work = _RECIPROCAL * inverted + _DIVIDE * (text.count(" / ") - inverted) + Work(len(_OPERATOR.findall(text)))
    work = sum((_FUNCTIONS.get(name, Work(1)) for name in _CALLED.findall(text)), work)
    if (operand_type.is_float and result_type.is_integer) or (operand_type.is_integer and result_type.is_float):
        work += Work(1, 1)
    is_new = work != NOTHING or operand_type != result_type
    work *= _WIDTH.get(result_type.bits, 1.0)
    doubles = [k.name for k in (operand_type, result_type) if k.name in _DOUBLES and operand_type.kind != "pred"]
    if len(doubles) == 1 and operand_type.is_float and result_type.is_float:
        work = _TO_OR_FROM_F64
    elif doubles:
        work += Work(0, 0, work.slots / _WIDTH.get(result_type.bits, 1.0) * _DOUBLES[doubles[0]])
    is_rounded = rounds and is_new and result_type.is_narrow_float
    return work + _ROUNDING.get(result_type.name, _ROUNDING_TO_BITS) if is_rounded else work


def _is_half_a_turn(instruction: Instruction) -> bool:
    """Whether a shift is one of the two of a rotation by a constant: the rotation is one instruction,
    counted for the `or`."""
    if instruction.shape.type.bits != 32 or len(instruction.users) != 1:
        return False
    (user,) = instruction.users
    if user.opcode != "or" or {o.opcode for o in user.operands} != _SHIFTS:
        return False
    left, right = user.operands
    return left.operands[0] is right.operands[0] and _amount(left) + _amount(right) == 32


def _amount(shift: Instruction) -> int:
    """The constant amount of a shift; 0 if it is not constant."""
    by = shift.operands[1]
    literal = (by.operands[0] if by.opcode == "broadcast" else by).literal
    if literal is None or literal.is_elided or literal.shape.rank:
        return 0
    return int(literal.value)  # type: ignore[arg-type]  # an array of one integer


def of_fold(fold: Instruction, together: int = 1) -> Work:
    """The work of folding one element: of the reducer, without rounding in a wide fold, or of a multiply-add; or, where
    a thread has several elements `together`, of its share of the steps that fold them at once."""
    steps = steps_together(fold) if together > 1 else None
    if steps is not None:
        of_all = of_body(steps.base) + of_body(steps.rescale)
        return of_body(steps.highest) + of_body(steps.add) + of_all * (1 / together)
    called = list(fold.called())
    return sum((of_body(c, rounds=not is_wide(fold)) for c in called), NOTHING) if called else Work(1)


def takes_long(value: Instruction) -> bool:
    """Whether the rounds of a loop should not compute a value of its region again: something that it depends on is
    long (`is_long`)."""
    return any(map(is_long, needed_first([value], lambda i: i.operands)))


def is_long(i: Instruction) -> bool:
    """Whether an operation takes more than a few instructions for an element, or many elements of an operand."""
    if i.parameter_number is not None or i.literal is not None:
        return False
    spec = find(i.opcode)
    return spec is None or spec.kind not in _NEAR or of_value(i).slots > LITTLE


def of_body(body: Computation, *, rounds: bool = True) -> Work:
    """The work of one call of a reducer or a comparator."""
    return sum((of_value(i, rounds=rounds) for i in body.instructions), NOTHING)


def of_packing(element: ElementType) -> Work:
    """The work of converting an element between its form in memory and that in registers."""
    if element.bits >= 32:
        return NOTHING
    return Work(3) if element.per_byte > 1 or (element.is_float and element.bits == 8) else Work(1)


def divisions(expression: Expression) -> Iterator[Expression]:
    """The divisions in an index; the rest of it is free in addresses."""
    stack = [expression]
    while stack:
        node = stack.pop()
        match node:
            case Sum():
                stack += (node.left, node.right)
            case Product() | Quotient() | Remainder():
                stack.append(node.left)
                if not isinstance(node, Product):
                    yield node
