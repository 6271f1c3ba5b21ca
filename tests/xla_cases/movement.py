"""Cases of the opcodes that move elements, and of those that hold a program together."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hlo_opt.ir import ELEMENT_TYPES
from xla_cases.case import Case, makes, operation
from xla_cases.folds import reducer
from xla_cases.values import INTEGERS, cast, shaped


@makes("broadcast")
def broadcast(opcode: str, name: str) -> Iterator[Case]:
    yield operation(opcode, name, [shaped(name, 5)], f"{name}[3,5,2]", "dimensions={1}")
    yield operation(opcode, name, [shaped(name)], f"{name}[4]", "dimensions={}")
    yield operation(opcode, name, [shaped(name, 3, 5)], f"{name}[5,2,3]", "dimensions={2,0}")


@makes("reshape")
def reshape(opcode: str, name: str) -> Iterator[Case]:
    yield operation(opcode, name, [shaped(name, 4, 6)], f"{name}[3,8]")
    yield operation(opcode, name, [shaped(name, 1, 1)], f"{name}[]", label="to a scalar")


@makes("bitcast")
def bitcast(opcode: str, name: str) -> Iterator[Case]:
    yield operation(opcode, name, [shaped(name, 4, 6)], f"{name}[8,3]")


@makes("transpose")
def transpose(opcode: str, name: str) -> Iterator[Case]:
    yield operation(opcode, name, [shaped(name, 3, 4, 5)], f"{name}[5,3,4]", "dimensions={2,0,1}")
    yield operation(opcode, name, [shaped(name, 7, 9)], f"{name}[9,7]", "dimensions={1,0}")


@makes("slice")
def slice_(opcode: str, name: str) -> Iterator[Case]:
    yield operation(opcode, name, [shaped(name, 7, 9)], f"{name}[3,2]", "slice={[1:7:2], [3:9:4]}")
    yield operation(opcode, name, [shaped(name, 9)], f"{name}[0]", "slice={[4:4]}")


@makes("reverse")
def reverse(opcode: str, name: str) -> Iterator[Case]:
    x = shaped(name, 3, 4, 5)
    for dimensions in ("0", "0,2", "1", ""):
        yield operation(opcode, name, [x], f"{name}[3,4,5]", f"dimensions={{{dimensions}}}")


@makes("pad")
def pad(opcode: str, name: str) -> Iterator[Case]:
    x, filler = shaped(name, 5, 4), shaped(name, 3, seed=8)[2]
    yield operation(opcode, name, [x, filler], f"{name}[8,7]", "padding=1_2x3_0")
    yield operation(opcode, name, [x, filler], f"{name}[14,10]", "padding=1_0_2x0_0_2")
    yield operation(opcode, name, [x, filler], f"{name}[6,4]", "padding=-1_-2_1x-1_1")


@makes("concatenate")
def concatenate(opcode: str, name: str) -> Iterator[Case]:
    parts = [shaped(name, 2, 3), shaped(name, 2, 1, seed=6), shaped(name, 2, 4, seed=7)]
    yield operation(opcode, name, parts, f"{name}[2,8]", "dimensions={1}")


@makes("iota")
def iota(opcode: str, name: str) -> Iterator[Case]:
    # past the range of the small types, where integers wrap and floats round
    yield operation(opcode, name, [], f"{name}[300,2]", "iota_dimension=0")
    yield operation(opcode, name, [], f"{name}[2,3]", "iota_dimension=1")
    yield operation(opcode, name, [], f"{name}[70000]", "iota_dimension=0", label="long")


STARTS = ((1, 3), (-1, 100), (4, 6))


def _index_types(name: str) -> tuple[str, ...]:
    """Every type of start indices with one type of elements, one with the others: they do not meet."""
    return INTEGERS if name == "f32" else ("s32",)


@makes("dynamic-slice")
def dynamic_slice(opcode: str, name: str) -> Iterator[Case]:
    x = shaped(name, 5, 7)
    for index in _index_types(name):
        for rows, columns in STARTS:
            starts = [np.array(v).astype(ELEMENT_TYPES[index].dtype) for v in (rows, columns)]
            yield operation(
                opcode, name, [x, *starts], f"{name}[2,3]", "dynamic_slice_sizes={2,3}",
                label=f"{index} {rows},{columns}"
            )  # fmt: skip


@makes("dynamic-update-slice")
def dynamic_update_slice(opcode: str, name: str) -> Iterator[Case]:
    x, update = shaped(name, 5, 7), shaped(name, 2, 3, seed=9)
    for index in _index_types(name):
        if ELEMENT_TYPES[index].bits == 2:
            continue  # XLA:CPU reads 2-bit start indices as whole bytes, and may write anywhere
        for rows, columns in STARTS:
            starts = [np.array(v).astype(ELEMENT_TYPES[index].dtype) for v in (rows, columns)]
            yield operation(opcode, name, [x, update, *starts], f"{name}[5,7]", label=f"{index} {rows},{columns}")


GATHER = "offset_dims={1,2}, collapsed_slice_dims={}, start_index_map={0,1}, index_vector_dim=1, slice_sizes={2,3}"
BATCHED = (
    "offset_dims={2}, collapsed_slice_dims={1}, start_index_map={1}, operand_batching_dims={0}, "
    "start_indices_batching_dims={0}, "
    "index_vector_dim=2, slice_sizes={1,1,4}"
)


@makes("gather")
def gather(opcode: str, name: str) -> Iterator[Case]:
    """Indices inside, at the end and far outside, of every integer type."""
    x = shaped(name, 5, 7)
    for index in _index_types(name):
        indices = np.array([[0, 0], [3, 4], [4, 6], [-1, -3], [100, 2], [-128, 127]]).astype(ELEMENT_TYPES[index].dtype)
        yield operation(opcode, name, [x, indices], f"{name}[6,2,3]", GATHER, label=f"{index} indices")
    values, chosen = shaped(name, 2, 5, 4), np.array([[[0], [4], [9]], [[-1], [2], [2]]], np.int32)
    yield operation(opcode, name, [values, chosen], f"{name}[2,3,4]", BATCHED, label="batching dimensions")


@makes("set-dimension-size")
def set_dimension_size(opcode: str, name: str) -> Iterator[Case]:
    """A sum over the elements that stay in use."""
    x, op = cast([1, 0, 1, 1, 0, 1], name), "or" if name == "pred" else "add"
    for size in (4, 6):
        body = (
            f"%d = {name}[<=6] set-dimension-size(%p0, %p1), dimensions={{0}}",
            f"%r = {name}[] reduce(%d, %p2), dimensions={{0}}, to_apply={op}.{name}",
        )
        yield Case(
            opcode,
            name,
            f"{size}",
            (x, np.array(size, np.int32), cast(0, name)),
            body,
            (f"{name}[]",),
            computations=reducer(op, name),
        )


@makes("get-dimension-size")
def get_dimension_size(opcode: str, name: str) -> Iterator[Case]:
    yield operation(opcode, name, [shaped(name, 6, 3)], "s32[]", "dimensions={1}", label="static")
    body = (
        f"%d = {name}[<=6] set-dimension-size(%p0, %p1), dimensions={{0}}",
        "%r = s32[] get-dimension-size(%d), dimensions={0}",
    )
    yield Case(opcode, name, "dynamic", (shaped(name, 6), np.array(4, np.int32)), body, ("s32[]",))


@makes("dynamic-reshape")
def dynamic_reshape(opcode: str, name: str) -> Iterator[Case]:
    sizes = [np.array(v, np.int32) for v in (3, 4)]
    yield operation(opcode, name, [shaped(name, 12), *sizes], f"{name}[3,4]")
