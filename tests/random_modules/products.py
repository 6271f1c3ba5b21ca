"""Recipes of reductions, sorts, products and linear algebra."""

from __future__ import annotations

from hlo_opt.ir import (
    ELEMENT_TYPES,
    Called,
    Computation,
    Instruction,
    Raw,
    Shape,
    Window,
    WindowDimension,
    edit,
)
from random_modules.builder import (
    FLOATS,
    INTEGERS,
    S32,
    Builder,
    arr,
    recipe,
    tup,
)


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
        window=Window((WindowDimension(2, stride=2),)), select=b.comparator(element_type),
        scatter=b.reducer(element_type),
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
