"""The order in which the C++ library's `std::sort` leaves equal elements.

An unstable `sort` leaves it open; XLA:CPU hands it to `std::sort` (xla/backends/cpu/runtime/sort_thunk.cc), which in GCC's library is an introspective
sort: quicksort with a median of three down to 16 elements, heap sort where that goes too deep, then one insertion sort over all (bits/stl_algo.h,
bits/stl_heap.h).
"""

from __future__ import annotations

from collections.abc import Callable

Less = Callable[[int, int], bool]

THRESHOLD = 16
"""Shorter runs are left to the insertion sort."""


class Undecided(Exception):  # noqa: N818 - no error of the caller's
    """The comparator is no order, and the library would read outside of the array."""


def introsort(count: int, less: Less) -> list[int]:
    """The positions 0..count-1 in the order that `std::sort` gives them; `less` compares two positions.

    Raises Undecided where the library would leave the bounds of the array.
    """
    order = list(range(count))
    depth = 2 * (count.bit_length() - 1)
    todo = [(0, count, depth)]
    while todo:
        first, last, depth = todo.pop()
        while last - first > THRESHOLD:
            if not depth:
                _heap_sort(order, first, last, less)
                break
            depth -= 1
            cut = _partition(order, first, last, less)
            todo.append((first, cut, depth))
            first = cut
    _insert_all(order, less)
    return order


def _partition(order: list[int], first: int, last: int, less: Less) -> int:
    """Splits around the median of the second, the middle and the last element, which goes to the front."""
    a, b, c = first + 1, first + (last - first) // 2, last - 1
    if less(order[a], order[b]):
        median = b if less(order[b], order[c]) else c if less(order[a], order[c]) else a
    else:
        median = a if less(order[a], order[c]) else c if less(order[b], order[c]) else b
    order[first], order[median] = order[median], order[first]
    pivot, low, high, end = order[first], first + 1, last, len(order)
    while True:
        while low < end and less(order[low], pivot):
            low += 1
        high -= 1
        while high >= 0 and less(pivot, order[high]):
            high -= 1
        if low >= end or high < 0:
            raise Undecided
        if low >= high:
            return low
        order[low], order[high] = order[high], order[low]
        low += 1


def _heap_sort(order: list[int], first: int, last: int, less: Less) -> None:
    length = last - first
    for parent in range((length - 2) // 2, -1, -1):
        _sift(order, first, parent, length, order[first + parent], less)
    for end in range(length - 1, 0, -1):
        value = order[first + end]
        order[first + end] = order[first]
        _sift(order, first, 0, end, value, less)


def _sift(order: list[int], first: int, hole: int, length: int, value: int, less: Less) -> None:
    """Moves the hole down to a leaf and the value from there up to its place."""
    top = child = hole
    while child < (length - 1) // 2:
        child = 2 * (child + 1)
        if less(order[first + child], order[first + child - 1]):
            child -= 1
        order[first + hole] = order[first + child]
        hole = child
    if length % 2 == 0 and child == (length - 2) // 2:
        child = 2 * child + 1
        order[first + hole] = order[first + child]
        hole = child
    parent = (hole - 1) // 2
    while hole > top and less(order[first + parent], value):
        order[first + hole] = order[first + parent]
        hole, parent = parent, (parent - 1) // 2
    order[first + hole] = value


def _insert_all(order: list[int], less: Less) -> None:
    for position in range(1, len(order)):
        value, at = order[position], position
        if position < THRESHOLD and less(value, order[0]):
            order[1 : position + 1] = order[:position]
            order[0] = value
            continue
        while less(value, order[at - 1]):
            order[at] = order[at - 1]
            at -= 1
            if not at:
                raise Undecided
        order[at] = value
