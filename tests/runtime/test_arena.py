from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hlo_opt.runtime.schedule.arena import ALIGNMENT, Arena


def test_freed_places_are_taken_again() -> None:
    arena = Arena()
    first, second, third = arena.take(100), arena.take(64), arena.take(1)
    assert (first, second, third) == (0, 128, 192)
    arena.give_back(first)
    assert arena.take(65) == 0
    arena.give_back(second)
    assert arena.take(65) == 256
    assert arena.size == 384 and arena.alive == 128 + 64 + 128


def test_unknown_place() -> None:
    with pytest.raises(KeyError):
        Arena().give_back(0)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 3)), max_size=40))
def test_what_is_alive_lies_apart(steps: list[tuple[int, int]]) -> None:
    arena = Arena()
    alive: dict[int, int] = {}
    for size, back in steps:
        offset = arena.take(size)
        assert offset % ALIGNMENT == 0
        assert all(offset + size <= o or o + s <= offset for o, s in alive.items())
        alive[offset] = max(1, size)
        if back == 0:
            arena.give_back(next(iter(alive)))
            del alive[next(iter(alive))]
    assert arena.size >= sum(alive.values())
