"""Places of a dimension that are sums of digits, each times a step of its own: what reads them needs no list of places.

The n-th place is `start + d1 * step1 + d2 * step2 + ...`, where d1, d2, ... are the digits of n in a mixed radix. Such
are i ^ c (a digit for each run of equal bits of c), n - 1 - i, i // k, i % k, and the places of a transpose."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from hlo_opt.ir import Instruction, SliceDimension
from hlo_opt.ir.values import Array
from hlo_opt.passes.simplify.site import Site

MOST_DIGITS = 6
"""The most digits: each is a dimension, for which an index is divided."""


@dataclass(frozen=True)
class Digits:
    """The place of number 0, and for each digit, the greatest first, how many values it has and its step. Those with a
    step form a whole range of places in steps of `least`."""

    start: int
    sizes: tuple[int, ...]
    steps: tuple[int, ...]

    @property
    def moving(self) -> list[int]:
        """The digits with a step, the greatest step first."""
        return sorted((d for d, s in enumerate(self.steps) if s), key=lambda d: -abs(self.steps[d]))

    def read(self, value: Instruction, along: int, site: Site) -> Instruction:
        """The places of a dimension of a value, in their order, with a dimension for each digit in its stead."""
        order = self.moving
        count = math.prod(self.sizes[d] for d in order)
        least = min((abs(self.steps[d]) for d in order), default=1)
        first = self.start + sum(min(0, s * (n - 1)) for n, s in zip(self.sizes, self.steps, strict=True))
        before, after = value.shape.dimensions[:along], value.shape.dimensions[along + 1 :]
        if (first, count, least) != (0, value.shape.dimensions[along], 1):
            parts = [SliceDimension(0, n) for n in value.shape.dimensions]
            parts[along] = SliceDimension(first, first + (count - 1) * least + 1, least)
            value = site.slice(value, parts)
        value = site.reshape(value, [*before, *(self.sizes[d] for d in order), *after])
        turned = tuple(along + n for n, d in enumerate(order) if self.steps[d] < 0)
        if turned:
            value = site.emit("reverse", value.shape, value, dimensions=turned)
        rest = range(along + len(order), value.shape.rank)
        value = site.transpose(value, [*range(along), *(along + order.index(d) for d in sorted(order)), *rest])
        if len(order) == len(self.sizes):
            return value
        mapped = [*range(along), *(along + d for d in sorted(order))]
        mapped += [along + len(self.sizes) + n for n in range(len(after))]
        return site.broadcast(value, [*before, *self.sizes, *after], mapped)


def digits_of(places: Array) -> Digits | None:
    """A list of at least one place as digits; None for places that are none, for more than `MOST_DIGITS`, and where
    places between them are left out, or one is read for two different numbers of digits with a step."""
    sizes: list[int] = []
    steps: list[int] = []
    rest = places
    while rest.size > 1:
        step = int(rest[1] - rest[0])
        ends = np.flatnonzero(np.diff(rest) != step)
        size = int(ends[0]) + 1 if ends.size else rest.size
        if rest.size % size or len(sizes) == MOST_DIGITS:
            return None
        rows = rest.reshape(-1, size)
        if not np.array_equal(rows, rows[:, :1] + np.arange(size) * step):
            return None
        sizes.insert(0, size)
        steps.insert(0, step)
        rest = rows[:, 0]
    digits = Digits(int(places[0]), tuple(sizes), tuple(steps))
    smallest_first = digits.moving[::-1]
    for inner, outer in itertools.pairwise(smallest_first):
        if abs(steps[outer]) != abs(steps[inner]) * sizes[inner]:
            return None
    return digits


def rotation_of(places: Array, size: int) -> int | None:
    """c > 0 where the n-th of all places of a dimension is (n + c) % size; else None."""
    first = int(places[0])
    return first if first and np.array_equal(places, (np.arange(size) + first) % size) else None
