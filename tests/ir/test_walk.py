"""Orders of the graph: what is kept of them until an edit."""

import hlo_opt
from hlo_opt.ir import edit
from hlo_opt.ir.walk import are_in_order, needed_by, needed_first, post_order

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
