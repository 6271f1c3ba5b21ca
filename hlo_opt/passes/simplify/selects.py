"""Rules for choices that are known, and for comparisons whose answer is known."""

from __future__ import annotations

from hlo_opt.ir import Instruction
from hlo_opt.ops.relations import RELATIONS
from hlo_opt.passes.simplify.ranges import bounds
from hlo_opt.passes.simplify.reading import is_a, is_integer, is_number, is_truth, uniform
from hlo_opt.passes.simplify.rule import rule
from hlo_opt.passes.simplify.site import Site

_OPPOSITE = {"LT": "GE", "GE": "LT", "GT": "LE", "LE": "GT", "EQ": "NE", "NE": "EQ"}
_SWAPPED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE", "EQ": "EQ", "NE": "NE"}


@rule("select-known", "select", "select(true, x, y) = x, select(false, x, y) = y", "it takes that one")
def select_known(i: Instruction, site: Site) -> Instruction | None:
    where, yes, no = i.operands
    if is_truth(where, True):
        return yes
    return no if is_truth(where, False) else None


@rule("select-same", "select", "select(p, x, x) = x", "both are the value")
def select_same(i: Instruction, site: Site) -> Instruction | None:
    _, yes, no = i.operands
    return yes if yes is no else None


@rule(
    "select-of-truths", "select", "select(p, true, false) = p, select(p, false, true) = not p", "those are its values"
)
def select_of_truths(i: Instruction, site: Site) -> Instruction | None:
    where, yes, no = i.operands
    if where.shape.dimensions != i.shape.dimensions:
        return None
    if is_truth(yes, True) and is_truth(no, False):
        return where
    return site.elementwise("not", where) if is_truth(yes, False) and is_truth(no, True) else None


@rule(
    "select-with-truth",
    "select",
    "select(p, true, y) = p | y, select(p, x, false) = p & x",
    "for truth values it is the same",
)
def select_with_truth(i: Instruction, site: Site) -> Instruction | None:
    where, yes, no = i.operands
    if where.shape.dimensions != i.shape.dimensions:
        return None
    if is_truth(yes, True):
        return site.elementwise("or", where, no)
    return site.elementwise("and", where, yes) if is_truth(no, False) else None


@rule("select-of-not", "select", "select(not p, x, y) = select(p, y, x)", "the choices change places")
def select_of_not(i: Instruction, site: Site) -> Instruction | None:
    where, yes, no = i.operands
    return site.again(i, [where.operands[0], no, yes]) if is_a(where, "not") else None


@rule(
    "select-within-select",
    "select",
    "select(p, select(p, x, y), z) = select(p, x, z), and so for the other",
    "the inner choice is made already",
)
def select_within_select(i: Instruction, site: Site) -> Instruction | None:
    where, yes, no = i.operands
    if is_a(yes, "select") and yes.operands[0] is where:
        return site.again(i, [where, yes.operands[1], no])
    if is_a(no, "select") and no.operands[0] is where:
        return site.again(i, [where, yes, no.operands[2]])
    return None


@rule(
    "not-compare",
    "not",
    "not (x < y) = x >= y for what is no float, not (x = y) = (x != y) for all",
    "only NaN is neither below nor not below",
)
def not_compare(i: Instruction, site: Site) -> Instruction | None:
    inner = i.operands[0]
    if not is_a(inner, "compare") or len(inner.users) > 1:
        return None
    direction, kind = inner.word("direction"), inner.operands[0].shape.type
    if direction not in ("EQ", "NE") and (kind.is_float or kind.is_complex):
        return None
    if "type" in inner.attributes and inner.word("type") == "TOTALORDER":
        return None
    return site.again(inner, inner.operands, direction=_OPPOSITE[direction])


@rule(
    "compare-itself",
    "compare",
    "x = x, x <= x, x >= x are true, and x != x, x < x, x > x false, for what is no float",
    "only NaN differs from itself",
)
def compare_itself(i: Instruction, site: Site) -> Instruction | None:
    left, right = i.operands
    if left is not right or not (left.shape.type.is_integer or left.shape.type.kind == "pred"):
        return None
    return site.full(i.shape, i.word("direction") in ("EQ", "LE", "GE"))


@rule("compare-never", "compare", "x < x is false for floats, too", "NaN compares false, and nothing lies below itself")
def compare_never(i: Instruction, site: Site) -> Instruction | None:
    left, right = i.operands
    if left is not right or not left.shape.type.is_float or i.word("direction") not in ("LT", "GT"):
        return None
    return site.full(i.shape, False)


@rule(
    "compare-with-truth",
    "compare",
    "(p = true) = p, (p != false) = p, (p = false) = not p, (p != true) = not p",
    "those are its values",
)
def compare_with_truth(i: Instruction, site: Site) -> Instruction | None:
    left, right = i.operands
    if is_truth(left, True) or is_truth(left, False):
        left, right = right, left
    direction = i.word("direction")
    if left.shape.type.kind != "pred" or direction not in ("EQ", "NE"):
        return None
    if is_truth(right, direction == "EQ"):
        return left
    return site.elementwise("not", left) if is_truth(right, direction == "NE") else None


@rule(
    "compare-with-bound",
    "compare",
    "x < least and x > greatest are false, x >= least and x <= greatest true, for integers",
    "no integer lies outside of its type",
)
def compare_with_bound(i: Instruction, site: Site) -> Instruction | None:
    left, right = i.operands
    if not left.shape.type.is_integer:
        return None
    least, most = left.shape.type.limits
    for number, direction in ((right, i.word("direction")), (left, _SWAPPED[i.word("direction")])):
        if is_integer(number, least) and direction in ("LT", "GE"):
            return site.full(i.shape, direction == "GE")
        if is_integer(number, most) and direction in ("GT", "LE"):
            return site.full(i.shape, direction == "LE")
    return None


@rule(
    "compare-absolute",
    "compare",
    "|x| < 0 is false, 0 > |x|, too",
    "no absolute value is below 0, and NaN compares false",
)
def compare_absolute(i: Instruction, site: Site) -> Instruction | None:
    left, right = i.operands
    for value, number, direction in ((left, right, i.word("direction")), (right, left, _SWAPPED[i.word("direction")])):
        if direction == "LT" and is_a(value, "abs") and value.shape.type.is_float and is_number(number, 0.0):
            return site.full(i.shape, False)
    return None


@rule(
    "compare-ranges",
    "compare",
    "x < y is true or false for integers that are known to lie apart, as a position and 0 do",
    "any of their values compare the same",
)
def compare_ranges(i: Instruction, site: Site) -> Instruction | None:
    left = bounds(i.operands[0])
    right = None if left is None else bounds(i.operands[1])
    if left is None or right is None:
        return None
    (a, b), (c, d) = left, right
    answer = {
        "LT": True if b < c else False if a >= d else None,
        "LE": True if b <= c else False if a > d else None,
        "GT": True if a > d else False if b <= c else None,
        "GE": True if a >= d else False if b < c else None,
        "EQ": False if b < c or a > d else None,
        "NE": True if b < c or a > d else None,
    }[i.word("direction")]
    return None if answer is None else site.full(i.shape, answer)


@rule(
    "compare-of-extreme",
    "compare",
    "max(x, y) > x = y > x, min(x, y) < x = y < x",
    "max(x, y) lies above x only where it is y; NaN compares false in both",
)
def compare_of_extreme(i: Instruction, site: Site) -> Instruction | None:
    left, right = i.operands
    for inner, x, direction in ((left, right, i.word("direction")), (right, left, _SWAPPED[i.word("direction")])):
        wanted = {"GT": "maximum", "LT": "minimum"}.get(direction)
        if inner.opcode != wanted or x not in inner.operands or not _is_ordered(i):
            continue
        y = inner.operands[1] if inner.operands[0] is x else inner.operands[0]
        return site.again(i, [y, x] if inner is left else [x, y])
    return None


def _is_ordered(i: Instruction) -> bool:
    """Whether a comparison is that of numbers, not the total order, in which -0 is below 0."""
    return "type" not in i.attributes or i.word("type") != "TOTALORDER"


@rule(
    "compare-of-choice",
    "compare",
    "compare(select(p, a, b), c) = p, not p, true or false for known a, b and c",
    "one of both comparisons is its value",
)
def compare_of_choice(i: Instruction, site: Site) -> Instruction | None:
    left, right = i.operands
    for inner, other, direction in ((left, right, i.word("direction")), (right, left, _SWAPPED[i.word("direction")])):
        if not is_a(inner, "select") or inner.operands[0].shape.dimensions != i.shape.dimensions or not _is_ordered(i):
            continue
        yes, no, number = uniform(inner.operands[1]), uniform(inner.operands[2]), uniform(other)
        if yes is None or no is None or number is None or inner.shape.type.is_complex:
            continue
        holds = RELATIONS[direction]
        first, second = bool(holds(yes, number)), bool(holds(no, number))
        if first == second:
            return site.full(i.shape, first)
        where = inner.operands[0]
        return where if first else site.elementwise("not", where)
    return None
