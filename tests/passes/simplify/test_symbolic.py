"""Rules proved by Z3 (extra `test`, package z3-solver): for all values of their types, and for all sizes.

Values: what a rule's examples are before and after the rule is written as a formula over bit vectors and floats,
element by element, from the modules themselves. Sizes: a rule whose index maps are affine is written as the two maps,
with sizes, starts and edges as unknown integers; that the code writes those maps is what the examples of `test_rules`
show.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from simplifier_examples import TYPES
from simplifier_modules import applied, module_of
from simplifier_wide_examples import EXAMPLES

from hlo_opt.ir import ElementType, Instruction, Module
from hlo_opt.passes.simplify.rule import rules

z3 = pytest.importorskip("z3", reason="z3-solver is not installed: nothing is proved over symbolic sizes")

LIMIT = 4000
"""Milliseconds for a proof."""
KINDS = ("pred", "s8", "u8", "s32", "u32", "f16")
ELEMENTWISE = ("identities", "integers", "selects", "converts")
PROVED_VALUES, PROVED_SIZES = 45, 20
"""Fewer proved rules are a failure."""


def proved(claim: Any, *given: Any) -> bool:
    """Whether a claim holds for all unknowns for which the conditions do; False where Z3 does not say."""
    solver = z3.Solver()
    solver.set("timeout", LIMIT)
    solver.add(*given, z3.Not(claim))
    return bool(solver.check() == z3.unsat)


# ---- values


def sort_of(kind: ElementType) -> Any:
    if kind.kind == "pred":
        return z3.BoolSort()
    return z3.FPSort(5, 11) if kind.is_float else z3.BitVecSort(kind.bits)


def number(value: Any, kind: ElementType) -> Any:
    if kind.kind == "pred":
        return z3.BoolVal(bool(value))
    if not kind.is_float:
        return z3.BitVecVal(int(value), kind.bits)
    bits = value.tobytes()
    return z3.fpBVToFP(z3.BitVecVal(int.from_bytes(bits, "little"), 16), sort_of(kind))


def term(i: Instruction, known: dict[Instruction, Any]) -> Any:
    """One element of an instruction, all of whose operands are read at the same place. Raises KeyError for an operation
    that is not elementwise."""
    if i not in known:
        kind, operands = i.shape.type, [term(o, known) for o in i.operands]
        if i.literal is not None and i.literal.value.size == 1:
            known[i] = number(i.literal.value.reshape(-1)[0], kind)
        elif i.opcode in ("broadcast", "reshape", "copy"):
            known[i] = operands[0]
        else:
            known[i] = operation(i, i.operands[0].shape.type, operands)
    return known[i]


def operation(i: Instruction, kind: ElementType, v: list[Any]) -> Any:
    signed, rounding = kind.kind == "signed", z3.RNE()
    if i.opcode == "compare":
        return compared(i.word("direction"), kind, *v)
    if i.opcode == "select":
        return z3.If(v[0], v[1], v[2])
    if i.opcode == "convert":
        return converted(v[0], kind, i.shape.type)
    if kind.kind == "pred":
        return {"and": z3.And, "or": z3.Or, "xor": z3.Xor, "not": z3.Not}[i.opcode](*v)
    if i.opcode in ("maximum", "minimum"):
        return extreme(i.opcode == "maximum", kind, *v)
    if i.opcode == "clamp":
        return extreme(False, kind, extreme(True, kind, v[1], v[0]), v[2])
    if kind.is_float:
        return {
            "add": lambda a, b: z3.fpAdd(rounding, a, b),
            "subtract": lambda a, b: z3.fpSub(rounding, a, b),
            "multiply": lambda a, b: z3.fpMul(rounding, a, b),
            "divide": lambda a, b: z3.fpDiv(rounding, a, b),
            "negate": z3.fpNeg,
            "abs": z3.fpAbs,
            "floor": lambda a: z3.fpRoundToIntegral(z3.RTN(), a),
            "ceil": lambda a: z3.fpRoundToIntegral(z3.RTP(), a),
        }[i.opcode](*v)
    zero, bits = z3.BitVecVal(0, kind.bits), kind.bits

    def shifted(value: Any, by: Any, shift: Callable[..., Any], beyond: Any) -> Any:
        return z3.If(z3.UGE(by, bits), beyond, shift(value, by))

    found: dict[str, Callable[..., Any]] = {
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
    return found[i.opcode](*v)


def compared(direction: str, kind: ElementType, a: Any, b: Any) -> Any:
    if kind.is_float:
        return {"LT": z3.fpLT, "LE": z3.fpLEQ, "GT": z3.fpGT, "GE": z3.fpGEQ, "EQ": z3.fpEQ, "NE": z3.fpNEQ}[direction](
            a, b
        )
    if direction in ("EQ", "NE"):
        return (a == b) if direction == "EQ" else (a != b)
    if kind.kind == "pred":
        a, b = (z3.If(x, z3.BitVecVal(1, 2), z3.BitVecVal(0, 2)) for x in (a, b))
    unsigned = {"LT": z3.ULT, "LE": z3.ULE, "GT": z3.UGT, "GE": z3.UGE}
    signed = {"LT": lambda x, y: x < y, "LE": lambda x, y: x <= y, "GT": lambda x, y: x > y, "GE": lambda x, y: x >= y}
    return (signed if kind.kind == "signed" else unsigned)[direction](a, b)


def extreme(greatest: bool, kind: ElementType, a: Any, b: Any) -> Any:
    """IEEE 754's maximum and minimum: NaN stays, and -0 lies below 0."""
    direction = "GT" if greatest else "LT"
    first = compared(direction, kind, a, b)
    if not kind.is_float:
        return z3.If(first, a, b)
    positive = z3.fpIsPositive(a) if greatest else z3.fpIsNegative(a)
    first = z3.Or(first, z3.And(z3.fpIsZero(a), z3.fpIsZero(b), positive))
    return z3.If(z3.fpIsNaN(a), a, z3.If(z3.fpIsNaN(b), b, z3.If(first, a, b)))


def converted(value: Any, source: ElementType, target: ElementType) -> Any:
    if source.is_float or target.is_float or target.kind == "pred":
        raise KeyError("convert")
    if source.kind == "pred":
        return z3.If(value, z3.BitVecVal(1, target.bits), z3.BitVecVal(0, target.bits))
    if target.bits <= source.bits:
        return z3.Extract(target.bits - 1, 0, value)
    more = target.bits - source.bits
    return z3.SignExt(more, value) if source.kind == "signed" else z3.ZeroExt(more, value)


def equal_for_all_values(before: Module, after: Module) -> bool | None:
    """None where a module does more than one element at a time, or what Z3 has no word for."""
    given = {
        p.parameter_number: z3.Const(f"p{p.parameter_number}", sort_of(p.shape.type)) for p in before.entry.parameters
    }
    sides = []
    for module in (before, after):
        known = {p: given[p.parameter_number] for p in module.entry.parameters}
        try:
            sides.append(term(module.entry.root, known))
        except (KeyError, IndexError, AttributeError, z3.Z3Exception):
            return None
    return proved(sides[0] == sides[1])


def rule_names() -> list[str]:
    return [n for n, r in rules().items() if r.family in ELEMENTWISE and r.is_exact and not EXAMPLES[n].rounds]


def test_rules_hold_for_all_values(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    found = []
    for name in rule_names():
        kinds = [k for group in EXAMPLES[name].kinds for k in TYPES[group] if k in KINDS]
        answers = []
        for kind in kinds:
            for line in EXAMPLES[name].fires:
                before = module_of(line, kind)
                after, _ = applied(before, rules()[name], monkeypatch)
                answers.append(equal_for_all_values(before, after))
        if answers and None not in answers and all(answers):
            found.append(name)
    with capsys.disabled():
        print(f"\n{len(found)} rules proved for all values of {', '.join(KINDS)}")
    assert len(found) >= PROVED_VALUES, found


def test_a_rule_that_is_wrong_is_not_proved() -> None:
    before = module_of("x: T[4]; k = T[] constant(0); n = T[4] broadcast(k), dimensions={}; T[4] add(x, n)", "f16")
    assert equal_for_all_values(before, module_of("x: T[4]; T[4] copy(x)", "f16")) is False


# ---- sizes


def ints(names: str) -> Any:
    return z3.Ints(names)


def inside(i: Any, n: Any) -> Any:
    return z3.And(i >= 0, i < n)


def cases() -> dict[str, tuple[Any, list[Any]]]:
    """For each rule: that both sides read the same element (`x` of its index, or the padding `v`), and the premises."""
    i, j, n, m, k, s, t, u, low, high, c, d = ints("i j n m k s t u low high c d")
    x = z3.Function("x", z3.IntSort(), z3.IntSort())
    y = z3.Function("y", z3.IntSort(), z3.IntSort())
    g = z3.Function("g", z3.IntSort(), z3.IntSort(), z3.IntSort())
    v = z3.Int("v")
    joined = lambda at: z3.If(at < n, x(at), y(at - n))  # noqa: E731
    padded = lambda at, by, size: z3.If(inside(at - by, size), x(at - by), v)  # noqa: E731
    return {
        "slice-of-slice": (x(s + (t + i * 2) * 3) == x(s + t * 3 + i * 6), [inside(i, n)]),
        "slice-of-concatenate": (z3.And(z3.Implies(s + i * 2 < n, joined(s + i * 2) == x(s + i * 2)),
            z3.Implies(s >= n, joined(s + i) == y(s - n + i))), [inside(i, k), s >= 0, n >= 0]),
        "slice-of-pad": (z3.And(z3.Implies(z3.And(s >= low, s - low + (k - 1) * 2 < n),
            padded(s + i * 2, low, n) == x(s - low + i * 2)), z3.Implies(s - low >= n, padded(s + i * 2, low, n) == v)),
                [inside(i, k), n >= 1]),
        "slice-of-reverse": (x(n - 1 - (s + i * 2)) == x((n - 1 - (s + (k - 1) * 2)) + (k - 1 - i) * 2),
            [inside(i, k), s >= 0]),
        "slice-between-parts": (joined(n + i) == y(i), [inside(i, m), n >= 0]),
        "reverse-of-reverse": (x(n - 1 - (n - 1 - i)) == x(i), [inside(i, n)]),
        "reverse-nothing": (x(n - 1 - i) == x(i), [inside(i, n), n == 1]),
        "concatenate-of-concatenate": (z3.If(i < n + m, joined(i), g(i - (n + m), 0)) == z3.If(i < n, x(i),
            z3.If(i < n + m, y(i - n), g(i - n - m, 0))), [inside(i, n + m + k), n >= 0, m >= 0]),
        "concatenate-of-slices": (z3.If(i < t - s, x(s + i), x(t + (i - (t - s)))) == x(s + i),
            [inside(i, u - s), s <= t, t <= u]),
        "concatenate-of-one": (z3.If(i < n, x(i), y(i - n)) == x(i), [inside(i, n + m), m == 0]),
        "pad-nothing": (padded(i, 0, n) == x(i), [inside(i, n)]),
        "pad-to-slice": (padded(i, low, n) == x(i - low), [inside(i, n + low + high), low <= 0, high <= 0]),
        "pad-of-pad": (z3.If(inside(i - c, low + n + high), padded(i - c, low, n), v) == padded(i, c + low, n),
            [inside(i, c + low + n + high + d), c >= 0, d >= 0, low >= 0, high >= 0, n >= 0]),
        "dynamic-slice-known": (x(z3.If(s < 0, 0, z3.If(s > n - k, n - k, s)) + i) == x(s + i),
            [inside(i, k), s >= 0, s <= n - k]),
        "update-all": (z3.If(inside(i - s, n), y(i - s), x(i)) == y(i), [inside(i, n), s == 0]),
        "update-by-own-slice": (z3.If(inside(i - s, k), x(s + (i - s)), x(i)) == x(i),
            [inside(i, n), s >= 0, s <= n - k]),
        "gather-rows-in-order": (g(z3.If(i < 0, 0, z3.If(i > n - 1, n - 1, i)), j) == g(i, j),
            [inside(i, n), inside(j, m)]),
        "gather-at-known-places": (x(s + (i / 2) * 3 - i % 2) == x(s + j * 3 - c),
            [i == j * 2 + c, inside(j, n), inside(c, 2)]),
        "compare-iota": (z3.And(i >= 0, z3.Implies(n <= k, i < k), z3.Implies(k <= 0, i >= k)), [inside(i, n)]),
        "remainder-within": (i % k == i, [inside(i, n), n <= k]),
        "remainder-of-more": ((i + k) % k == i % k, [inside(i, n), k > 0]),
    }  # fmt: skip


def test_index_maps_agree_for_all_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    found = cases()
    assert set(found) <= set(rules())
    holds = [name for name, (claim, given) in found.items() if proved(claim, *given)]
    with capsys.disabled():
        print(f"\n{len(holds)} rules proved over symbolic sizes")
    assert holds == list(found)
    assert len(holds) >= PROVED_SIZES


def test_a_wrong_map_is_not_proved() -> None:
    i, n, s = ints("i n s")
    x = z3.Function("x", z3.IntSort(), z3.IntSort())
    assert not proved(x(n - 1 - (s + i)) == x(s + (n - 1 - i)), inside(i, n), s >= 0)
