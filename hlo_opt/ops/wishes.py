"""The operations' requirements for the values of their operands: the `samples` face, one rule per opcode.

A rule gets the wish for the result and returns wishes for the operands: positive under a logarithm, near the bound of a
comparison, within the table that indices point into. `hlo_opt.evaluate.wanted` propagates wishes from results to
parameters, `hlo_opt.evaluate.inputs` draws accordingly. A wish is not a guarantee: where consumers disagree or nothing
is known, inputs are drawn without it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol

from hlo_opt.ir import Called, ElementType, Instruction

Bounds = tuple[float, float]
ANYTHING: Bounds = (-math.inf, math.inf)
MOST_NEAR = 12
"""The most values in `Wish.near`; further ones are dropped."""


class WishForm(Enum):
    """The kind of values: any; all bits of a word; indices (a few out of bounds); unique indices; sorted; a size, never
    out of bounds; a symmetric positive definite matrix; a triangular one."""

    ANY = "any"
    BITS = "bits"
    INDEX = "index"
    UNIQUE = "unique"
    SORTED = "sorted"
    SIZE = "size"
    DEFINITE = "definite"
    TRIANGULAR = "triangular"


@dataclass(frozen=True, slots=True)
class Wish:
    """The requirements for the values of an array.

    low, high  the range in which all readers are defined; for indices, the range in bounds
    scale      the magnitude of floats; None: 1
    small      a constant of this magnitude is added later, so smaller values do not matter; 0: none
    near       values that decide something: draw them and their neighbourhood
    apart      it is a divisor: not too near 0
    gap        for indices partly counted from the end: the open interval of indices that none of the readers accept
    special    readers have special cases for infinities, NaN and signed zeros
    limits     where `special`: further values with special cases, as the limits of an integer type
    ties       digits of the narrower floats that readers round to: draw halves of their last digit too; 0: none
    integral   base or exponent of a power: where draws are of whole numbers, these are integers of both signs
    """

    low: float = -math.inf
    high: float = math.inf
    scale: float | None = None
    small: float = 0.0
    near: tuple[float, ...] = ()
    apart: bool = False
    form: WishForm = WishForm.ANY
    gap: Bounds | None = None
    special: bool = False
    limits: tuple[float, ...] = ()
    ties: int = 0
    integral: bool = False

    def __and__(self, other: Wish) -> Wish:
        """The wish that meets both; where ranges are disjoint (branches of a select), the union of the ranges."""
        if self is NONE or self == other:
            return other
        if other is NONE:
            return self
        low, high = max(self.low, other.low), min(self.high, other.high)
        gap = self.gap or other.gap
        if low > high:
            gap = (high, low) if self.form is other.form is WishForm.INDEX else gap
            low, high = min(self.low, other.low), max(self.high, other.high)
        scales = [s for s in (self.scale, other.scale) if s is not None]
        smalls = [s for s in (self.small, other.small) if s > 0]
        return Wish(
            low,
            high,
            min(scales, default=None),
            min(smalls, default=0.0),
            tuple(dict.fromkeys((*self.near, *other.near)))[:MOST_NEAR],
            self.apart or other.apart,
            other.form if self.form is WishForm.ANY else self.form,
            gap,
            self.special or other.special,
            tuple(dict.fromkeys((*self.limits, *other.limits))),
            max(self.ties, other.ties),
            (self.integral or self.low < 0) and (other.integral or other.low < 0) and (self.integral or other.integral),
        )

    def through(self, back: Callable[[float], float | None]) -> Wish:
        """The wish for x, given this wish for f(x). `back` is the inverse of the monotonic f; None or an error where
        undefined."""

        def inverse(value: float) -> float | None:
            try:
                image = back(value)
            except (ValueError, OverflowError, ZeroDivisionError):
                return None
            return None if image is None or math.isnan(image) else image

        ends = [e for e in (inverse(self.low), inverse(self.high)) if e is not None]
        low, high = (min(ends), max(ends)) if len(ends) == 2 else ANYTHING
        near = tuple(n for n in map(inverse, self.near) if n is not None and math.isfinite(n))
        return replace(self, low=low, high=high, near=near, gap=None, limits=(), ties=0, integral=False)

    @property
    def is_bounded(self) -> bool:
        return math.isfinite(self.low) and math.isfinite(self.high)


NONE = Wish()
POSITIVE = Wish(low=0.0)


class Known(Protocol):
    """Static knowledge about values."""

    def bounds(self, instruction: Instruction) -> Bounds:
        """Bounds of all elements."""

    def is_weight(self, instruction: Instruction) -> bool:
        """Whether it is a parameter of the entry, perhaps moved or converted."""


WishRule = Callable[[Instruction, Wish, Known], Sequence[Wish]]
"""(instruction, wish for its result, what is known) -> wishes for the operands; missing ones at the end are `NONE`."""


def constant(known: Known, instruction: Instruction) -> float | None:
    """The finite value that all elements share; None where they differ or are unknown."""
    low, high = known.bounds(instruction)
    return low if low == high and math.isfinite(low) else None


# ---- operations that pass values on


def _same(i: Instruction, w: Wish, known: Known) -> list[Wish]:
    return [w] * len(i.operands)


def _always(*wishes: Wish) -> WishRule:
    """A rule with fixed wishes, whatever the wish for the result."""
    return lambda i, w, known: wishes


def _also_near(*values: float) -> WishRule:
    """A rule for rounding operations: also draw near the values where they jump."""
    return lambda i, w, known: [replace(w, near=(*w.near, *values)[:MOST_NEAR])]


def _starts(i: Instruction, first: int, sizes: Sequence[int]) -> list[Wish]:
    if len(i.operands) - first != len(sizes):  # start indices in one vector
        room = min((d - s for d, s in zip(i.operands[0].shape.dimensions, sizes, strict=False)), default=0)
        return [Wish(0.0, float(max(room, 0)), form=WishForm.INDEX)]
    rooms = [d - s for d, s in zip(i.operands[0].shape.dimensions, sizes, strict=False)]
    return [Wish(0.0, float(max(room, 0)), form=WishForm.INDEX) for room in rooms]


def _scatter(i: Instruction, w: Wish, known: Known) -> list[Wish]:
    count = len(i.operands) // 2
    removed = {*i.ints("inserted_window_dims"), *i.ints("input_batching_dims")}
    window = i.ints("update_window_dims")
    updates = i.operands[-1].shape.dimensions
    inside = iter([updates[d] for d in window if d < len(updates)])
    rank = i.operands[0].shape.rank
    sizes = [1 if d in removed else next(inside, 1) for d in range(rank)]
    values = replace(w, near=())
    return [values] * count + [_indices(i, sizes)] + [values] * count


def _indices(i: Instruction, sizes: Sequence[int]) -> Wish:
    source = i.operands[0].shape.dimensions
    dims = i.ints("start_index_map") or i.ints("scatter_dims_to_operand_dims")
    rooms = [source[d] - sizes[d] for d in dims if d < min(len(source), len(sizes))]
    form = WishForm.INDEX
    if i.value("unique_indices", False) is True:
        form = WishForm.UNIQUE
    elif i.value("indices_are_sorted", False) is True:
        form = WishForm.SORTED
    return Wish(0.0, float(max(min(rooms, default=0), 0)), form=form)


def _set_size(i: Instruction, w: Wish, known: Known) -> list[Wish]:
    dimension = (*i.ints("dimensions"), 0)[0]
    sizes = i.operands[0].shape.dimensions
    return [w, Wish(0.0, float(sizes[dimension]) if dimension < len(sizes) else 0.0, form=WishForm.SIZE)]


# ---- arithmetic


def is_special(i: Instruction) -> bool:
    """Whether an operation has special cases for infinities, NaN and signed zeros: complex functions, conversions to
    integers."""
    types = [o.shape.type for o in i.operands if o.shape.is_array]
    if i.opcode in ("convert", "stochastic-convert"):
        return types[0].is_float and i.shape.type.is_integer
    return i.opcode in _OF_COMPLEX and types[0].is_complex


_OF_COMPLEX = frozenset(
    [
        *("abs", "atan2", "cosine", "cosh", "divide", "exponential", "exponential-minus-one", "log", "log-plus-one"),
        *("logistic", "power", "rsqrt", "sign", "sine", "sinh", "sqrt", "tan", "tanh"),
    ]
)


def _add(i: Instruction, w: Wish, known: Known) -> list[Wish]:
    a, b = i.operands
    for number, other in ((0, b), (1, a)):
        c = constant(known, other)
        if c is not None:
            own = w.through(lambda v, c=c: v - c)  # type: ignore[misc]
            if 0 < abs(c) < 0.1 and i.shape.type.is_float:
                own = replace(own, small=min(abs(c), own.small or abs(c)))
            return [own] if number == 0 else [NONE, own]
    return _nonnegative(i, w, known)


def _nonnegative(i: Instruction, w: Wish, known: Known) -> list[Wish]:
    """Wishes for sums and products: both operands non-negative where the result must be and no sign is known.

    Deciding values pass through, as the other term may be 0, the other factor 1.
    """
    passed = Wish(scale=w.scale, small=w.small, near=w.near)
    if w.low < 0 or known.bounds(i)[0] >= 0:
        return [passed, passed]
    return [passed if known.bounds(o)[0] >= 0 else replace(passed, low=0.0) for o in i.operands]


def _subtract(i: Instruction, w: Wish, known: Known) -> list[Wish]:
    a, b = i.operands
    right, left = constant(known, b), constant(known, a)
    if right is not None:
        return [w.through(lambda v: v + right)]
    if left is not None:
        own = w.through(lambda v: left - v)
        return [NONE, replace(own, near=(*own.near, left) if w.apart else own.near, apart=False)]
    return [Wish(scale=w.scale, near=w.near), Wish(scale=w.scale, near=tuple(-n for n in w.near))]


def _multiply(i: Instruction, w: Wish, known: Known) -> list[Wish]:
    a, b = i.operands
    if a is b:
        near = tuple(math.sqrt(n) for n in w.near if n >= 0)
        scale = None if w.scale is None else math.sqrt(w.scale)
        return [Wish(scale=scale, small=math.sqrt(w.small), near=(*near, *(-n for n in near)), apart=w.apart)] * 2
    for number, other in ((0, b), (1, a)):
        c = constant(known, other)
        if c:
            own = _scaled(w.through(lambda v, c=c: v / c), 1 / abs(c))  # type: ignore[misc]
            return [own] if number == 0 else [NONE, own]
    return [replace(p, apart=w.apart) for p in _nonnegative(i, w, known)]


def _scaled(w: Wish, factor: float) -> Wish:
    return replace(w, scale=None if w.scale is None else w.scale * factor, small=w.small * factor)


def _divide(i: Instruction, w: Wish, known: Known) -> list[Wish]:
    b = i.operands[1]
    c = constant(known, b)
    if c:
        return [_scaled(w.through(lambda v: v * c), abs(c))]
    low, high = known.bounds(b)
    divisor = NONE if low > 0 or high < 0 else Wish(low=0.0 if low >= 0 else -math.inf, apart=True)
    numerator = _nonnegative(i, w, known)[0]
    if w.low >= 0 and low < 0:
        divisor = replace(divisor, low=0.0)
    return [replace(numerator, apart=w.apart), divisor]


def _remainder(i: Instruction, w: Wish, known: Known) -> list[Wish]:
    low, high = known.bounds(i.operands[1])
    return [Wish(scale=4.0), NONE if low > 0 or high < 0 else Wish(scale=2.0, apart=True)]


def _abs(i: Instruction, w: Wish, known: Known) -> list[Wish]:
    near = tuple(n for n in w.near if n >= 0)
    limit = w.high if w.high >= 0 else math.inf
    return [Wish(-limit, limit, w.scale, w.small, (*near, *(-n for n in near)), w.apart or w.low > 0)]


def _power(i: Instruction, w: Wish, known: Known) -> list[Wish]:
    base, exponent = i.operands
    c = constant(known, exponent)
    if c is not None:
        if c == int(c) and c % 2 == 0:
            return [Wish(scale=w.scale, apart=c < 0, small=w.small ** (1 / c) if c > 0 and w.small else 0.0)]
        return [NONE if c == int(c) else POSITIVE]
    c = constant(known, base)
    # step counts start at 1: 1 - base^0 would be 0
    steps = Wish(low=1.0 if w.near or w.apart else -math.inf, high=8.0)
    return [NONE, steps] if c is not None else [Wish(low=0.0, integral=True), Wish(scale=2.0, integral=True)]


def _function(
    low: float = -math.inf,
    high: float = math.inf,
    scale: float | None = None,
    back: Callable[[float], float | None] | None = None,
    near: tuple[float, ...] = (),
    apart: bool = False,
) -> WishRule:
    """The rule of a unary function with domain [low, high] and inverse `back`."""

    def rule(i: Instruction, w: Wish, known: Known) -> list[Wish]:
        passed = NONE if back is None else w.through(back)
        own = Wish(max(low, passed.low), min(high, passed.high), scale, 0.0, (*passed.near, *near), apart)
        if own.low > own.high:
            own = replace(own, low=low, high=high)
        small = w.small
        if back is not None and small > 0:
            try:
                small = abs(back(small) or 0.0)
            except (ValueError, OverflowError):
                small = 0.0
        return [replace(own, small=small if low == 0.0 else 0.0)]

    return rule


def _between(i: Instruction, w: Wish, known: Known) -> list[Wish]:
    low, _, high = i.operands
    ends = [c for c in (constant(known, low), constant(known, high)) if c is not None]
    return [Wish(high=0.0), replace(w, near=(*w.near, *ends)), Wish(low=0.0)]


def _extreme(i: Instruction, w: Wish, known: Known) -> list[Wish]:
    wishes = []
    for other in reversed(i.operands):
        c = constant(known, other)
        kept = replace(w, low=-math.inf, high=math.inf) if c is not None else w
        wishes.append(kept if c is None else replace(kept, near=(*kept.near, c)))
    return wishes


def _compare(i: Instruction, w: Wish, known: Known) -> list[Wish]:
    wishes = []
    for operand, other in zip(i.operands, reversed(i.operands), strict=True):
        c = constant(known, other)
        low, high = known.bounds(other)
        if operand.shape.is_array and operand.shape.type.kind == "pred":
            wishes.append(NONE)
        elif c is not None:
            wishes.append(Wish(near=(c,)))
        elif math.isfinite(low) and math.isfinite(high) and operand.shape.type.is_integer:
            wishes.append(Wish(low, high, form=WishForm.INDEX))
        else:
            wishes.append(Wish(near=(0.0, 1.0)))
    return wishes


# ---- bits


def _bits(i: Instruction, w: Wish, known: Known) -> list[Wish]:
    return [Wish(form=WishForm.BITS) if o.shape.is_array and o.shape.type.is_integer else NONE for o in i.operands]


def _convert(i: Instruction, w: Wish, known: Known) -> list[Wish]:
    source, target = i.operands[0].shape.type, i.shape.type
    if source.kind == "pred":
        return [NONE]
    if target.kind == "pred":
        return [Wish(near=(0.0,))]
    if source.is_integer and source.bits <= 8 and not target.is_integer and w == NONE:
        return [Wish(form=WishForm.BITS)]  # an image, or a quantised weight
    own = w if w.form is not WishForm.BITS or source.is_integer else NONE
    if source.is_float and target.is_integer:
        low, high = target.limits
        return [replace(own, limits=(float(low), float(high + 1), float(low - 1)))]
    if target.is_narrow_float and source.is_float and source.bits > target.bits:
        return [replace(own, ties=_digits(target))]
    return [own]


def _digits(element_type: ElementType) -> int:
    """The binary digits of a float type."""
    import ml_dtypes

    return int(ml_dtypes.finfo(element_type.dtype).nmant) + 1


def _rng_uniform(i: Instruction, w: Wish, known: Known) -> list[Wish]:
    if i.word("distribution") == "rng_normal":
        return [NONE, Wish(low=0.0)]
    return [Wish(high=0.0, scale=0.5), Wish(low=0.0, scale=0.5)]


# ---- contractions and reductions


def _dot(i: Instruction, w: Wish, known: Known) -> list[Wish]:
    left, right = i.operands[:2]
    dimensions = i.ints("lhs_contracting_dims")
    fan_in = math.prod(max(left.shape.dimensions[d], 1) for d in dimensions if d < left.shape.rank)
    if i.ints("lhs_batch_dims"):
        return [Wish(scale=w.scale)] * 2
    return _weighted(known, left, right, fan_in, w)


def _convolution(i: Instruction, w: Wish, known: Known) -> list[Wish]:
    left, right = i.operands[:2]
    features = max(i.shape.dimensions, default=1)
    sizes = right.shape.dimensions
    fan_in = math.prod(max(s, 1) for s in sizes) / max(min(features, max(sizes, default=1)), 1)
    return _weighted(known, left, right, fan_in, w)


def _weighted(known: Known, left: Instruction, right: Instruction, fan_in: float, w: Wish) -> list[Wish]:
    """Scale one operand so that the sums have the magnitude of the other: the weights if known, else the right one."""
    weights = Wish(scale=1.0 / math.sqrt(max(fan_in, 1.0)))
    if any(math.isfinite(sum(known.bounds(o))) for o in (left, right)):
        return []  # a lookup table
    return [weights, NONE] if known.is_weight(left) and not known.is_weight(right) else [NONE, weights]


def reducer(i: Instruction) -> str:
    """The opcode of a single-operation reducer, "" for others."""
    called = i.attributes.get("to_apply")
    if not isinstance(called, Called):
        return ""
    root = called.computations[0].root
    return root.opcode if all(o.parameter_number is not None for o in root.operands) else ""


def _reduce(i: Instruction, w: Wish, known: Known) -> list[Wish]:
    half = len(i.operands) // 2
    with_ = reducer(i)
    if with_ in ("maximum", "minimum"):
        return [w] * half
    if with_ != "add":
        return [NONE] * half
    # a small sum of many terms needs small terms
    count = max(i.operands[0].shape.element_count, 1) / max(i.shape.element_count, 1) if i.shape.is_array else 1.0
    low = 0.0 if w.low >= 0 and known.bounds(i.operands[0])[0] < 0 else -math.inf
    return [Wish(low=low, small=w.small / max(count, 1.0), scale=w.scale)] * half


# ---- linear algebra and calls


def _batch_norm(variance: int) -> WishRule:
    def rule(i: Instruction, w: Wish, known: Known) -> list[Wish]:
        epsilon = i.value("epsilon", 0.0)
        small = epsilon if isinstance(epsilon, float) else 0.0
        wishes = [NONE] * len(i.operands)
        wishes[0] = Wish(small=math.sqrt(small) if small > 0 else 0.0)
        if 0 <= variance < len(wishes):
            wishes[variance] = Wish(low=0.0, small=small)
        return wishes

    return rule


def _custom(i: Instruction, w: Wish, known: Known) -> list[Wish]:
    """CHLO functions left as custom calls; other calls take random words, as generator states do."""
    target = i.word("custom_call_target").removeprefix("mhlo.")
    rule = RULES.get(target)
    if rule is not None and target != "custom-call":
        return list(rule(i, w, known))
    return [
        Wish(form=WishForm.BITS) if o.shape.is_array and o.shape.type.name in ("u32", "u64") else NONE
        for o in i.operands
    ]


_HANDS_ON = [
    *("reshape", "transpose", "broadcast", "slice", "copy", "reverse", "reduce-precision", "copy-start"),
    *("copy-done", "dynamic-reshape", "real", "imag", "all-gather", "all-reduce", "all-to-all", "collective-permute"),
    *("collective-broadcast", "reduce-scatter", "domain", "add-dependency"),
]

_SHIFTS = ("shift-left", "shift-right-logical", "shift-right-arithmetic")
RULES: Mapping[str, WishRule] = {
    **dict.fromkeys(_HANDS_ON, lambda i, w, known: [w]),
    **dict.fromkeys(("concatenate", "pad", "complex"), _same),
    **dict.fromkeys(("and", "or", "xor", "not", "mulhi", "popcnt", "count-leading-zeros", "bitcast-convert"), _bits),
    **dict.fromkeys(
        _SHIFTS,
        lambda i, w, known: [Wish(form=WishForm.BITS), Wish(0.0, float(i.shape.type.bits - 1), form=WishForm.INDEX)],
    ),
    **dict.fromkeys(("maximum", "minimum"), _extreme),
    **dict.fromkeys(("reduce", "reduce-window"), _reduce),
    **dict.fromkeys(("floor", "ceil"), _also_near(-2.0, -1.0, 0.0, 1.0)),
    **dict.fromkeys(("round-nearest-afz", "round-nearest-even"), _also_near(-1.5, -0.5, 0.5, 1.5)),
    **dict.fromkeys(("sine", "cosine"), _function(scale=3.0)),
    "abs": _abs,
    "acos": _function(-1.0, 1.0),
    "acosh": _function(1.0),
    "add": _add,
    "asin": _function(-1.0, 1.0),
    "atanh": _function(-0.99, 0.99),
    "bitcast": lambda i, w, known: [w] if i.shape.type == i.operands[0].shape.type else _bits(i, w, known),
    "batch-norm-grad": _batch_norm(3),
    "batch-norm-inference": _batch_norm(4),
    "batch-norm-training": _batch_norm(-1),
    "cbrt": _function(back=lambda v: v**3),
    "cholesky": _always(Wish(form=WishForm.DEFINITE)),
    "clamp": _between,
    "compare": _compare,
    "convert": _convert,
    "convolution": _convolution,
    "cosh": _function(scale=2.0),
    "custom-call": _custom,
    "divide": _divide,
    "dot": _dot,
    "dynamic-slice": lambda i, w, known: [w, *_starts(i, 1, i.ints("dynamic_slice_sizes"))],
    "dynamic-update-slice": lambda i, w, known: [w, w, *_starts(i, 2, i.operands[1].shape.dimensions)],
    "erf": _function(scale=1.0),
    "exponential": _function(high=80.0, scale=1.0, back=lambda v: math.log(v) if v > 0 else None),
    "exponential-minus-one": _function(high=80.0, scale=1.0, back=lambda v: math.log1p(v) if v > -1 else None),
    "gather": lambda i, w, known: [w, _indices(i, i.ints("slice_sizes"))],
    "is-finite": _always(Wish(near=(math.inf, -math.inf))),
    "log": _function(0.0, apart=True),
    "log-plus-one": _function(-1.0, back=lambda v: math.expm1(v) if abs(v) < 50 else None),
    "logistic": _function(scale=2.0, back=lambda v: math.log(v / (1 - v)) if 0 < v < 1 else None),
    "multiply": _multiply,
    "negate": lambda i, w, known: [w.through(lambda v: -v)],
    "power": _power,
    "remainder": _remainder,
    "rng-bit-generator": _bits,
    "rng": _rng_uniform,
    "rsqrt": _function(0.0, apart=True),
    "scatter": _scatter,
    "select": lambda i, w, known: [NONE, w, w],
    "set-dimension-size": _set_size,
    "sinh": _function(scale=2.0),
    "sqrt": _function(0.0, back=lambda v: v * v if v >= 0 else 0.0),
    "stochastic-convert": lambda i, w, known: [*_convert(i, w, known), Wish(form=WishForm.BITS)],
    "subtract": _subtract,
    "tan": _function(-1.5, 1.5),
    "tanh": _function(scale=1.0, back=lambda v: math.atanh(v) if abs(v) < 1 else None),
    "triangular-solve": _always(Wish(form=WishForm.TRIANGULAR), NONE),
}
