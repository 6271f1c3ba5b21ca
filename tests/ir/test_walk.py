"""Orders of the graph: what is kept of them until an edit."""

import hlo_opt
from hlo_opt.ir import Computation, edit
from hlo_opt.ir.walk import are_in_order, match, needed_by, needed_first, post_order

TEXT = """HloModule m

ENTRY e {
  a = f32[4] parameter(0)
  b = f32[4] exponential(a)
  c = f32[4] negate(a)
  d = f32[4] add(c, b)
  ROOT e = f32[4] multiply(d, b)
}
"""


def names(instructions):
    return [i.name for i in instructions]


def test_post_order_is_kept_until_an_edit_and_is_the_callers_own():
    entry = hlo_opt.parse(TEXT).entry
    first = post_order(entry)
    assert names(first) == ["a", "c", "b", "d", "e"]
    first.reverse()
    assert names(post_order(entry)) == ["a", "c", "b", "d", "e"]
    by_name = {i.name: i for i in entry.instructions}
    edit.replace_operand(by_name["d"], 0, by_name["b"])
    fresh = hlo_opt.parse(str(entry.module)).entry
    assert names(post_order(entry)) == names(post_order(fresh))


def test_sorting_forgets_the_post_order():
    entry = hlo_opt.parse(TEXT).entry
    post_order(entry)
    by_name = {i.name: i for i in entry.instructions}
    tail = edit.create(entry, "f", "cosine", by_name["a"].shape, [by_name["a"]])
    edit.replace_operand(by_name["b"], 0, tail)
    assert not are_in_order(entry.instructions, needed_by)
    edit.sort(entry)
    assert are_in_order(entry.instructions, needed_by)
    assert names(post_order(entry)).index("f") < names(post_order(entry)).index("b")


def test_nodes_in_order_are_those_that_needed_first_leaves_alone():
    needs = {1: [], 2: [1], 3: [1, 2]}
    for nodes in ([1, 2, 3], [2, 1, 3], [3, 2, 1], [1, 3, 2]):
        assert are_in_order(nodes, needs.__getitem__) == (needed_first(nodes, needs.__getitem__) == nodes)


def test_graphs_match_pair_by_pair_and_each_pair_is_asked_for_once():
    below = {"a": "bc", "b": "d", "c": "d", "d": "", "A": "BC", "B": "D", "C": "D", "D": ""}
    asked = []

    def alike(one: str, other: str) -> list[tuple[str, str]] | None:
        asked.append(one + other)
        return list(zip(below[one], below[other], strict=True)) if one.upper() == other else None

    assert match("a", "A", alike)
    assert sorted(asked) == ["aA", "bB", "cC", "dD"]
    assert not match("a", "B", alike)
    below["A"] = "BB"  # the second operand is another one
    assert not match("a", "A", alike)


def unordered() -> Computation:
    """Two parameters, a sum of them, and a negation that nothing reads."""
    return hlo_opt.parse(
        "HloModule m\n\nENTRY e {\n  p = f32[] parameter(0)\n  q = f32[] parameter(1)\n"
        "  n = f32[] negate(q)\n  ROOT s = f32[] add(p, q)\n}\n"
    ).entry


def test_a_caller_may_change_the_order_that_it_was_given() -> None:
    computation = unordered()
    wanted = post_order(computation)
    post_order(computation).reverse()
    assert post_order(computation) == wanted


def test_an_order_is_found_anew_after_instructions_are_sorted() -> None:
    computation = unordered()
    negate, add = list(computation.instructions)[2:]
    negate.control_predecessors = [add]
    post_order(computation)
    edit.sort(computation)
    kept = post_order(computation)
    computation.facts.clear()
    assert kept == post_order(computation) and kept.index(add) < kept.index(negate)
