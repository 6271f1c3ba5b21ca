"""Random well-typed modules over the whole op table, for property tests: `@given(modules())`.

Each opcode has a recipe that makes one instruction of it, with operands that exist already or new parameters and constants. A module is a
few instructions, each by a recipe that Hypothesis draws. What comes out verifies, prints, and is read by XLA's parser.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st

from hlo_opt.ir import (
    ELEMENT_TYPES,
    Attribute,
    Called,
    Computation,
    ElementType,
    Instruction,
    Layout,
    Literal,
    Metadata,
    Module,
    PaddingDimension,
    Quoted,
    Raw,
    Shape,
    SliceDimension,
    Window,
    WindowDimension,
    edit,
)

FLOATS = ("f16", "bf16", "f32", "f64")
INTEGERS = ("s8", "u8", "s16", "s32", "u32", "s64", "u64")
COMPLEX = ("c64", "c128")
NUMBERS = (*INTEGERS, *FLOATS, *COMPLEX)
EVERYTHING = ("pred", *NUMBERS)
TOKEN, U32, S32, PRED = (Shape(ELEMENT_TYPES[n]) for n in ("token", "u32", "s32", "pred"))

Draw = Callable[..., object]
Recipe = Callable[["Builder"], Instruction]
RECIPES: dict[str, Recipe] = {}


def arr(name: str | ElementType, *dimensions: int) -> Shape:
    """An array with the default layout."""
    element_type = ELEMENT_TYPES[name] if isinstance(name, str) else name
    return Shape(element_type, dimensions, Layout(tuple(reversed(range(len(dimensions))))) if dimensions else None)


def tup(*elements: Shape) -> Shape:
    return Shape.tuple_of(*elements)


class Builder:
    """A module that grows."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.module = Module("random")
        self.entry = Computation("entry")
        self.numbers = 0
        self.groups = [1]

    # ---- drawing

    def pick(self, items):
        return self.draw(st.sampled_from(tuple(items)))

    def number(self, least: int, most: int) -> int:
        return self.draw(st.integers(least, most))

    def flag(self) -> bool:
        return self.draw(st.booleans())

    def dimensions(self, least: int = 0, most: int = 3) -> tuple[int, ...]:
        return tuple(self.draw(st.lists(st.integers(1, 4), min_size=least, max_size=most)))

    def array(self, names, least: int = 0, most: int = 3) -> Shape:
        shape = arr(self.pick(names), *self.dimensions(least, most))
        if shape.rank > 1 and self.number(0, 3) == 0:
            order = tuple(self.draw(st.permutations(range(shape.rank))))
            return Shape(shape.element_type, shape.dimensions, Layout(order))
        return shape

    # ---- making

    def value(self, shape: Shape) -> Instruction:
        """Something of a shape: what is there already, a constant, or a new parameter."""
        found = [i for i in self.entry.instructions if i.shape == shape]
        if found and self.number(0, 2):
            return self.pick(found)
        if shape.is_array and shape.element_count <= 8 and self.number(0, 2) == 0:
            return self.constant(shape)
        number = self.numbers
        self.numbers += 1
        return edit.create(self.entry, self.module.unique_name("p"), "parameter", shape, parameter_number=number)

    def constant(self, shape: Shape) -> Instruction:
        values = [self.number(0, 9) for _ in range(shape.element_count)]
        value = np.array(values).astype(shape.type.dtype).reshape(shape.dimensions)
        return self.emit("constant", shape, [], literal=Literal(shape, value=value))

    def emit(self, opcode: str, shape: Shape, operands, *, literal: Literal | None = None, **attributes) -> Instruction:
        given = {
            name: value if isinstance(value, Called) else Attribute.of(value)
            for name, value in attributes.items()
            if value is not None
        }
        name = self.module.unique_name(opcode)
        return edit.create(self.entry, name, opcode, shape, operands, given, literal=literal)

    def computation(self, shapes, body: Callable[[Computation, list[Instruction]], Instruction]) -> Computation:
        """A computation with parameters of these shapes and a body that gives its root."""
        made = Computation(self.module.unique_name("called"))
        parameters = [
            edit.create(made, self.module.unique_name(f"a{n}"), "parameter", shape, parameter_number=n)
            for n, shape in enumerate(shapes)
        ]
        edit.set_root(made, body(made, parameters))
        return edit.add_computation(self.module, made)

    def reducer(self, element_type: ElementType) -> Called:
        scalar = Shape(element_type)
        opcode = "or" if element_type.name == "pred" else self.pick(["add", "multiply"])
        return Called(
            self.computation(
                [scalar, scalar], lambda c, p: edit.create(c, self.module.unique_name("sum"), opcode, scalar, p)
            )
        )

    def comparator(self, *types: ElementType) -> Called:
        scalars = [Shape(t) for t in types for _ in range(2)]
        less = {"direction": Attribute.of("LT")}
        return Called(
            self.computation(
                scalars, lambda c, p: edit.create(c, self.module.unique_name("less"), "compare", PRED, p[:2], less)
            )
        )

    def unary(self, shape: Shape, opcode: str = "copy") -> Computation:
        return self.computation([shape], lambda c, p: edit.create(c, self.module.unique_name("one"), opcode, shape, p))

    def channel(self) -> dict[str, object]:
        return {"channel_id": self.number(1, 9)} if self.flag() else {}

    def decorate(self, made: Instruction) -> None:
        """Attributes that every instruction may carry. XLA prints the statistics of an async one twice, and cannot read that."""
        shared = {
            "metadata": Metadata(op_name=self.draw(st.text(max_size=8)), source_line=self.number(0, 9)),
            "sharding": Raw("{replicated}"),
            "frontend_attributes": Raw('{a="b",c={"d": [1]}}'),
            "backend_config": Raw('{"a": {"b": "}"}}'),
            "statistics": Raw("{visualizing_index=0,x=1.5}"),
            "origin": Raw('{{"before" {0}}}'),
        }
        for name in self.draw(st.lists(st.sampled_from(sorted(shared)), unique=True, max_size=2)):
            if name not in made.attributes and not (name == "statistics" and made.opcode.startswith("async")):
                edit.set_attribute(made, name, Attribute.of(shared[name]))


def recipe(*opcodes: str) -> Callable[[Callable[[Builder, str], Instruction]], None]:
    """Register a function as the recipe of opcodes; it is told which."""

    def register(function: Callable[[Builder, str], Instruction]) -> None:
        for opcode in opcodes:
            RECIPES[opcode] = lambda builder, opcode=opcode: function(builder, opcode)

    return register


# ---- elementwise


def _unary(names: tuple[str, ...], *opcodes: str) -> None:
    @recipe(*opcodes)
    def make(b: Builder, opcode: str) -> Instruction:
        shape = b.array(names)
        return b.emit(opcode, shape, [b.value(shape)])


def _binary(names: tuple[str, ...], *opcodes: str) -> None:
    @recipe(*opcodes)
    def make(b: Builder, opcode: str) -> Instruction:
        shape = b.array(names)
        return b.emit(opcode, shape, [b.value(shape), b.value(shape)])


_unary(
    FLOATS,
    "ceil",
    "erf",
    "floor",
    "round-nearest-afz",
    "round-nearest-even",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atanh",
    "cosh",
    "sinh",
)
_unary(
    (*FLOATS, "c64"),
    "cosine",
    "exponential",
    "exponential-minus-one",
    "log",
    "log-plus-one",
    "logistic",
    "rsqrt",
    "sine",
    "sqrt",
    "tan",
    "tanh",
)
_unary(FLOATS, "cbrt")
_unary(("s8", "s16", "s32", "s64", *FLOATS), "sign")
_unary(NUMBERS, "negate")
_unary(INTEGERS, "count-leading-zeros", "popcnt")
_unary(("pred", *INTEGERS), "not")
_unary(EVERYTHING, "copy", "opt-barrier")
_binary(NUMBERS, "add", "multiply", "subtract", "divide", "power")
_binary((*INTEGERS, *FLOATS), "maximum", "minimum", "remainder")
_binary(FLOATS, "atan2")
_binary(("pred", *INTEGERS), "and", "or", "xor")
_binary(INTEGERS, "shift-left", "shift-right-arithmetic", "shift-right-logical", "mulhi")


@recipe("abs")
def _abs(b: Builder, opcode: str) -> Instruction:
    shape = b.array((*INTEGERS, *FLOATS))
    return b.emit(opcode, shape, [b.value(shape)])


@recipe("real", "imag")
def _part(b: Builder, opcode: str) -> Instruction:
    shape = b.array(COMPLEX)
    part = ELEMENT_TYPES["f32" if shape.type.bits == 64 else "f64"]
    return b.emit(opcode, shape.with_type(part), [b.value(shape)])


@recipe("complex")
def _complex(b: Builder, opcode: str) -> Instruction:
    shape = b.array(("f32", "f64"))
    whole = ELEMENT_TYPES["c64" if shape.type.bits == 32 else "c128"]
    return b.emit(opcode, shape.with_type(whole), [b.value(shape), b.value(shape)])


@recipe("is-finite")
def _is_finite(b: Builder, opcode: str) -> Instruction:
    shape = b.array(FLOATS)
    return b.emit(opcode, shape.with_type(PRED.type), [b.value(shape)])


@recipe("compare")
def _compare(b: Builder, opcode: str) -> Instruction:
    shape = b.array((*INTEGERS, *FLOATS))
    direction = b.pick(("EQ", "NE", "LT", "LE", "GT", "GE"))
    return b.emit(opcode, shape.with_type(PRED.type), [b.value(shape), b.value(shape)], direction=direction)


@recipe("select")
def _select(b: Builder, opcode: str) -> Instruction:
    shape = b.array(EVERYTHING)
    return b.emit(opcode, shape, [b.value(shape.with_type(PRED.type)), b.value(shape), b.value(shape)])


@recipe("clamp")
def _clamp(b: Builder, opcode: str) -> Instruction:
    shape = b.array((*INTEGERS, *FLOATS))
    bound = shape if b.flag() else Shape(shape.type)
    return b.emit(opcode, shape, [b.value(bound), b.value(shape), b.value(bound)])


@recipe("convert")
def _convert(b: Builder, opcode: str) -> Instruction:
    shape = b.array((*INTEGERS, *FLOATS))
    return b.emit(opcode, shape.with_type(ELEMENT_TYPES[b.pick(NUMBERS)]), [b.value(shape)])


@recipe("bitcast-convert")
def _bitcast_convert(b: Builder, opcode: str) -> Instruction:
    shape = b.array(("s32", "u32", "f32"))
    return b.emit(opcode, shape.with_type(ELEMENT_TYPES[b.pick(("s32", "u32", "f32"))]), [b.value(shape)])


@recipe("stochastic-convert")
def _stochastic_convert(b: Builder, opcode: str) -> Instruction:
    shape = b.array(("f32",))
    target = shape.with_type(ELEMENT_TYPES[b.pick(("s8", "s16", "bf16"))])
    return b.emit(opcode, target, [b.value(shape), b.value(shape.with_type(U32.type))])


@recipe("reduce-precision")
def _reduce_precision(b: Builder, opcode: str) -> Instruction:
    shape = b.array(FLOATS)
    return b.emit(opcode, shape, [b.value(shape)], exponent_bits=b.number(1, 8), mantissa_bits=b.number(0, 7))


@recipe("map")
def _map(b: Builder, opcode: str) -> Instruction:
    shape = b.array(FLOATS)
    body = b.unary(Shape(shape.type), "negate")
    return b.emit(opcode, shape, [b.value(shape)], dimensions=tuple(range(shape.rank)), to_apply=Called(body))


# ---- movement


@recipe("broadcast")
def _broadcast(b: Builder, opcode: str) -> Instruction:
    shape = b.array(EVERYTHING)
    kept = tuple(d for d in range(shape.rank) if b.flag())
    source = arr(shape.type, *(shape.dimensions[d] for d in kept))
    return b.emit(opcode, shape, [b.value(source)], dimensions=kept)


@recipe("reshape", "bitcast")
def _reshape(b: Builder, opcode: str) -> Instruction:
    shape = arr(b.pick(EVERYTHING), *b.dimensions())
    flat = arr(shape.type, math.prod(shape.dimensions))
    return b.emit(opcode, flat, [b.value(shape)])


@recipe("dynamic-reshape")
def _dynamic_reshape(b: Builder, opcode: str) -> Instruction:
    shape = arr(b.pick(FLOATS), b.number(1, 4))
    return b.emit(opcode, shape, [b.value(shape), b.value(S32)])


@recipe("transpose")
def _transpose(b: Builder, opcode: str) -> Instruction:
    shape = arr(b.pick(EVERYTHING), *b.dimensions())
    order = tuple(b.draw(st.permutations(range(shape.rank))))
    result = arr(shape.type, *(shape.dimensions[d] for d in order))
    return b.emit(opcode, result, [b.value(shape)], dimensions=order)


@recipe("reverse")
def _reverse(b: Builder, opcode: str) -> Instruction:
    shape = b.array(EVERYTHING)
    return b.emit(opcode, shape, [b.value(shape)], dimensions=tuple(d for d in range(shape.rank) if b.flag()))


@recipe("slice")
def _slice(b: Builder, opcode: str) -> Instruction:
    shape = arr(b.pick(EVERYTHING), *b.dimensions())
    ranges = []
    for size in shape.dimensions:
        start = b.number(0, size - 1)
        ranges.append(SliceDimension(start, b.number(start + 1, size), b.number(1, 2)))
    sizes = [-(-(r.limit - r.start) // r.stride) for r in ranges]
    return b.emit(opcode, arr(shape.type, *sizes), [b.value(shape)], slice=tuple(ranges))


@recipe("pad")
def _pad(b: Builder, opcode: str) -> Instruction:
    shape = arr(b.pick(EVERYTHING), *b.dimensions(1))
    padding = tuple(PaddingDimension(b.number(0, 2), b.number(0, 2), b.number(0, 1)) for _ in shape.dimensions)
    sizes = [s + p.low + p.high + p.interior * (s - 1) for s, p in zip(shape.dimensions, padding, strict=True)]
    return b.emit(opcode, arr(shape.type, *sizes), [b.value(shape), b.value(Shape(shape.type))], padding=padding)


@recipe("concatenate")
def _concatenate(b: Builder, opcode: str) -> Instruction:
    shape = arr(b.pick(EVERYTHING), *b.dimensions(1))
    along, count = b.number(0, shape.rank - 1), b.number(1, 3)
    sizes = list(shape.dimensions)
    sizes[along] *= count
    return b.emit(opcode, arr(shape.type, *sizes), [b.value(shape) for _ in range(count)], dimensions=(along,))


@recipe("iota")
def _iota(b: Builder, opcode: str) -> Instruction:
    shape = b.array((*INTEGERS, *FLOATS), 1)
    return b.emit(opcode, shape, [], iota_dimension=b.number(0, shape.rank - 1))


@recipe("dynamic-slice")
def _dynamic_slice(b: Builder, opcode: str) -> Instruction:
    shape = arr(b.pick(EVERYTHING), *b.dimensions(1))
    sizes = tuple(b.number(1, s) for s in shape.dimensions)
    starts = [b.value(S32) for _ in sizes]
    return b.emit(opcode, arr(shape.type, *sizes), [b.value(shape), *starts], dynamic_slice_sizes=sizes)


@recipe("dynamic-update-slice")
def _dynamic_update_slice(b: Builder, opcode: str) -> Instruction:
    shape = arr(b.pick(EVERYTHING), *b.dimensions(1))
    update = arr(shape.type, *(b.number(1, s) for s in shape.dimensions))
    return b.emit(opcode, shape, [b.value(shape), b.value(update), *(b.value(S32) for _ in shape.dimensions)])


@recipe("get-dimension-size")
def _get_dimension_size(b: Builder, opcode: str) -> Instruction:
    shape = b.array(EVERYTHING, 1)
    return b.emit(opcode, S32, [b.value(shape)], dimensions=(b.number(0, shape.rank - 1),))


@recipe("set-dimension-size")
def _set_dimension_size(b: Builder, opcode: str) -> Instruction:
    shape = arr(b.pick(EVERYTHING), *b.dimensions(1))
    along = b.number(0, shape.rank - 1)
    dynamic = tuple(d == along for d in range(shape.rank))
    result = Shape(shape.element_type, shape.dimensions, shape.layout, dynamic)
    return b.emit(opcode, result, [b.value(shape), b.value(S32)], dimensions=(along,))


@recipe("gather")
def _gather(b: Builder, opcode: str) -> Instruction:
    rows, columns, count = b.number(1, 4), b.number(1, 4), b.number(1, 4)
    operand, indices = b.value(arr("f32", rows, columns)), b.value(arr("s32", count, 1))
    return b.emit(
        opcode, arr("f32", count, columns), [operand, indices],
        offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,), index_vector_dim=1, slice_sizes=(1, columns),
        indices_are_sorted=True if b.flag() else None,
    )  # fmt: skip


@recipe("scatter")
def _scatter(b: Builder, opcode: str) -> Instruction:
    rows, columns, count = b.number(1, 4), b.number(1, 4), b.number(1, 4)
    operands = [b.value(arr("f32", rows, columns)), b.value(arr("s32", count, 1)), b.value(arr("f32", count, columns))]
    return b.emit(
        opcode, arr("f32", rows, columns), operands,
        update_window_dims=(1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,), index_vector_dim=1,
        unique_indices=True if b.flag() else None, to_apply=b.reducer(ELEMENT_TYPES["f32"]),
    )  # fmt: skip


# ---- reductions and products


@recipe("reduce")
def _reduce(b: Builder, opcode: str) -> Instruction:
    shape = arr(b.pick((*INTEGERS, *FLOATS, "pred")), *b.dimensions())
    over = tuple(d for d in range(shape.rank) if b.flag())
    result = arr(shape.type, *(s for d, s in enumerate(shape.dimensions) if d not in over))
    operands = [b.value(shape), b.value(Shape(shape.type))]
    return b.emit(opcode, result, operands, dimensions=over, to_apply=b.reducer(shape.type))


@recipe("reduce-window")
def _reduce_window(b: Builder, opcode: str) -> Instruction:
    shape = arr(b.pick(FLOATS), *b.dimensions(1))
    window = Window(tuple(WindowDimension(b.number(1, s), pad_high=b.number(0, 1)) for s in shape.dimensions))
    sizes = [s + w.pad_high - w.size + 1 for s, w in zip(shape.dimensions, window.dimensions, strict=True)]
    operands = [b.value(shape), b.value(Shape(shape.type))]
    return b.emit(opcode, arr(shape.type, *sizes), operands, window=window, to_apply=b.reducer(shape.type))


@recipe("select-and-scatter")
def _select_and_scatter(b: Builder, opcode: str) -> Instruction:
    size = b.number(1, 4)
    shape, source = arr("f32", 2 * size), arr("f32", size)
    element_type = ELEMENT_TYPES["f32"]
    return b.emit(
        opcode, shape, [b.value(shape), b.value(source), b.value(Shape(element_type))],
        window=Window((WindowDimension(2, stride=2),)), select=b.comparator(element_type), scatter=b.reducer(element_type),
    )  # fmt: skip


@recipe("sort")
def _sort(b: Builder, opcode: str) -> Instruction:
    shape = b.array((*INTEGERS, *FLOATS), 1)
    along = (b.number(0, shape.rank - 1),)
    stable = True if b.flag() else None
    if b.flag():
        other = shape.with_type(S32.type)
        less = b.comparator(shape.type, S32.type)
        operands = [b.value(shape), b.value(other)]
        return b.emit(opcode, tup(shape, other), operands, dimensions=along, is_stable=stable, to_apply=less)
    less = b.comparator(shape.type)
    return b.emit(opcode, shape, [b.value(shape)], dimensions=along, is_stable=stable, to_apply=less)


@recipe("topk")
def _topk(b: Builder, opcode: str) -> Instruction:
    size = b.number(1, 4)
    k = b.number(1, size)
    result = tup(arr("f32", k), arr("s32", k))
    return b.emit(opcode, result, [b.value(arr("f32", size))], k=k, largest=b.flag())


@recipe("scan")
def _scan(b: Builder, opcode: str) -> Instruction:
    size = b.number(1, 4)
    scalar = arr("f32")

    def body(c: Computation, p: list[Instruction]) -> Instruction:
        total = edit.create(c, b.module.unique_name("sum"), "add", scalar, p)
        return edit.create(c, b.module.unique_name("both"), "tuple", tup(scalar, scalar), [total, total])

    step = b.computation([scalar, scalar], body)
    operands = [b.value(arr("f32", size)), b.value(scalar)]
    return b.emit(
        opcode, tup(arr("f32", size), scalar), operands, dimensions=(0,), num_carries=1, to_apply=Called(step)
    )


@recipe("dot")
def _dot(b: Builder, opcode: str) -> Instruction:
    m, k, n = b.number(1, 4), b.number(1, 4), b.number(1, 4)
    name = b.pick(FLOATS)
    operands = [b.value(arr(name, m, k)), b.value(arr(name, k, n))]
    precision = Raw("{highest,default}") if b.flag() else None
    return b.emit(
        opcode,
        arr(name, m, n),
        operands,
        lhs_contracting_dims=(1,),
        rhs_contracting_dims=(0,),
        operand_precision=precision,
    )


@recipe("ragged-dot")
def _ragged_dot(b: Builder, opcode: str) -> Instruction:
    m, k, n, g = (b.number(1, 4) for _ in range(4))
    operands = [b.value(arr("f32", m, k)), b.value(arr("f32", g, k, n)), b.value(arr("s32", g))]
    return b.emit(
        opcode, arr("f32", m, n), operands,
        lhs_contracting_dims=(1,), rhs_contracting_dims=(1,), lhs_ragged_dims=(0,), rhs_group_dims=(0,),
    )  # fmt: skip


@recipe("scaled-dot")
def _scaled_dot(b: Builder, opcode: str) -> Instruction:
    m, k, n = b.number(1, 4), b.number(1, 4), b.number(1, 4)
    shapes = [arr("f8e4m3fn", m, k), arr("f8e4m3fn", k, n), arr("bf16", m, k), arr("bf16", k, n)]
    operands = [b.value(s) for s in (shapes[0], shapes[1], shapes[2], shapes[3])]
    return b.emit(opcode, arr("f32", m, n), operands, lhs_contracting_dims=(1,), rhs_contracting_dims=(0,))


@recipe("convolution")
def _convolution(b: Builder, opcode: str) -> Instruction:
    n, f, o, size, kernel = (b.number(1, 3) for _ in range(5))
    kernel = min(size, kernel)
    operands = [b.value(arr("f32", n, size, f)), b.value(arr("f32", kernel, f, o))]
    window = Window((WindowDimension(kernel),))
    result = arr("f32", n, size - kernel + 1, o)
    return b.emit(opcode, result, operands, window=window, dim_labels="b0f_0io->b0f")


@recipe("fft")
def _fft(b: Builder, opcode: str) -> Instruction:
    shape = arr("c64", *b.dimensions(1))
    kind = b.pick(("FFT", "IFFT"))
    return b.emit(opcode, shape, [b.value(shape)], fft_type=kind, fft_length=(shape.dimensions[-1],))


@recipe("cholesky")
def _cholesky(b: Builder, opcode: str) -> Instruction:
    size = b.number(1, 4)
    shape = arr("f32", size, size)
    return b.emit(opcode, shape, [b.value(shape)], lower=True)


@recipe("triangular-solve")
def _triangular_solve(b: Builder, opcode: str) -> Instruction:
    n, m = b.number(1, 4), b.number(1, 4)
    operands = [b.value(arr("f32", n, n)), b.value(arr("f32", n, m))]
    return b.emit(opcode, arr("f32", n, m), operands, left_side=True, lower=b.flag(), transpose_a="NO_TRANSPOSE")


@recipe("batch-norm-training")
def _batch_norm_training(b: Builder, opcode: str) -> Instruction:
    rows, features = b.number(1, 4), b.number(1, 4)
    data, one = arr("f32", rows, features), arr("f32", features)
    operands = [b.value(data), b.value(one), b.value(one)]
    return b.emit(opcode, tup(data, one, one), operands, epsilon=0.5, feature_index=1)


@recipe("batch-norm-inference")
def _batch_norm_inference(b: Builder, opcode: str) -> Instruction:
    rows, features = b.number(1, 4), b.number(1, 4)
    data, one = arr("f32", rows, features), arr("f32", features)
    return b.emit(opcode, data, [b.value(data), *(b.value(one) for _ in range(4))], epsilon=0.5, feature_index=1)


@recipe("batch-norm-grad")
def _batch_norm_grad(b: Builder, opcode: str) -> Instruction:
    rows, features = b.number(1, 4), b.number(1, 4)
    data, one = arr("f32", rows, features), arr("f32", features)
    operands = [b.value(data), *(b.value(one) for _ in range(3)), b.value(data)]
    return b.emit(opcode, tup(data, one, one), operands, epsilon=0.5, feature_index=1)


# ---- random numbers


@recipe("rng")
def _rng(b: Builder, opcode: str) -> Instruction:
    shape = b.array(("f32", "bf16"))
    bound = Shape(shape.type)
    distribution = b.pick(("rng_uniform", "rng_normal"))
    return b.emit(opcode, shape, [b.value(bound), b.value(bound)], distribution=distribution)


@recipe("rng-bit-generator")
def _rng_bit_generator(b: Builder, opcode: str) -> Instruction:
    algorithm, words = b.pick((("rng_three_fry", 2), ("rng_philox", 3), ("rng_default", 2)))
    state, bits = arr("u64", words), b.array(("u32", "u64"))
    return b.emit(opcode, tup(state, bits), [b.value(state)], algorithm=algorithm)


@recipe("rng-get-and-update-state")
def _rng_state(b: Builder, opcode: str) -> Instruction:
    return b.emit(opcode, arr("u64", 2), [], delta=b.number(1, 9))


# ---- control


@recipe("parameter")
def _parameter(b: Builder, opcode: str) -> Instruction:
    shape = b.pick((b.array(EVERYTHING), tup(b.array(EVERYTHING), tup(S32)), TOKEN))
    b.numbers += 1
    return edit.create(b.entry, b.module.unique_name("p"), "parameter", shape, parameter_number=b.numbers - 1)


@recipe("constant")
def _constant(b: Builder, opcode: str) -> Instruction:
    shape = b.array(EVERYTHING, 0, 2)
    return b.constant(Shape(shape.element_type, shape.dimensions, shape.layout))


@recipe("tuple")
def _tuple(b: Builder, opcode: str) -> Instruction:
    shapes = [b.array(EVERYTHING, 0, 2) for _ in range(b.number(0, 7))]
    return b.emit(opcode, tup(*shapes), [b.value(s) for s in shapes])


@recipe("get-tuple-element")
def _get_tuple_element(b: Builder, opcode: str) -> Instruction:
    shapes = [b.array(EVERYTHING, 0, 2) for _ in range(b.number(1, 7))]
    whole = b.emit("tuple", tup(*shapes), [b.value(s) for s in shapes])
    index = b.number(0, len(shapes) - 1)
    return b.emit(opcode, shapes[index], [whole], index=index)


@recipe("while")
def _while(b: Builder, opcode: str) -> Instruction:
    shape = b.array(FLOATS)

    def never(c: Computation, p: list[Instruction]) -> Instruction:
        return edit.create(
            c, b.module.unique_name("no"), "constant", PRED, literal=Literal(PRED, value=np.array(False))
        )

    condition, body = b.computation([shape], never), b.unary(shape, "negate")
    return b.emit(opcode, shape, [b.value(shape)], condition=Called(condition), body=Called(body))


@recipe("conditional")
def _conditional(b: Builder, opcode: str) -> Instruction:
    shape = b.array(FLOATS)
    if b.flag():
        branches = {"true_computation": Called(b.unary(shape)), "false_computation": Called(b.unary(shape))}
        return b.emit(opcode, shape, [b.value(PRED), b.value(shape), b.value(shape)], **branches)
    several = [b.unary(shape) for _ in range(b.number(1, 3))]
    operands = [b.value(S32), *(b.value(shape) for _ in several)]
    return b.emit(opcode, shape, operands, branch_computations=Called(*several, is_list=True))


@recipe("call")
def _call(b: Builder, opcode: str) -> Instruction:
    shape = b.array(FLOATS)
    return b.emit(opcode, shape, [b.value(shape)], to_apply=Called(b.unary(shape, "negate")))


@recipe("fusion")
def _fusion(b: Builder, opcode: str) -> Instruction:
    shape = b.array(FLOATS)
    return b.emit(opcode, shape, [b.value(shape)], kind="kLoop", calls=Called(b.unary(shape, "negate")))


@recipe("custom-call")
def _custom_call(b: Builder, opcode: str) -> Instruction:
    shape = arr("f32", *b.dimensions())
    constraints = Raw(f"{{{shape}}}") if b.flag() else None
    return b.emit(
        opcode, shape, [b.value(shape)],
        custom_call_target=Quoted(b.draw(st.text(min_size=1, max_size=8))), operand_layout_constraints=constraints,
    )  # fmt: skip


@recipe("after-all")
def _after_all(b: Builder, opcode: str) -> Instruction:
    return b.emit(opcode, TOKEN, [b.value(TOKEN) for _ in range(b.number(0, 2))])


@recipe("add-dependency")
def _add_dependency(b: Builder, opcode: str) -> Instruction:
    shape = b.array(EVERYTHING)
    return b.emit(opcode, shape, [b.value(shape), b.value(TOKEN)])


@recipe("domain")
def _domain(b: Builder, opcode: str) -> Instruction:
    shape = b.array(EVERYTHING)
    domain = Raw('{kind="sharding", entry={replicated}, exit={maximal device=0}}')
    return b.emit(opcode, shape, [b.value(shape)], domain=domain)


@recipe("partition-id", "replica-id")
def _number(b: Builder, opcode: str) -> Instruction:
    return b.emit(opcode, U32, [])


def _async_start(b: Builder) -> Instruction:
    shape = b.array(FLOATS)
    whole = tup(tup(shape), shape, U32)
    return b.emit("async-start", whole, [b.value(shape)], calls=Called(b.unary(shape, "negate")))


@recipe("async-start", "async-update", "async-done")
def _async(b: Builder, opcode: str) -> Instruction:
    start = _async_start(b)
    if opcode == "async-start":
        return start
    update = b.emit("async-update", start.shape, [start])
    return update if opcode == "async-update" else b.emit("async-done", start.shape.elements[1], [update])


@recipe("copy-start", "copy-done")
def _copy(b: Builder, opcode: str) -> Instruction:
    shape = b.array(EVERYTHING)
    start = b.emit("copy-start", tup(shape, shape, U32), [b.value(shape)])
    return start if opcode == "copy-start" else b.emit("copy-done", shape, [start])


# ---- other devices and the host


@recipe("all-reduce", "all-reduce-start", "all-reduce-done")
def _all_reduce(b: Builder, opcode: str) -> Instruction:
    shape = b.array(FLOATS)
    groups = Raw(b.pick(("{{0},{1}}", "{{0,1}}", "[1,2]<=[2]")))
    start = "all-reduce" if opcode == "all-reduce" else "all-reduce-start"
    made = b.emit(start, shape, [b.value(shape)], **b.channel(), replica_groups=groups, to_apply=b.reducer(shape.type))
    return b.emit(opcode, shape, [made]) if opcode == "all-reduce-done" else made


@recipe("all-gather", "all-gather-start", "all-gather-done")
def _all_gather(b: Builder, opcode: str) -> Instruction:
    size = b.number(1, 4)
    shape, whole = arr("f32", size), arr("f32", 2 * size)
    attributes = {**b.channel(), "replica_groups": Raw("{{0,1}}"), "dimensions": (0,)}
    if opcode == "all-gather":
        return b.emit(opcode, whole, [b.value(shape)], **attributes)
    start = b.emit("all-gather-start", tup(shape, whole), [b.value(shape)], **attributes)
    return start if opcode == "all-gather-start" else b.emit(opcode, whole, [start])


@recipe("reduce-scatter")
def _reduce_scatter(b: Builder, opcode: str) -> Instruction:
    size = b.number(1, 4)
    reducer = b.reducer(ELEMENT_TYPES["f32"])
    operands = [b.value(arr("f32", 2 * size))]
    return b.emit(opcode, arr("f32", size), operands, replica_groups=Raw("{{0,1}}"), dimensions=(0,), to_apply=reducer)


@recipe("all-to-all")
def _all_to_all(b: Builder, opcode: str) -> Instruction:
    shape = arr("f32", 2 * b.number(1, 4))
    return b.emit(opcode, shape, [b.value(shape)], replica_groups=Raw("{{0,1}}"), dimensions=(0,))


@recipe("ragged-all-to-all")
def _ragged_all_to_all(b: Builder, opcode: str) -> Instruction:
    data, sizes = arr("f32", 4), arr("s32", 2)
    operands = [b.value(data), b.value(data), *(b.value(sizes) for _ in range(4))]
    return b.emit(opcode, data, operands, replica_groups=Raw("{{0,1}}"))


@recipe("collective-broadcast")
def _collective_broadcast(b: Builder, opcode: str) -> Instruction:
    shape = b.array(FLOATS)
    return b.emit(opcode, shape, [b.value(shape)], **b.channel(), replica_groups=Raw("{{0,1}}"))


@recipe("collective-permute", "collective-permute-start", "collective-permute-done")
def _collective_permute(b: Builder, opcode: str) -> Instruction:
    shape = b.array(FLOATS)
    attributes = {**b.channel(), "source_target_pairs": Raw("{{0,1},{1,0}}")}
    if opcode == "collective-permute":
        return b.emit(opcode, shape, [b.value(shape)], **attributes)
    start = b.emit("collective-permute-start", tup(shape, shape), [b.value(shape)], **attributes)
    return start if opcode == "collective-permute-start" else b.emit(opcode, shape, [start])


@recipe("infeed")
def _infeed(b: Builder, opcode: str) -> Instruction:
    return b.emit(opcode, tup(b.array(FLOATS), TOKEN), [b.value(TOKEN)], infeed_config=Quoted("x"))


@recipe("outfeed")
def _outfeed(b: Builder, opcode: str) -> Instruction:
    shape = b.array(FLOATS)
    return b.emit(opcode, TOKEN, [b.value(shape), b.value(TOKEN)], outfeed_shape=Raw(str(shape)))


@recipe("send", "send-done")
def _send(b: Builder, opcode: str) -> Instruction:
    shape, channel = b.array(FLOATS), b.channel()
    start = b.emit("send", tup(shape, U32, TOKEN), [b.value(shape), b.value(TOKEN)], **channel)
    return start if opcode == "send" else b.emit(opcode, TOKEN, [start], **channel)


@recipe("recv", "recv-done")
def _recv(b: Builder, opcode: str) -> Instruction:
    shape, channel = b.array(FLOATS), b.channel()
    start = b.emit("recv", tup(shape, U32, TOKEN), [b.value(TOKEN)], **channel)
    return start if opcode == "recv" else b.emit(opcode, tup(shape, TOKEN), [start], **channel)


def build(draw: Draw, opcodes: list[str]) -> Module:
    """A module with an instruction of each of these opcodes."""
    builder = Builder(draw)
    for opcode in opcodes:
        made = RECIPES[opcode](builder)
        builder.decorate(made)
        edit.set_root(builder.entry, made)
    before = list(builder.entry.instructions)
    if len(before) > 2 and builder.flag():
        before[-1].control_predecessors = [before[0]] if before[0] not in before[-1].operands else []
    edit.add_computation(builder.module, builder.entry, entry=True)
    return builder.module


@st.composite
def modules(draw: Draw, opcodes: tuple[str, ...] = (), most: int = 8) -> Module:
    """Well-typed modules with one instruction of each given opcode and up to `most` of drawn ones."""
    several = draw(st.lists(st.sampled_from(sorted(RECIPES)), min_size=0 if opcodes else 1, max_size=most))
    return build(draw, [*opcodes, *several])
