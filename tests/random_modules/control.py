"""Recipes of random numbers, tuples, control flow and asynchronous forms."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from hlo_opt.ir import (
    Called,
    Computation,
    Instruction,
    Literal,
    Quoted,
    Raw,
    Shape,
    edit,
)
from random_modules.builder import (
    EVERYTHING,
    FLOATS,
    PRED,
    S32,
    TOKEN,
    U32,
    Builder,
    arr,
    recipe,
    tup,
)


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
