"""Long statements of lanes in parts."""

from __future__ import annotations

from collections.abc import Callable

from hlo_opt.codegen.lanes_cuts import FUNCTION, MANY, PART, WEIGHT, parts_by_weight, parts_of, reads_apart
from hlo_opt.codegen.tree import DeclaredArray, Let, Statement
from hlo_opt.ops.code import Name, call, code


def chain(length: int, abreast: int = 1) -> list[Statement]:
    """So many statements, each of which waits for the one `abreast` before it."""
    made: list[Statement] = [Let("float", Name(f"x{k}"), code("1.0f")) for k in range(abreast)]
    made += [Let("float", Name(f"x{k}"), code("{} * 2.0f", Name(f"x{k - abreast}"))) for k in range(abreast, length)]
    return made


def test_a_chain_is_cut() -> None:
    items = chain(100)
    parts = parts_of(items)
    assert (
        len(parts) == 100 // PART and [s for part in parts for s in part] == items and min(map(len, parts)) >= PART // 2
    )


def test_few_or_wide_statements_stay() -> None:
    assert len(parts_of(chain(PART))) == 1
    assert len(parts_of(chain(100, abreast=10))) == 1
    assert len(parts_of(chain(MANY, abreast=10))) > 1


def test_arrays_of_a_lane_stay_in_one_part() -> None:
    assert len(parts_of([DeclaredArray("float", Name("own"), 4), *chain(100)])) == 1


def test_a_cut_is_where_few_values_are_handed_on() -> None:
    """Two chains, one after the other: between them nothing is handed on."""
    items = [
        Let("float", Name(f"{c}{k}"), code("{} + 1.0f", Name(f"{c}{max(k - 1, 0)}"))) for c in "ab" for k in range(22)
    ]
    first, second = parts_of(items)
    assert first == items[:22] and second == items[22:]


def test_functions_weigh() -> None:
    """Four functions are as much as many statements: each part gets as much to do."""
    items: list[Statement] = [
        Let("float", Name(f"x{k}"), call("erff", Name(f"x{k - 1}")) if k % 3 else code("1.0f")) for k in range(12)
    ]
    parts = parts_by_weight(items)
    assert [s for part in parts for s in part] == items and len(parts) == round((12 + 8 * FUNCTION) / WEIGHT) > 1
    assert len(parts_by_weight(chain(12))) == 1
    assert len(parts_by_weight([DeclaredArray("float", Name("own"), 4), *items])) == 1


def test_a_chain_that_is_done_once_is_cut_like_a_round() -> None:
    """Each of its statements waits for the one before: a loop over lanes needs several vectors in sight at a time."""
    items = chain(600)
    parts = parts_by_weight(items)
    assert [s for part in parts for s in part] == items and len(parts) == 600 // PART
    assert len(parts_by_weight(chain(600, abreast=200))) == round(600 / WEIGHT)


def test_reads_of_one_array_in_steps_stand_alone() -> None:
    """In front of the others; one alone stays, as does what is no such read."""
    items: list[Statement] = [Let("float", Name(n), code("1.0f")) for n in ("a", "x", "b", "y")]

    def read_by(*names: str) -> Callable[[Statement], Name | None]:
        return lambda item: Name("p") if isinstance(item, Let) and item.name.text in names else None

    assert reads_apart(items, read_by("x", "y")) == [[items[1]], [items[3]], [items[0], items[2]]]
    assert reads_apart(items, read_by("x")) == [items]
    assert reads_apart(items[1:2] + items[3:], read_by("x", "y")) == [[items[1]], [items[3]]]


def test_roundings_weigh() -> None:
    """What rounds each of its numbers is cut shorter, in loops and outside of them."""
    items: list[Statement] = [
        Let("float", Name(f"x{k}"), call("hlo_round_f16", Name(f"x{k - 1}")) if k else code("1.0f")) for k in range(12)
    ]
    for parts in (parts_of(items), parts_by_weight(items)):
        assert [s for part in parts for s in part] == items and len(parts) >= 4
    assert len(parts_of(chain(12))) == 1
