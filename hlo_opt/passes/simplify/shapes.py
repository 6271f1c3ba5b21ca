"""The dimensions of one shape in terms of another's, for reshapes and permutations."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence


def groups(source: Sequence[int], target: Sequence[int]) -> Iterator[tuple[range, range]]:
    """The dimensions of both sides of a reshape in groups that hold the same elements, the smallest groups; dimensions
    of size 1 join the first group that fits. For shapes with elements only."""
    s = t = 0
    while s < len(source) or t < len(target):
        first_s, first_t = s, t
        have = want = 1
        if s < len(source):
            have, s = source[s], s + 1
        if t < len(target) and not (have == 1 and target[t] != 1):
            want, t = target[t], t + 1
        while have != want:
            if have < want:
                have, s = have * source[s], s + 1
            else:
                want, t = want * target[t], t + 1
        yield range(first_s, s), range(first_t, t)


def without_ones(sizes: Sequence[int]) -> list[int]:
    """The dimensions of sizes other than 1."""
    return [d for d, size in enumerate(sizes) if size != 1]


def only_ones_differ(source: Sequence[int], target: Sequence[int]) -> bool:
    """Whether both sides of a reshape have the same dimensions apart from some of size 1."""
    return [n for n in source if n != 1] == [n for n in target if n != 1]


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """The permutation that undoes another one."""
    places = [0] * len(order)
    for to, source in enumerate(order):
        places[source] = to
    return tuple(places)


def is_rising(numbers: Sequence[int]) -> bool:
    return all(a < b for a, b in itertools.pairwise(numbers))
