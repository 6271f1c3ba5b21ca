"""From an element down to the elements that it is computed from."""

from __future__ import annotations

from hlo_opt.ir import Computation, Instruction
from hlo_opt.ir.index_map import constant, variable
from hlo_opt.plans.element_reads import depending_below, depending_on, ends_needed, heroes_read
from tests.small_modules import module_of

X, Y = variable("x", 4), variable("y", 6)
LINES = (
    "p = f32[4,6]{1,0} parameter(0)",
    "at = s32[] parameter(1)",
    "zero = s32[] constant(0)",
    "n = f32[4,6]{1,0} negate(p)",
    "t = f32[6,4]{1,0} transpose(n), dimensions={1,0}",
    "u = f32[4,6]{1,0} reverse(p), dimensions={0}",
    "d = f32[4,6]{1,0} dynamic-slice(n, at, zero), dynamic_slice_sizes={4,6}",
    "b = f32[4,6]{1,0} transpose(t), dimensions={1,0}",
    "r = (f32[4,6]{1,0}, f32[4,6]{1,0}, f32[4,6]{1,0}) tuple(b, u, d)",
)


def named() -> tuple[Computation, dict[str, Instruction]]:
    entry = module_of(*LINES).entry
    return entry, {i.name: i for i in entry.instructions}


def test_what_depends_on_others() -> None:
    entry, of = named()
    assert {i.name for i in depending_on(entry.instructions, [of["n"]])} == {"n", "t", "d", "b", "r"}
    assert {i.name for i in depending_below(of["b"], {of["n"], of["d"]})} == {"n", "t", "b"}


def test_a_hero_at_its_own_index_is_read_through_other_orders() -> None:
    _, of = named()
    over = depending_below(of["b"], {of["n"]})
    assert heroes_read([(of["b"], (X, Y))], over, {of["n"]: (X, Y)}) == [of["n"]]
    assert heroes_read([(of["t"], (X, Y))], over, {of["n"]: (X, Y)}) is None, "read at (y, x)"
    assert heroes_read([(of["u"], (X, Y))], over, {of["n"]: (X, Y)}) == [], "needs none"


def test_a_way_that_data_decide_is_lost() -> None:
    entry, of = named()
    over = depending_on(entry.instructions, [of["p"]])
    assert heroes_read([(of["d"], (X, Y))], over, {of["p"]: (X, Y)}) is None
    assert list(ends_needed([(of["d"], (X, Y))], over, lambda i, _: i is of["p"])) == [None]


def test_all_ways_of_a_tuple_are_gone_to_the_first_end() -> None:
    entry, of = named()
    over = depending_on(entry.instructions, [of["p"]])
    found = list(ends_needed([(of["r"], (constant(0), Y))], over, lambda i, _: i in (of["n"], of["p"])))
    assert None in found, "the dynamic slice"
    assert {(end[0].name, end[1]) for end in found if end is not None} == {
        ("n", (constant(0), Y)),
        ("p", (constant(3), Y)),
    }
