"""Conditions on indices, asked once for all lanes of a chunk: those that are the same for all, and whether the others
hold for the first lane and the last one. Inside of a window's edges no lane then asks for itself."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from hlo_opt.codegen.lanes_folds import stride
from hlo_opt.codegen.lanes_nodes import Around, Node, Stretch
from hlo_opt.codegen.lanes_sides import left_of
from hlo_opt.codegen.lanes_text import variables_in
from hlo_opt.codegen.tree import Block, Let, Statement
from hlo_opt.ir.index_map import Condition, Expression, Variable, substitute
from hlo_opt.ops.code import Code, atom

_NARROW = frozenset({"bool", "char", "signed char", "unsigned char", "short", "unsigned short"})
"""Types of one or two bytes, with or without a sign."""
Text = Callable[[Expression], str]


def at_edges(
    block: Block,
    values: Mapping[str, Expression],
    uniform: Collection[str],
    ends: Mapping[str, tuple[str, str]],
    text: Text,
    sequence: Callable[[Sequence[Statement]], list[Node]],
) -> Around | None:
    """Statements under conditions of which some are the same for all lanes: these stand around, and where all lanes are
    inside of the others, these are left out. None where none or all are the same, something else stands under the
    opposite, or nothing narrow is read: what is as wide as a lane's sum is best masked, while the sum stays in a
    register; of narrow reads under conditions in loops compilers make no vectors. `ends` are what the variables of
    lanes are in the first lane and in the last one."""
    same = left_of(block.condition, values, uniform)
    own = tuple(c for c in left_of(block.condition, values, None) if c not in same)
    is_narrow = any(isinstance(s, Let) and s.kind in _NARROW for s in block.body)
    if block.otherwise or not same or not own or not is_narrow:
        return None
    inside: list[Node] = list(sequence([Block(Code(block.condition.pieces, says=own), block.body)]))
    test = _all_inside(own, ends, text)
    if test is not None:
        whole = Around(f"if ({test})", [Stretch([Block(atom("true"), block.body)])])
        inside = [whole, Around("else", inside)]
    return Around(f"if ({holding(same, text)})", inside, True)


def holding(conditions: Sequence[Condition], text: Text) -> str:
    """The test that conditions hold which are the same for all lanes."""
    return " && ".join(f"{c.low} <= {at} && {at} <= {c.high}" for c in conditions for at in [text(c.expression)])


def _all_inside(conditions: Sequence[Condition], ends: Mapping[str, tuple[str, str]], text: Text) -> str | None:
    """The test that conditions hold for all lanes, whose indices grow or shrink evenly from lane to lane; None where
    one does not."""
    tests = []
    for condition in conditions:
        place = condition.expression
        own = [v for v in variables_in(place) if v.name in ends]
        steps = [stride(place, v.name) for v in own]
        if len({v.name for v in own}) != 1 or steps[0] is None:
            return None
        name = own[0].name
        low, high = (
            text(substitute(place, {name: Variable(own[0].low, own[0].high, end)}))
            for end in (ends[name] if steps[0] >= 0 else ends[name][::-1])
        )
        tests.append(f"{condition.low} <= {low} && {high} <= {condition.high}")
    return " && ".join(tests)
