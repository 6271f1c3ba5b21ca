"""Movements of all rows of a spread at once, without a copy where NumPy makes none: the `rows` faces of the table."""

from __future__ import annotations

import numpy as np

from hlo_opt.ir import Instruction
from hlo_opt.ir.values import Array
from hlo_opt.ops.movement.table import slice_dimensions
from hlo_opt.ops.spread import full
from hlo_opt.ops.values import ROWS


def broadcast(instruction: Instruction, rows: list[Array]) -> Array:
    sizes, to = instruction.shape.dimensions, instruction.ints("dimensions")
    spread = [1] * len(sizes)
    order = sorted(range(len(to)), key=lambda k: to[k])
    moved = rows[0].transpose(0, *(1 + k for k in order)) if order != list(range(len(to))) else rows[0]
    source = [moved.shape[1 + place] for place in range(len(order))]
    for place, k in enumerate(sorted(to)):
        spread[k] = source[place]
    return np.broadcast_to(moved.reshape(ROWS, *spread), (ROWS, *sizes))


def reshape(instruction: Instruction, rows: list[Array]) -> Array:
    return rows[0].reshape(ROWS, *instruction.shape.dimensions)


def transpose(instruction: Instruction, rows: list[Array]) -> Array:
    return rows[0].transpose(0, *(1 + d for d in instruction.ints("dimensions")))


def slice_(instruction: Instruction, rows: list[Array]) -> Array:
    return rows[0][(slice(None), *(slice(p.start, p.limit, p.stride) for p in slice_dimensions(instruction)))]


def reverse(instruction: Instruction, rows: list[Array]) -> Array:
    return np.flip(rows[0], tuple(1 + d for d in instruction.ints("dimensions")))


def concatenate(instruction: Instruction, rows: list[Array]) -> Array:
    return np.concatenate([full(r) for r in rows], axis=1 + instruction.ints("dimensions")[0])
