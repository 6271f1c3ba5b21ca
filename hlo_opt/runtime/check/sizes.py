"""Does a family of kernels compute what the original module does, at several sizes?"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from hlo_opt.analysis.sizes.resize import Ties
from hlo_opt.evaluate.devices import device_inputs
from hlo_opt.runtime.check.compare import CheckReport, check
from hlo_opt.runtime.family.kernels import SizedExecutable

COUNT = 5
"""Sizes that are tried, where the range has as many."""


def tried(ties: Ties) -> list[int]:
    """Sizes of a range, ascending: both ends, that of the dump, one below the most, and odd ones between."""
    sizes = ties.sizes
    last = len(sizes) - 1
    own = bisect_left(sizes, ties.size)
    wishes = [0, last, own, last - 1, last // 2 & ~1, 1, last // 4 & ~1, 2]
    chosen: list[int] = []
    for wish in wishes:
        if 0 <= wish <= last and wish not in chosen and len(chosen) < COUNT:
            chosen.append(wish)
    return [sizes[number] for number in sorted(chosen)]


def check_sizes(
    original: Ties, executable: SizedExecutable, sizes: Sequence[int], *, seed: int = 0, memory_limit: int | None = None
) -> Mapping[int, CheckReport]:
    """The reports of `check` at each size: the original module, evaluated at that size, against the family, on inputs
    drawn for that size. `memory_limit` as for `check`. Raises what `check` raises."""
    reports = {}
    for size in sizes:
        module, own = original.at(size), executable.at(size)
        inputs = device_inputs(module, seed)
        reports[size] = check(
            module,
            own.module,
            inputs[0] if len(inputs) == 1 else inputs,
            seed=seed,
            memory_limit=memory_limit,
            executable=own,
        )
    return reports
