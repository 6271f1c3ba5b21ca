"""Rules for integers and bits. Arithmetic that wraps around is associative and commutative."""

from __future__ import annotations

from hlo_opt.ir import Instruction
from hlo_opt.passes.simplify.ranges import bounds
from hlo_opt.passes.simplify.reading import NUMBERS, all_ones, exponent, is_a, is_integer, no_ones, uniform
from hlo_opt.passes.simplify.rule import rule
from hlo_opt.passes.simplify.site import Site


def _is_bits(i: Instruction) -> bool:
    return i.shape.type.is_integer or i.shape.type.kind == "pred"


@rule("subtract-itself", "subtract xor", "x - x = 0 for integers, x ^ x = 0", "no integer is NaN or infinite")
def subtract_itself(i: Instruction, site: Site) -> Instruction | None:
    left, right = i.operands
    return site.full(i.shape, 0) if left is right and _is_bits(i) else None


@rule("multiply-zero", "multiply", "x * 0 = 0 for integers", "no integer is NaN, infinite or -0", of=NUMBERS)
def multiply_zero(i: Instruction, site: Site) -> Instruction | None:
    if not i.shape.type.is_integer:
        return None
    return next((o for o in i.operands if is_integer(o, 0)), None)


@rule("remainder-one", "remainder", "x % 1 = 0 for integers", "every integer is a multiple of 1")
def remainder_one(i: Instruction, site: Site) -> Instruction | None:
    return site.full(i.shape, 0) if is_integer(i.operands[1], 1) else None


@rule(
    "unsigned-by-power",
    "divide remainder",
    "x / 2^k = x >> k, x % 2^k = x & (2^k - 1) for unsigned x",
    "that is how they are written in bits",
    of=NUMBERS,
)
def unsigned_by_power(i: Instruction, site: Site) -> Instruction | None:
    left, right = i.operands
    k = exponent(right)
    if i.shape.type.kind != "unsigned" or k is None:
        return None
    if is_a(i, "divide"):
        return site.elementwise("shift-right-logical", left, site.full(right.shape, k))
    return site.elementwise("and", left, site.full(right.shape, (1 << k) - 1))


@rule("bits-of-nothing", "and or xor", "x & 0 = 0, x | 0 = x, x ^ 0 = x", "bit by bit")
def bits_of_nothing(i: Instruction, site: Site) -> Instruction | None:
    for value, zero in (i.operands, i.operands[::-1]):
        if no_ones(zero) and _is_bits(i):
            return zero if is_a(i, "and") else value
    return None


@rule("bits-of-everything", "and or xor", "x & ones = x, x | ones = ones, x ^ ones = not x", "bit by bit")
def bits_of_everything(i: Instruction, site: Site) -> Instruction | None:
    for value, ones in (i.operands, i.operands[::-1]):
        if not all_ones(ones):
            continue
        if is_a(i, "xor"):
            return site.elementwise("not", value)
        return value if is_a(i, "and") else ones
    return None


@rule("bits-of-opposite", "and or", "x & not x = 0, x | not x = ones", "bit by bit")
def bits_of_opposite(i: Instruction, site: Site) -> Instruction | None:
    for value, other in (i.operands, i.operands[::-1]):
        if is_a(other, "not") and other.operands[0] is value and i.shape.type.kind == "pred":
            return site.full(i.shape, is_a(i, "or"))
    return None


@rule("not-not", "not", "not not x = x", "bit by bit")
def not_not(i: Instruction, site: Site) -> Instruction | None:
    inner = i.operands[0]
    return inner.operands[0] if is_a(inner, "not") else None


@rule(
    "shift-nothing", "shift-left shift-right-logical shift-right-arithmetic", "x << 0 = x, 0 << x = 0", "no bit moves"
)
def shift_nothing(i: Instruction, site: Site) -> Instruction | None:
    value, by = i.operands
    if is_integer(by, 0) or is_integer(value, 0):
        return value
    return None


@rule("shift-out", "shift-left shift-right-logical", "x << n = 0 where n is the width, or more", "HLO defines it so")
def shift_out(i: Instruction, site: Site) -> Instruction | None:
    by = uniform(i.operands[1])
    if by is None or not i.shape.type.is_integer:
        return None
    return site.full(i.shape, 0) if not 0 <= int(by) < i.shape.type.bits else None


_TOGETHER = {"add": "add", "multiply": "multiply", "and": "and", "or": "or", "xor": "xor"}


@rule(
    "constants-together",
    "add multiply and or xor maximum minimum",
    "(x + a) + b = x + (a + b) for integers and bits, constant a and b; and so for *, &, |, ^, max, min",
    "the operations are associative, and what wraps around does so modulo 2^n",
    of=NUMBERS,
)
def constants_together(i: Instruction, site: Site) -> Instruction | None:
    if not _is_bits(i):
        return None
    for inner, number in (i.operands, i.operands[::-1]):
        if inner.opcode != i.opcode or uniform(number) is None:
            continue
        for value, own in (inner.operands, inner.operands[::-1]):
            if uniform(own) is not None and uniform(value) is None:
                return site.elementwise(i.opcode, value, site.elementwise(i.opcode, own, number))
    return None


@rule(
    "differences-together",
    "add subtract",
    "(x - a) + b = x + (b - a), (x + a) - b = x + (a - b) for integers, constant a and b",
    "modulo 2^n",
    of=NUMBERS,
)
def differences_together(i: Instruction, site: Site) -> Instruction | None:
    if not i.shape.type.is_integer:
        return None
    inner, number = i.operands
    if uniform(number) is None and is_a(i, "add"):
        inner, number = number, inner
    wanted = "subtract" if is_a(i, "add") else "add"
    if uniform(number) is None or inner.opcode != wanted:
        return None
    value, own = inner.operands
    if uniform(own) is None and wanted == "add":
        value, own = own, value
    if uniform(own) is None or uniform(value) is not None:
        return None
    pair = (number, own) if is_a(i, "add") else (own, number)
    return site.elementwise("add", value, site.elementwise("subtract", *pair))


@rule(
    "add-and-take-away",
    "subtract add",
    "(x + y) - y = x, (x - y) + y = x for integers",
    "modulo 2^n",
    of="add subtract",
)
def add_and_take_away(i: Instruction, site: Site) -> Instruction | None:
    if not i.shape.type.is_integer:
        return None
    if is_a(i, "subtract"):
        inner, other = i.operands
        if not is_a(inner, "add"):
            return None
        return next((a for a, b in (inner.operands, inner.operands[::-1]) if b is other), None)
    for inner, other in (i.operands, i.operands[::-1]):
        if is_a(inner, "subtract") and inner.operands[1] is other:
            return inner.operands[0]
    return None


@rule(
    "common-factor",
    "add subtract",
    "x * z + y * z = (x + y) * z for integers, where nobody else reads the products",
    "integers distribute modulo 2^n",
    of="multiply",
)
def common_factor(i: Instruction, site: Site) -> Instruction | None:
    left, right = i.operands
    if not i.shape.type.is_integer or not (is_a(left, "multiply") and is_a(right, "multiply")) or left is right:
        return None
    if len(left.users) > 1 or len(right.users) > 1:
        return None
    for a, z in (left.operands, left.operands[::-1]):
        for b, other in (right.operands, right.operands[::-1]):
            if z is other:
                return site.elementwise("multiply", site.elementwise(i.opcode, a, b), z)
    return None


@rule("remainder-within", "remainder", "x % n = x where 0 <= x < n is known", "the quotient is 0")
def remainder_within(i: Instruction, site: Site) -> Instruction | None:
    left, number = bounds(i.operands[0]), uniform(i.operands[1])
    if left is None or number is None or not i.shape.type.is_integer:
        return None
    return i.operands[0] if left[0] >= 0 and left[1] < int(number) else None


@rule(
    "remainder-of-more",
    "remainder",
    "(x + n) % n = x % n where x >= 0 and x + n does not overflow",
    "the quotient is one more",
)
def remainder_of_more(i: Instruction, site: Site) -> Instruction | None:
    inner, number = i.operands[0], uniform(i.operands[1])
    if not is_a(inner, "add") or number is None or not i.shape.type.is_integer or bounds(inner) is None:
        return None
    for value, more in (inner.operands, inner.operands[::-1]):
        least, by = bounds(value), uniform(more)
        if least is not None and by is not None and least[0] >= 0 and int(by) > 0 and int(by) == int(number):
            return site.again(i, [value, i.operands[1]])
    return None


@rule("remainder-of-remainder", "remainder", "(x % y) % y = x % y", "it is nearer to 0 than y is")
def remainder_of_remainder(i: Instruction, site: Site) -> Instruction | None:
    inner = i.operands[0]
    same = is_a(inner, "remainder") and inner.operands[1] is i.operands[1]
    return inner if same and i.shape.type.is_integer else None
