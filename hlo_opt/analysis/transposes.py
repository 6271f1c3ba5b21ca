"""Transposes: which of them go through shared memory, and which move the fastest dimension.

Source: xla/service/gpu/ir_emission_utils.cc (GetDescriptionForTiledTransposeEmitter), xla/permutation_util.cc.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hlo_opt.ir import Instruction

MINIMUM = 16
SMALL_MINIMUM = 8
SMALL_PRODUCT = 8192
TILE = 32


@dataclass(frozen=True, slots=True)
class TiledTranspose:
    """A transpose that is emitted tile by tile: normalised sizes and permutation, and the shared memory of a tile in bytes."""

    sizes: tuple[int, ...]
    permutation: tuple[int, ...]
    shared_bytes: int


def normalized(sizes: tuple[int, ...], permutation: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The output sizes and permutation after merging neighbours that move together and dropping dimensions of size one."""
    kept = [p for p in permutation if sizes[p] > 1]
    groups: list[list[int]] = []
    rank = {p: n for n, p in enumerate(sorted(kept))}
    for p in kept:
        if groups and rank[p] == rank[groups[-1][-1]] + 1:
            groups[-1].append(p)
        else:
            groups.append([p])
    order = {g[0]: n for n, g in enumerate(sorted(groups))}
    return tuple(math.prod(sizes[p] for p in g) for g in groups), tuple(order[g[0]] for g in groups)


def physical_permutation(instruction: Instruction) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Operand sizes and permutation as they lie in memory, for a transpose or a copy that changes the layout; else None."""
    if instruction.opcode not in ("transpose", "copy") or not instruction.shape.is_array:
        return None
    given, made = instruction.operands[0].shape, instruction.shape
    logical = instruction.ints("dimensions") if instruction.opcode == "transpose" else tuple(range(given.rank))
    from_major = list(reversed(given.minor_to_major))
    position = {d: n for n, d in enumerate(from_major)}
    sizes = tuple(given.dimensions[d] for d in from_major)
    permutation = tuple(position[logical[d]] for d in reversed(made.minor_to_major))
    return sizes, permutation


def moves_data(instruction: Instruction) -> bool:
    """Whether it is a transpose (or a copy to another layout) that changes the order in memory."""
    found = physical_permutation(instruction)
    if found is None:
        return False
    _, permutation = normalized(*found)
    return permutation != tuple(range(len(permutation)))


def moves_minor(instruction: Instruction) -> bool:
    """Whether the fastest varying dimension becomes another one, so that reading along the output jumps through the operand."""
    found = physical_permutation(instruction)
    if found is None:
        return False
    _, permutation = normalized(*found)
    return bool(permutation) and permutation[-1] != len(permutation) - 1


def tiled_transpose(instruction: Instruction) -> TiledTranspose | None:
    """The description of a transpose that the transpose emitter takes; None for one that a loop does better."""
    if instruction.opcode != "transpose":
        return None
    found = physical_permutation(instruction)
    assert found is not None
    sizes, permutation = normalized(*found)
    rank = len(permutation)
    if rank < 2 or permutation == tuple(range(rank)):
        return None
    bits = instruction.shape.type.bits
    minor = sizes[-1]
    if permutation[-1] == rank - 1:
        second_out = sizes[-2]
        second_in = sizes[permutation.index(rank - 2)]
        if bits * minor <= 64 and bits * minor * min(second_out, second_in) >= 128:
            return TiledTranspose(sizes, permutation, TILE * (TILE + 1) * bits * minor // 8)
        return None
    if bits == 4:
        return None
    other = sizes[permutation.index(rank - 1)]
    if min(minor, other) >= MINIMUM or (min(minor, other) >= SMALL_MINIMUM and minor * other >= SMALL_PRODUCT):
        return TiledTranspose(sizes, permutation, TILE * (TILE + 1) * bits // 8)
    return None
