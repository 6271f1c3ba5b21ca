"""Inputs of a module: checked, flattened and unflattened; and random inputs that suit the operations that read them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hlo_opt.diag import EvaluationError
from hlo_opt.evaluate.wanted import wanted
from hlo_opt.ir import ElementType, Module, Shape
from hlo_opt.ir.values import Array, DType
from hlo_opt.ops.bounds import type_bounds
from hlo_opt.ops.dynamic import at_bound
from hlo_opt.ops.values import Value, leaves_of
from hlo_opt.ops.wishes import NONE, Wish, WishForm

Generator = np.random.Generator

NEAR_SHARE = 0.25
"""The share of elements put at or near the values in `Wish.near`, which decide something."""
SMALL_SHARE = 0.25
"""The share of rows with magnitudes as small as the constants added to them."""

FEWEST_SPECIAL, MOST_SPECIAL = 6, 0.25
"""Elements of a small array that are infinite or NaN where any are to be, and the greatest share of them: a small share
of few elements would be none."""

ENDS_SHARE = 0.125
"""The share of integers of their whole type that are its least or greatest: minus the least is no number of it."""

FEW_CHOICES = 9
"""A scalar index with fewer values than this takes them in turn, draw by draw: the branches of a conditional."""


@dataclass(frozen=True, slots=True)
class Style:
    """How one set of inputs is drawn.

    number    of the draw, which seeds its random numbers
    loudness  factor of the magnitude of unbounded floats
    mixed     each array gets a loudness of its own, up to `loudness`
    axis      the dimension along which rows get small magnitudes
    whole     floats are multiples of a quarter of their magnitude, so that sums tie and cancel; integers are 0 and 1
    sparse    half of the floats are 0, and more elements equal a deciding value, so that computed values tie too
    beyond    share of indices that are out of range
    special   share of floats that are infinite or NaN; where a wish asks for these, most elements are special or zero
    wide      integers of which no range is asked are any of their type, some of them the least or the greatest
    """

    number: int = 0
    loudness: float = 1.0
    mixed: bool = False
    axis: int = 0
    whole: bool = False
    sparse: bool = False
    beyond: float = 0.0
    special: float = 0.0
    wide: bool = False


PLAIN = Style()


def draw(generator: Generator, shape: Shape, wish: Wish = NONE, style: Style = PLAIN) -> Array:
    """A random array. Without a wish: normal floats and complex numbers, integers in 0..7 or -4..7 as far as they fit,
    random bits."""
    element_type, sizes = shape.type, shape.dimensions
    if element_type.kind == "pred":
        return generator.integers(0, 2, sizes).astype(np.bool_)
    if element_type.is_integer:
        return _integers(generator, shape, wish, style).astype(element_type.dtype)
    real = _matrix(generator, sizes, wish.form) if len(sizes) > 1 else None
    if real is None:
        parts = [_reals(generator, sizes, wish, style) for _ in range(1 + element_type.is_complex)]
        if style.special and wish.special:
            parts = _with_ends(generator, parts, (*ENDS, *wish.limits))
        real = parts[0]
        if element_type.is_complex:
            real = np.empty(sizes, np.complex128)
            real.real, real.imag = parts  # not `re + 1j * im`: 1j times infinity contains a NaN
    with np.errstate(all="ignore"):
        narrow = element_type.is_narrow_float
        return np.asarray(real.astype(np.float32) if narrow else real).astype(element_type.dtype)


# ---- floats


def _reals(generator: Generator, sizes: tuple[int, ...], wish: Wish, style: Style) -> Array:
    scale = 1.0 if wish.scale is None else wish.scale
    loudness = style.loudness
    if style.mixed:
        loudness = math.exp(generator.uniform(math.log(1e-4), math.log(loudness)))
    low, high = wish.low, wish.high
    x = np.asarray(generator.standard_normal(sizes))
    if style.whole and wish.integral:
        return np.asarray(np.copysign(np.ceil(2 * np.abs(x)), x))
    if low <= -scale and high >= scale:
        x = x * scale * loudness
    elif math.isfinite(low) and math.isfinite(high):
        x = low + generator.random(sizes) * (high - low)
    elif math.isfinite(low):
        x = low + np.exp(x) * scale * (loudness if low >= 0 else min(loudness, 1.0))
    elif math.isfinite(high):
        x = high - np.exp(x) * scale
    x = np.asarray(x)
    if style.whole and not (low >= 0 and wish.apart):
        step = max(scale * loudness, 1e-300) / 4
        x = np.asarray(np.round(x / step) * step)
    if wish.small > 0 and low <= 0 <= high:
        x = x * _smallness(generator, sizes, wish.small / scale, style.axis)
    if wish.near:
        near = [n for n in wish.near if math.isfinite(n)]
        x = _put_near(generator, x, near, scale * min(loudness, 1.0), style.sparse)
    if style.sparse and not wish.apart and low <= 0 <= high:
        x = np.asarray(np.where(generator.random(sizes) < 0.5, 0.0, x))
    if math.isfinite(low) or math.isfinite(high):
        x = np.asarray(np.clip(x, low, high))
    if wish.apart:
        least = 0.1 * scale
        x = np.asarray(np.where(np.abs(x) < least, x + np.copysign(least, x), x)) if low < 0 or not wish.small else x
    if style.special and low <= 0 <= high:
        # `_with_ends` adds those that are wished for
        least = 0.0 if wish.special else min(MOST_SPECIAL, FEWEST_SPECIAL / max(x.size, 1))
        share = max(style.special, least)
        where = generator.random(sizes) < share
        x = np.asarray(np.where(where, generator.choice([math.inf, -math.inf, math.nan], sizes), x))
    return _with_ties(x, wish.ties) if wish.ties and x.size > 1 else x


TIE_EVERY = 8
"""One in this many numbers that are to be rounded is a tie."""
ENDS = (math.inf, -math.inf, math.nan, 0.0, -0.0)
"""The values for which functions have special cases."""


def _with_ends(generator: Generator, parts: list[Array], ends: Sequence[float]) -> list[Array]:
    """Mix each of `ends` into each part, in turn, so that 36 complex numbers have every combination of `ENDS`."""
    number, kinds = generator.permutation(parts[0].size).reshape(parts[0].shape), len(ends) + 1
    turns = [number // kinds**k % kinds for k in range(len(parts))]
    return [
        np.asarray(np.select([t == k for k in range(len(ends))], ends, x)) for t, x in zip(turns, parts, strict=True)
    ]


def _with_ties(x: Array, digits: int) -> Array:
    """Let every eighth number be a half of its last digit, above even and odd ones."""
    fraction, exponent = np.frexp(x)
    halves = np.ldexp(np.floor(np.ldexp(fraction, digits)) + 0.5, exponent - digits)
    number = np.arange(x.size).reshape(x.shape)
    return np.where((number % TIE_EVERY == 0) & np.isfinite(x) & (x != 0), halves, x)


def _smallness(generator: Generator, sizes: tuple[int, ...], least: float, axis: int) -> Array:
    """Factors from 1 down to a quarter of `least`, one per row of a matrix or element of a vector."""
    rows = (*(size if d == axis % len(sizes) else 1 for d, size in enumerate(sizes)),) if len(sizes) > 1 else sizes
    lowest = math.log(min(least / 4, 1.0))
    factors = np.exp(generator.uniform(lowest, 0.0, rows))
    chosen = generator.random(rows) < SMALL_SHARE
    return np.where(chosen, factors, 1.0)


def _put_near(generator: Generator, x: Array, near: list[float], scale: float, exactly: bool) -> Array:
    """Replace some elements by one of the values, or by something within a hundredth of it or moderately near."""
    if not near:
        return x
    values = np.asarray(generator.choice(near, x.shape))
    aside = generator.standard_normal(x.shape)
    how = generator.integers(0, 1 if exactly else 3, x.shape)
    reach = np.where(values == 0, scale, np.abs(values))
    moved = np.asarray(
        values + np.where(how == 0, 0.0, np.where(how == 1, 0.01 * reach, 0.3 * np.maximum(reach, scale))) * aside
    )
    share = 0.5 if exactly or x.size < 2 else NEAR_SHARE
    return np.asarray(np.where(generator.random(x.shape) < share, moved, x))


def _matrix(generator: Generator, sizes: tuple[int, ...], form: WishForm) -> Array | None:
    """Matrices that can be factorized or solved; None where the wish does not ask for them."""
    if form not in (WishForm.DEFINITE, WishForm.TRIANGULAR) or sizes[-1] != sizes[-2]:
        return None
    x = generator.standard_normal(sizes)
    n = sizes[-1]
    if form is WishForm.DEFINITE:
        return np.asarray(x @ np.swapaxes(x, -1, -2) / max(n, 1) + np.eye(n))
    return np.asarray(x / max(n, 1) + 2 * np.eye(n))


# ---- integers


def _integers(generator: Generator, shape: Shape, wish: Wish, style: Style) -> Array:
    """Random integers within the type and the wish, as int64 or uint64."""
    least, most = (int(b) for b in type_bounds(shape))
    if shape.type.bits == 64:  # the bounds are floats, and inexact here
        least, most = (0, (1 << 64) - 1) if shape.type.kind == "unsigned" else (-(1 << 63), (1 << 63) - 1)
    sizes = shape.dimensions
    if wish.form is WishForm.BITS:
        return _within(generator, least, most, sizes)
    low = max(least, math.ceil(wish.low)) if math.isfinite(wish.low) else None
    high = min(most, math.floor(wish.high)) if math.isfinite(wish.high) else None
    if low is None and high is None and style.wide:
        low, high = least, most
    elif low is None and high is None:
        low, high = (0, 1) if style.whole else (max(-4, least), min(7, most))
    elif low is None:
        low = max(least, (high or 0) - 7)
    elif high is None:
        high = min(most, low + 7)
    assert low is not None and high is not None
    high = max(low, high)
    x = _within(generator, low, high, sizes)
    if style.wide and (low, high) == (least, most):
        ends = np.where(generator.integers(0, 2, sizes) == 0, np.asarray(low, x.dtype), np.asarray(high, x.dtype))
        x = np.asarray(np.where(generator.random(sizes) < ENDS_SHARE, ends, x))
    if not sizes and wish.form is WishForm.INDEX and high - low < FEW_CHOICES:
        return _in_turn(x, (low, high), (least, most), style.number)
    if wish.gap is not None:
        x = _out_of(x, low, wish.gap, style.number)
    if not sizes and wish.form is WishForm.INDEX and style.number in (2, 3):  # one end of the range
        return np.asarray(high if style.number == 3 else max(low, min(0, high)))
    if wish.form is WishForm.UNIQUE and x.size and high - low + 1 >= x.size:
        x = low + generator.permutation(high - low + 1)[: x.size].reshape(sizes) if high - low < 1 << 24 else x
    if wish.form is WishForm.SORTED:
        x = np.sort(x.reshape(-1)).reshape(sizes)
    if wish.near and wish.form is WishForm.ANY and not style.whole:
        x = _put_integers_near(generator, x, wish, least, most)
    is_index = wish.form in (WishForm.INDEX, WishForm.SORTED) and low >= -_LARGEST_INDEX and high <= _LARGEST_INDEX
    if style.beyond and is_index:
        x = _put_beyond(generator, x, (low, high), (least, most), style)
    return x


def _out_of(x: Array, low: int, gap: tuple[float, float], number: int) -> Array:
    """Move values in the gap into the range below it; a scalar only in every other draw."""
    last = int(gap[0])
    is_moved = (x > last) & (x < gap[1]) if x.shape else np.asarray(number % 2 == 1 and x > last)
    return np.asarray(np.where(is_moved, low + (x - low) % max(last - low + 1, 1), x))


def _in_turn(first: Array, range_: tuple[int, int], type_: tuple[int, int], number: int) -> Array:
    """A scalar with few choices: each draw takes the next one, and after all of them one beyond either end."""
    low, high = range_
    choices = [*range(low, high + 1), min(high + 1, type_[1]), max(low - 1, type_[0])]
    start = int(first) - low
    place = (start + number) % (high - low + 1) if number <= high - low else number % len(choices)
    return np.asarray(choices[place])


def _within(generator: Generator, low: int, high: int, sizes: tuple[int, ...]) -> Array:
    kind: Any = np.uint64 if high > np.iinfo(np.int64).max else np.int64
    return np.asarray(generator.integers(low, high, sizes, dtype=kind, endpoint=True))


def _put_integers_near(generator: Generator, x: Array, wish: Wish, least: int, most: int) -> Array:
    """Replace half of the elements by one of the values or its neighbour, or by anything between the values."""
    near = sorted({min(max(round(n), least), most) for n in wish.near if math.isfinite(n)})
    if not near:
        return x
    first, last = max(near[0] - 2, least), min(near[-1] + 2, most)
    around = np.asarray(
        generator.choice(np.array(near, x.dtype), x.shape) + generator.integers(-1, 2, x.shape).astype(x.dtype)
    )
    anywhere = _within(generator, first, last, x.shape).astype(x.dtype)
    how = generator.integers(0, 4, x.shape)
    moved = np.clip(np.where(how == 0, around, np.where(how == 1, anywhere, x)), least, most)
    if math.isfinite(wish.low) or math.isfinite(wish.high):
        moved = np.clip(moved, max(wish.low, least), min(wish.high, most)).astype(x.dtype)
    return np.asarray(moved)


_LARGEST_INDEX = 1 << 60
"""The largest end of a range that values are put beyond. A larger number is no index, and what is beyond it may be no
64-bit integer."""


_BEYOND_AN_END = (1, 4)
"""The numbers of the draws in which scalar indices are before and beyond their range."""


def _put_beyond(generator: Generator, x: Array, range_: tuple[int, int], type_: tuple[int, int], style: Style) -> Array:
    """Move some indices just beyond one end, or far beyond it; a scalar always in two styles, at one end in each."""
    low, high = range_
    least, most = type_
    far = max(high - low, 1)
    below = low - 1 - generator.integers(0, far + 1, x.shape)
    above = high + 1 + generator.integers(0, 2, x.shape) * generator.integers(0, far + 1, x.shape)
    outside = np.clip(np.where(generator.integers(0, 2, x.shape) == 0, below, above), least, most).astype(x.dtype)
    share = style.beyond if x.shape else 0.25
    if not x.shape and style.number in _BEYOND_AN_END:
        share, outside = 1.0, np.clip((below, above)[_BEYOND_AN_END.index(style.number)], least, most).astype(x.dtype)
    return np.asarray(np.where(generator.random(x.shape) < share, outside, x))


def input_shapes(module: Module) -> list[Shape]:
    """The shapes of the entry's parameters, tuples flattened, without tokens."""
    return [leaf for p in module.entry.parameters for leaf in p.shape.leaves() if leaf.is_array]


def flatten(value: Value) -> list[Array]:
    """The arrays of a value, depth first; empty tuples and tokens contribute none."""
    return [np.asarray(leaf) for leaf in leaves_of(value)]


def unflatten(shapes: Iterable[Shape], arrays: Iterable[Array]) -> list[Value]:
    """Rebuild one value per shape from a flat list of arrays. Raises StopIteration when there are too few."""
    rest = iter(arrays)
    return [_build(shape, rest) for shape in shapes]


def _build(shape: Shape, rest: Iterator[Array]) -> Value:
    """One value, nested like its shape; the parser bounds the depth."""
    if shape.elements is not None:
        return tuple(_build(element, rest) for element in shape.elements)
    if not shape.is_array:
        return ()
    return at_bound(shape, next(rest)) if any(shape.dynamic) else next(rest)


def checked(module: Module, inputs: Sequence[Any], shapes: Sequence[Shape] | None = None) -> list[Array]:
    """The inputs as arrays of the parameters' types. `shapes` saves looking them up where they are known.

    Converts Python numbers and lists; copies arrays of CuPy to the host. An array must have the parameter's type
    already, or hold the raw bits of a type that NumPy lacks. Raises EvaluationError (HLO401) where number, type or
    dimensions differ.
    """
    shapes = input_shapes(module) if shapes is None else shapes
    if len(inputs) != len(shapes):
        raise EvaluationError(
            f"the module takes {len(shapes)} inputs, but {len(inputs)} are given",
            code="HLO401",
            hint="tuple parameters are flattened in order: one input per array",
        )
    return [
        checked_array(number, shape, value) for number, (shape, value) in enumerate(zip(shapes, inputs, strict=True))
    ]


def checked_array(number: int, shape: Shape, value: Any) -> Array:
    """One input, checked and converted as `checked` does."""
    dtype = shape.type.dtype
    if type(value) is np.ndarray and value.dtype == dtype and value.shape == shape.dimensions:
        return value
    if _is_of_cupy(value):
        value = as_numpy(value)
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        if array.dtype != dtype and is_raw(shape.type) and array.dtype == raw_dtype(shape.type):
            array = array.view(dtype)
    else:
        try:
            array = np.asarray(value)
            array = array if hasattr(value, "__array__") else array.astype(dtype)
        except (TypeError, ValueError) as fault:
            raise EvaluationError(f"in{number} is not an array of {shape.type}: {fault}", code="HLO401") from fault
    if array.dtype != dtype or not _fits(array.shape, shape):
        expected = f"{shape.type}[{','.join(map(str, shape.dimensions))}]"
        raise EvaluationError(
            f"in{number} is {array.dtype}[{','.join(map(str, array.shape))}], expected {expected} ({dtype})",
            code="HLO401",
        )
    return array


def as_numpy(value: Any) -> Array:
    """Any library's array as a NumPy array on the host."""
    return np.asarray(value.get() if _is_of_cupy(value) else value)


def _is_of_cupy(value: Any) -> bool:
    """Whether a value is a CuPy array, which does not convert to NumPy implicitly."""
    return not isinstance(value, np.ndarray) and hasattr(value, "__cuda_array_interface__") and hasattr(value, "get")


def _fits(sizes: tuple[int, ...], shape: Shape) -> bool:
    """Whether sizes equal the declared ones; in a dynamic dimension, are within the bound."""
    if sizes == shape.dimensions:
        return True
    open_ = shape.dynamic or (False,) * shape.rank
    return len(sizes) == shape.rank and all(
        a == b or b < 0 or (o and a < b) for a, b, o in zip(sizes, shape.dimensions, open_, strict=True)
    )


def is_raw(element_type: ElementType) -> bool:
    """Whether files store the type as raw bits because NumPy lacks it."""
    return element_type.dtype.kind == "V" or element_type.dtype.isbuiltin != 1


def raw_dtype(element_type: ElementType) -> DType:
    """The unsigned integer type that stores an element's raw bits."""
    return np.dtype(f"uint{element_type.dtype.itemsize * 8}")


def module_inputs(module: Module, seed: int = 0, *, device: int = 0, style: Style = PLAIN) -> list[Array]:
    """Random inputs for the entry that suit the operations that read them (see `hlo_opt.ops.wishes`).

    Determined by seed, simulated device and style. Raises EvaluationError (HLO401) for a parameter of unbounded size.
    """
    for parameter in module.entry.parameters:
        if any(size < 0 for leaf in parameter.shape.leaves() for size in leaf.dimensions):
            raise EvaluationError(
                f"cannot draw parameter {parameter.name}: {parameter.shape.without_layout()} has no bound",
                code="HLO401",
                span=module.span(parameter),
                hint="pass the inputs",
            )
    parts = [seed, device, style.number] if style.number else [seed, device] if device else seed
    generator = np.random.default_rng(parts)
    return [
        draw(generator, shape, wish, style) for shape, wish in zip(input_shapes(module), wanted(module), strict=True)
    ]
