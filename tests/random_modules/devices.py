"""Recipes of collectives and of what talks to the host."""

from __future__ import annotations

from hlo_opt.ir import (
    ELEMENT_TYPES,
    Instruction,
    Quoted,
    Raw,
)
from random_modules.builder import (
    FLOATS,
    TOKEN,
    U32,
    Builder,
    arr,
    recipe,
    tup,
)


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
