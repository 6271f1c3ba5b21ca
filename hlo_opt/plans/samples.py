"""Samples of a memory access: where the threads of one block in the middle of a launch go, and what that makes of
sectors, cache lines and wide instructions."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hlo_opt.ir import index_map as maps
from hlo_opt.ir.index_map import Condition, Expression
from hlo_opt.ops.lowering import Index
from hlo_opt.plans.walks import ITEM, ROUND, THREAD

SECTOR, LINE = 32, 128
"""Bytes of a memory transaction and of a cache line (CUDA C++ Best Practices Guide, "Coalesced Access to Global
Memory")."""
WIDEST_BITS = 128
_SAMPLED = (1024, 16, 32)  # threads of a block, rounds, and steps of inner loops that are sampled

_MIXED, _MOST_MIXED = 7919, 1_000_003
"""Two primes: an index of data is the sum of its coordinates, times powers of the first modulo the second."""

SPARSE = 64
"""Numbers are sorted, instead of marked in a table, where their range is more than this many times their count."""

Numbers = npt.NDArray[np.int64]


def value_of(expression: Expression, env: Mapping[str, Numbers]) -> Numbers:
    """The values of an expression for values of its variables."""
    match expression:
        case maps.Variable(name=name) if name in env:
            return env[name]
        case maps.Sum(left=left, right=right):
            return value_of(left, env) + value_of(right, env)
        case maps.Product(left=left, factor=factor):
            return value_of(left, env) * factor
        case maps.Quotient(left=left, divisor=divisor):
            return value_of(left, env) // divisor
        case maps.Remainder(left=left, divisor=divisor):
            value = value_of(left, env)
            return value - value // divisor * divisor  # in half the time of NumPy's remainder
    return np.asarray(expression.low)


class Frame(NamedTuple):
    """The threads, rounds and steps from which an access is sampled: with the address, all that `Sample` depends on."""

    threads: int
    block: int
    rounds: int
    all_rounds: int
    items: int
    places: tuple[tuple[str, Expression], ...]
    loops: tuple[tuple[str, int], ...]
    drawn: tuple[tuple[str, Index, int], ...]
    limits: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """The accesses of the sampled threads.

    places    the number of distinct elements
    sectors   the number of distinct sectors
    scale     the factor from the sample to all threads
    together  neighbouring items that one instruction moves
    is_exact  whether items beyond the limits of the frame do not count; else they do, as if they existed
    is_shared whether all items of a thread access the same element

    The others are as in `Lay`.
    """

    places: int
    sectors: int
    scale: float
    together: int
    is_exact: bool
    is_shared: bool
    run: float
    stretch: float
    lines: int
    advance: int
    window: float
    onward: float


def different(numbers: Numbers) -> Numbers:
    """The distinct numbers in ascending order. If they are dense, as mostly in kernels, they are marked in an array,
    which takes less time than sorting. Addresses come in long runs that ascend: a stable sort merges them."""
    low, high = int(numbers.min()), int(numbers.max())
    if high - low > SPARSE * numbers.size:
        ascending = np.sort(numbers, axis=None, kind="stable")
        return ascending[np.append(True, ascending[1:] != ascending[:-1])]
    marked = np.zeros(high - low + 1, bool)
    marked[numbers.ravel() - low] = True
    return marked.nonzero()[0] + low


def _blocks_of(places: Numbers, bits: int, size: int) -> Numbers:
    """The numbers of the blocks of memory of `size` bytes that elements are in."""
    return places // (8 * size // bits) if 8 * size % bits == 0 else places * bits // 8 // size


@functools.lru_cache(maxsize=256)
def _counted(start: int, count: int, axis: int) -> Numbers:
    """As many numbers from the first on, along one of the axes threads, rounds, items and steps."""
    return (start + np.arange(count)).reshape((1,) * axis + (-1,) + (1,) * (3 - axis))


@functools.lru_cache(maxsize=4096)
def sample(
    frame: Frame, address_at: Expression, bits: int, within: tuple[Condition, ...], beside: tuple[int, ...] = (0,)
) -> Sample:
    """The sample for a frame and an address, with the addresses at distances from it as further items. Cached, because
    kernels that differ in what they compute often access memory in the same way. `within` has the conditions for the
    access. Where they hold for about as many of the sampled items as of all, places are those of these items, and the
    scale makes up for the others."""
    threads = min(frame.threads, frame.block, _SAMPLED[0])
    rounds = min(frame.rounds, _SAMPLED[1])
    loops = dict(frame.loops)
    counts: dict[str, int] = {}
    for name, size in reversed(loops.items()):  # the innermost first
        counts[name] = min(size, max(1, _SAMPLED[2] // math.prod(counts.values())))
    steps = math.prod(counts.values())
    env: dict[str, Numbers] = {
        THREAD: _counted(frame.threads // 2 // threads * threads, threads, 0),
        ROUND: _counted((frame.all_rounds - rounds) // 2, rounds, 1),
        ITEM: _counted(0, frame.items, 2),
    }
    numbers = np.unravel_index(np.arange(steps), [counts[name] for name in loops]) if loops else ()
    env.update({n: (loops[n] - counts[n]) // 2 + number for n, number in zip(loops, numbers, strict=True)})
    env.update({name: value_of(place, env) for name, place in frame.places})
    for name, at, size in frame.drawn:  # scattered, but equal for equal indices only
        mixed = sum((value_of(e, env) * pow(_MIXED, k, _MOST_MIXED) for k, e in enumerate(at)), start=np.asarray(1))
        env[name] = mixed * 40503 % max(1, size)
    address = value_of(address_at, env)
    window, onward = _window(frame, address_at, address, bits) if frame.drawn else (math.inf, 0.0)
    address = _spread(address)
    existing = address
    if frame.limits and rounds == frame.all_rounds:
        counted = _all_of([_spread(env[n]) < size for n, size in frame.limits])
        existing = _chosen(address, counted) if counted.any() else address
    is_exact = existing is not address
    part = 1.0
    if within and not is_exact:
        holds = _all_of([_holds(c, env) for c in within])
        held, expected = float(holds.mean()), math.prod(map(share_of, within))
        if held < 1 and expected / 2 <= held <= 2 * expected:
            existing, part = _chosen(address, holds), held
    if len(beside) > 1:
        every = np.stack([address + distance for distance in beside], axis=3)
        address = np.sort(every.reshape(*address.shape[:2], -1, address.shape[3]), axis=2)
        existing = np.add.outer(np.asarray(beside), existing) if is_exact else address
    places = different(existing)
    sector = _blocks_of(places, bits, SECTOR)
    steps_of_sectors = sector[1:] - sector[:-1]
    sectors = 1 + int(np.count_nonzero(steps_of_sectors))
    scale = frame.threads / threads * math.prod(loops.values()) / steps * (frame.rounds / rounds) / part
    apart = any(_misses_apart(c.expression, env) for c in within)
    together = 1 if apart or address.shape[2] == 1 else _together(address, bits)
    is_shared = address.shape[2] > 1 and _is_shared(address[:1, :1]) and _is_shared(address)
    lanes = _blocks_of(address[:32, 0, 0, 0], bits, LINE)
    return Sample(
        len(places),
        sectors,
        scale,
        together,
        is_exact,
        is_shared,
        run=len(places) * bits / 8 / (1 + int(np.count_nonzero(places[1:] - places[:-1] > 1))),
        stretch=sectors * SECTOR / (1 + int(np.count_nonzero(steps_of_sectors > 1))),
        lines=max(len(set(lanes.tolist())), 32 * together * bits // 8 // LINE if len(lanes) > 1 else 1),
        advance=_advance(address, bits),
        window=window,
        onward=onward,
    )


def _window(frame: Frame, address_at: Expression, address: Numbers, bits: int) -> tuple[float, float]:
    """The bytes among which the accesses of a block lie, and by which those of the next lie behind, on average."""
    ends: dict[str, Numbers] = {THREAD: np.asarray([0, frame.threads - 1])}
    ends.update({name: value_of(place, ends) for name, place in frame.places})
    first, last = np.broadcast_to(value_of(address_at, ends), 2).tolist()
    blocks = max(1, frame.threads // frame.block)
    return (int(address.max()) - int(address.min()) + 1) * bits / 8, abs(last - first) * bits / 8 / blocks


def share_of(condition: Condition) -> float:
    """The fraction of the values of its expression for which a condition holds."""
    low, high = condition.expression.low, condition.expression.high
    return max(0, min(condition.high, high) - max(condition.low, low) + 1) / (high - low + 1)


def _spread(numbers: Numbers) -> Numbers:
    """Numbers with all axes: threads, rounds, items and steps."""
    return numbers.reshape((1,) * (4 - numbers.ndim) + numbers.shape)


def _all_of(facts: Sequence[npt.NDArray[np.bool_]]) -> npt.NDArray[np.bool_]:
    """Where all of the facts hold, which may vary along different axes."""
    return np.logical_and.reduce(np.broadcast_arrays(*facts))


def _chosen(address: Numbers, chosen: npt.NDArray[np.bool_]) -> Numbers:
    """The addresses of chosen items; what is chosen may vary along axes along which the address does not."""
    shape = np.broadcast_shapes(address.shape, chosen.shape)
    return np.broadcast_to(address, shape)[np.broadcast_to(chosen, shape)]


def _holds(condition: Condition, env: Mapping[str, Numbers]) -> npt.NDArray[np.bool_]:
    """For which of the sampled items a condition holds."""
    at = _spread(value_of(condition.expression, env))
    return (at >= condition.low) & (at <= condition.high)


def _misses_apart(expression: Expression, env: Mapping[str, Numbers]) -> bool:
    """Whether some of a thread's items may be out of bounds while others are not."""
    at = _spread(value_of(expression, env))
    return bool((at != at[:, :, :1]).any())


def _is_shared(address: Numbers) -> bool:
    """Whether all items of a thread access the same element."""
    return bool((address == address[:, :, :1]).all())


def _together(address: Numbers, bits: int) -> int:
    """The number of neighbouring items that one instruction moves: they are a thread's items, or equal parts of
    them."""
    items = address.shape[2]
    moved = 1 << (min(items, max(1, WIDEST_BITS // bits)).bit_length() - 1)
    first = address[:1, :1]  # asked first: most that differ anywhere differ there
    while moved > 1 and not (items % moved == 0 and _is_moved(first, moved) and _is_moved(address, moved)):
        moved //= 2
    return moved


def _is_moved(address: Numbers, count: int) -> bool:
    """Whether one instruction may move that many items: they are neighbours, and begin at a multiple of the count."""
    threads, rounds, items, steps = address.shape
    parts = address.reshape(threads, rounds, items // count, count, steps)
    if (parts[:, :, :, 0] % count).any():
        return False
    return bool((parts[:, :, :, 1:] - parts[:, :, :, :-1] == 1).all())


def _advance(address: Numbers, bits: int) -> int:
    """The median distance of a thread's accesses in consecutive steps, in bytes."""
    if address.shape[3] > 1:
        steps = np.abs(address[..., 1:] - address[..., :-1])
    elif address.shape[1] > 1:
        steps = np.abs(address[:, 1:] - address[:, :-1])
    else:
        return 0
    least, middle = int(steps.min()), steps.size // 2
    if least == steps.max():  # as mostly
        return least * bits // 8
    halves = np.partition(steps, (middle - 1, middle), axis=None)
    median = halves[middle] if steps.size % 2 else (halves[middle - 1] + halves[middle]) / 2
    return int(median) * bits // 8
