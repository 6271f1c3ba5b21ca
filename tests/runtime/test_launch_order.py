from collections.abc import Sequence, Set

from hypothesis import given, settings
from hypothesis import strategies as st

from hlo_opt.runtime.cupy.launch_order import Access, Start, dependencies, starts

SPANS = st.tuples(st.integers(0, 12), st.integers(1, 4)).map(lambda pair: (pair[0], pair[0] + pair[1]))
ACCESSES = st.lists(
    st.builds(
        Access,
        st.lists(SPANS, max_size=3).map(tuple),
        st.lists(SPANS, min_size=1, max_size=2).map(tuple),
        st.sampled_from(["", "", "", "k", "m"]),
    ),
    max_size=14,
)


def meet(one: Access, other: Access) -> bool:
    """Whether the two must not change places, by every byte."""

    def bytes_of(spans: Sequence[tuple[int, int]]) -> set[int]:
        return {b for first, last in spans for b in range(first, last)}

    a, b = (bytes_of(x.reads) for x in (one, other))
    v, w = (bytes_of(x.writes) for x in (one, other))
    return bool(v & w or v & b or a & w) or (one.alone != "" and one.alone == other.alone)


def behind(order: Sequence[Start]) -> list[Set[int]]:
    """What each launch comes after, as streams and events have it."""
    found: list[Set[int]] = []
    last: dict[int, int] = {}
    for number, start in enumerate(order):
        direct = {*start.waits, *([last[start.stream]] if start.stream in last else [])}
        found.append(direct.union(*(found[n] for n in direct)))
        last[start.stream] = number
    return found


@settings(max_examples=200, deadline=None)
@given(ACCESSES, st.integers(1, 4))
def test_launches_that_touch_the_same_bytes_are_ordered(accesses: list[Access], streams: int) -> None:
    order = starts(dependencies(accesses), streams)
    after = behind(order)
    assert all(0 <= s.stream < streams for s in order)
    for later, access in enumerate(accesses):
        for earlier in range(later):
            assert not meet(accesses[earlier], access) or earlier in after[later], (earlier, later)


@settings(max_examples=200, deadline=None)
@given(ACCESSES)
def test_with_enough_streams_nothing_else_is_ordered(accesses: list[Access]) -> None:
    after = behind(starts(dependencies(accesses), len(accesses) + 1))
    wanted: list[set[int]] = []
    for later, access in enumerate(accesses):
        direct = {n for n in range(later) if meet(accesses[n], access)}
        wanted.append(direct.union(*(wanted[n] for n in direct)))
    assert after == wanted


def test_what_follows_from_other_waits_is_left_out() -> None:
    reads = [Access((), ((0, 1),)), Access(((0, 1),), ((1, 2),)), Access(((0, 1),), ((2, 3),))]
    join = Access(((0, 1), (1, 2), (2, 3)), ((3, 4),))
    assert starts(dependencies([*reads, join]), 4) == [Start(0, ()), Start(0, ()), Start(1, (0,)), Start(1, (1,))]


def test_a_place_that_is_used_again_waits_for_its_readers() -> None:
    accesses = [
        Access((), ((0, 8),)),
        Access(((0, 8),), ((8, 9),)),
        Access(((0, 4),), ((9, 10),)),
        Access((), ((2, 6),)),
    ]
    assert dependencies(accesses) == [set(), {0}, {0}, {0, 1, 2}]
