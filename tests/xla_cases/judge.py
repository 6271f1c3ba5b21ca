"""Compares cases with XLA:CPU, bit by bit or within the ULP that the op table declares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np

import hlo_opt
from hlo_opt.ir import ELEMENT_TYPES
from hlo_opt.ops import OpKind, find
from xla_cases.case import NAMES, Array, Case, module_of
from xla_cases.doubts import BOUNDS, DOUBTS, QUIETENS

EXACT_PARTS = frozenset(
    {"add", "complex", "convert", "copy", "divide", "imag", "multiply", "negate", "real", "select", "subtract"}
)
"""Opcodes whose complex results must have both parts right where one is NaN; elsewhere a number with a NaN in it is
NaN."""
MOVES = frozenset({OpKind.MOVEMENT, OpKind.CONTROL, OpKind.INDEXING})
KEEPS_BITS = frozenset({"select", "copy", "bitcast-convert", "complex", "sort", "topk"})
"""Elementwise and ordering opcodes whose NaNs must come through bit for bit; scatter, which computes, is no mover."""


@dataclass(frozen=True)
class Difference:
    """A case that is further off than it may be. `ulp` is the worst distance, `math.inf` for a wrong NaN, infinity or
    sign of zero."""

    case: Case
    output: int
    ulp: float
    message: str

    def __str__(self) -> str:
        return f"{self.case}: out{self.output} is {self.ulp:g} ULP off: {self.message}"


def keys(array: Array) -> Array:
    """Integers that count a float type's values in order; both zeros are 0."""
    bits = np.ascontiguousarray(array).view(f"uint{8 * array.dtype.itemsize}").reshape(array.shape).astype(np.uint64)
    width = ELEMENT_TYPES[NAMES[array.dtype]].bits
    magnitude = (bits & np.uint64((1 << (width - 1)) - 1)).astype(np.int64)
    if NAMES[array.dtype] == "f8e8m0fnu":  # no sign
        return (bits & np.uint64(255)).astype(np.int64)
    return np.where(bits >> np.uint64(width - 1) & np.uint64(1), -magnitude, magnitude)


def apart(ours: Array, theirs: Array, *, both_parts: bool = True, unit: float = 0.0) -> Array:
    """The distance in ULP of each element; infinite for a wrong NaN or a wrong sign of zero; any difference of integers
    counts as infinite.

    both_parts  whether a complex number with one part NaN must have the other one right
    unit        complex numbers smaller than this are measured by the ULP of it
    """
    if ours.dtype.kind in "biu" or ELEMENT_TYPES[NAMES[ours.dtype]].is_integer:
        return np.where(ours == theirs, 0.0, np.inf)
    if ours.dtype.kind == "c":
        return _complex_apart(ours, theirs, both_parts, unit)
    left, right = keys(ours), keys(theirs)
    high, low = np.maximum(left, right), np.minimum(left, right)
    distance = (high.view(np.uint64) - low.view(np.uint64)).astype(np.float64)
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    distance = np.where(np.isnan(a) | np.isnan(b), np.where(np.isnan(a) & np.isnan(b), 0.0, np.inf), distance)
    zeros = (a == 0) & (b == 0) & (np.signbit(a) != np.signbit(b))
    return np.where(zeros, np.inf, distance)


def _complex_apart(ours: Array, theirs: Array, both_parts: bool, unit: float) -> Array:
    """In ULP of the modulus; parts that are not finite must be the same."""
    parts = np.maximum(apart(ours.real.copy(), theirs.real.copy()), apart(ours.imag.copy(), theirs.imag.copy()))
    settled = ~(np.isfinite(ours) & np.isfinite(theirs))
    with np.errstate(all="ignore"):
        wide = theirs.astype(np.complex128)
        size = np.maximum(np.abs(wide), max(unit, float(np.finfo(ours.dtype).smallest_normal)))
        whole = np.abs(ours.astype(np.complex128) - wide) / (size * np.finfo(ours.dtype).eps)
    found = np.where(settled, parts, np.minimum(parts, whole))
    return found if both_parts else np.where(np.isnan(ours) & np.isnan(theirs), 0.0, found)


def flushed(array: Array) -> Array:
    """Denormal numbers as zeros of their sign, in the types whose denormal numbers are those of the processor."""
    name = NAMES[array.dtype]
    if array.dtype.kind == "c":
        result = np.array(array)
        result.real, result.imag = flushed(array.real.copy()), flushed(array.imag.copy())
        return result
    if name not in ("f32", "f64", "bf16", "f8e8m0fnu"):
        return array
    wide = array.astype(np.float64)
    least = float(np.finfo(np.float64 if name == "f64" else np.float32).smallest_normal)
    return np.where(np.abs(wide) < least, np.copysign(0.0, wide), wide).astype(array.dtype)


def tolerance_of(case: Case, dtype: np.dtype[np.generic]) -> float:
    """ULP for an output."""
    if (case.opcode, case.type) in BOUNDS:
        return BOUNDS[case.opcode, case.type].ulp
    return declared(case, dtype)


def declared(case: Case, dtype: np.dtype[np.generic]) -> float:
    """ULP that the op table declares."""
    spec = find(case.opcode)
    assert spec is not None
    assert spec.tolerance is not None, f"{case.opcode} declares no tolerance"
    return spec.tolerance(ELEMENT_TYPES[NAMES[dtype]])


def compare(cases: Sequence[Case]) -> Verdict:
    """Evaluates the cases in one module, here and on XLA:CPU, and says where they differ.

    XLA:CPU takes denormal numbers for zero and makes none (it sets the processor's flags so). HLO does not ask for that
    and GPUs do not do it, so the reference keeps them: an element is right when it is XLA's, or XLA's for inputs and
    results with denormal numbers flushed.
    """
    from scripts.xla_cpu import Program

    text, inputs = module_of(cases)
    theirs = Program(text, optimized=False)(inputs)
    module = hlo_opt.parse(text)
    hlo_opt.verify(module)

    @cache
    def with_flushed_inputs() -> list[Array]:
        return hlo_opt.evaluate(module, [flushed(array) for array in inputs])

    verdict = Verdict()
    with np.errstate(all="ignore"):
        ours = iter(enumerate(zip(hlo_opt.evaluate(module, inputs), theirs, strict=True)))
        for case in cases:
            for output in range(len(case.results)):
                at, (mine, other) = next(ours)
                verdict.add(_judged(case, output, mine, other, lambda at=at: with_flushed_inputs()[at], verdict))
    return verdict


@dataclass
class Verdict:
    """What differs, and which doubts and bounds were needed, as (opcode, element type, reason)."""

    differences: list[Difference] = field(default_factory=list)
    needed: set[tuple[str, str, str]] = field(default_factory=set)

    def add(self, found: Difference | None) -> None:
        if found is not None:
            self.differences.append(found)


def _judged(
    case: Case, output: int, mine: Array, other: Array, again: Callable[[], Array], verdict: Verdict
) -> Difference | None:
    assert mine.shape == other.shape, f"{case}: {mine.shape} and {other.shape}"
    if mine.dtype != other.dtype:
        # XLA:CPU hands some integers out as the unsigned ones of their size
        assert mine.dtype.itemsize == other.dtype.itemsize and mine.dtype.kind == "i", (
            f"{case}: {mine.dtype} and {other.dtype}"
        )
        other = other.view(mine.dtype)
    both_parts, bound = case.opcode in EXACT_PARTS, BOUNDS.get((case.opcode, case.type))
    limit, unit = tolerance_of(case, mine.dtype), bound.unit if bound is not None else 0.0
    far = apart(mine, other, both_parts=both_parts)
    if (far > limit).any():
        far = np.minimum(far, apart(flushed(again()), flushed(other), both_parts=both_parts))
    if bound is not None and (far > declared(case, mine.dtype)).any():
        verdict.needed.add((case.opcode, case.type, bound.reason))
        far = np.minimum(far, apart(mine, other, both_parts=both_parts, unit=unit))
    doubted = np.zeros(far.shape, bool)
    for doubt in DOUBTS:
        if doubt.covers(case) and (far > limit).any():
            doubted = doubt.where(case, mine, other) & (far > limit)
            if doubted.any():
                verdict.needed.add((case.opcode, case.type, doubt.reason))
            far = np.where(doubted, 0.0, far)
    if (far > limit).any():
        return _difference(case, output, far, limit, mine, other)
    if (
        _keeps_bits(case)
        and not doubted.any()
        and not same_bits(mine, other)
        and not same_bits(mine, other, flushed(mine), flushed(again()))
    ):
        return Difference(case, output, np.inf, "NaNs or zeros have other bits")
    return None


def _keeps_bits(case: Case) -> bool:
    spec = find(case.opcode)
    if case.type in QUIETENS:
        return False
    return spec is not None and ((spec.kind in MOVES and case.opcode != "scatter") or case.opcode in KEEPS_BITS)


def same_bits(ours: Array, *others: Array) -> bool:
    """Whether every element of the first of the others, XLA's, has the bits of one of ours, denormal numbers flushed or
    not."""
    theirs, *also = others
    width = f"V{ours.dtype.itemsize}"
    left, right, *more = (np.ascontiguousarray(a).reshape(-1).view(width) for a in (ours, theirs, *also))
    same = left == right
    for other in more:
        same |= (other == right) | (other == np.ascontiguousarray(flushed(theirs)).reshape(-1).view(width))
    return bool(same.all())


def _difference(case: Case, output: int, far: Array, limit: float, ours: Array, theirs: Array) -> Difference:
    worst = np.argsort(far.reshape(-1), kind="stable")[::-1]
    shown = [int(k) for k in worst[:4] if far.reshape(-1)[k] > limit]
    said = []
    for k in shown:
        place = np.unravel_index(k, far.shape)
        operands = [str(x[place]) for x in case.inputs if x.shape == far.shape]
        said.append(f"{'('}{', '.join(operands)}) -> {ours[place]}, XLA {theirs[place]}")
    count = int((far > limit).sum())
    return Difference(case, output, float(far.max()), f"{count} of {far.size} above {limit:g}: " + "; ".join(said))
