"""What all launch rules speak of: blocks, threads, and the width of elements."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hlo_opt.ir import Shape


@dataclass(frozen=True, slots=True)
class LaunchDimensions:
    """Blocks in the grid and threads in a block."""

    blocks: int
    threads: int


def bits_of(shape: Shape) -> int:
    """Bits of an element in memory; a pred takes a byte."""
    return 8 if shape.type.name == "pred" else shape.type.bits


def smallest_bits(shapes: Iterable[Shape]) -> int | None:
    """Bits of the narrowest array; None where there is none."""
    return min((bits_of(s) for s in shapes if s.is_array), default=None)


def round_up(value: int, step: int) -> int:
    return -(-value // step) * step
