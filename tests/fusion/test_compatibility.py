"""Each rule about two kernels as one, by itself: what it says of a pair just inside it and of one just outside."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from kernel_pairs import (
    COLUMN,
    COLUMN_SUM,
    COLUMNS,
    FUSED,
    INPUTS,
    KERNELS,
    NEGATED,
    REVERSED,
    ROW,
    ROW_SUM,
    ROWS,
    TALL,
    TANH,
    TRITON,
    TURNED,
    WIDE,
    both,
    one,
    part,
)
from small_modules import module_of, named, state_of

import hlo_opt
from hlo_opt.diag import Reason
from hlo_opt.fusion import compatibility as rules
from hlo_opt.fusion.compatibility import Beside, MultiOutputEdge, Pair, PairCheck


@pytest.mark.parametrize(
    ("line", "form", "hero", "shape"),
    [
        (f"{WIDE} add(p, p)", "", "", WIDE),
        (f"{WIDE} reverse(p), dimensions={{0}}", "reverse", "", WIDE),
        ("f32[3,64,96]{2,1,0} broadcast(p), dimensions={1,2}", "broadcast", "", "f32[3,64,96]{2,1,0}"),
        (f"{TALL} transpose(p), {TURNED}", "", "transpose of 96x64 to 1x0", WIDE),
        (f"f32[4,64]{{1,0}} transpose(few), {TURNED}", "transpose", "", "f32[4,64]{1,0}"),
        (f"{ROW} reduce(p, z), {ROWS}", "", "row reduction of 1x64x96", WIDE),
        (f"{COLUMN} reduce(p, z), {COLUMNS}", "", "column reduction of 1x64x96", WIDE),
        (FUSED, "", "", WIDE),
        (f"{WIDE} fusion(p), {TRITON}, calls=negated", "Triton fusion", "", WIDE),
        (f"{ROW} fusion(p), kind=kInput, calls=sums", "", "row reduction of 1x64x96", WIDE),
        (f"{TALL} fusion(p), kind=kInput, calls=turned", "", "transpose of 96x64 to 1x0", WIDE),
        (f"{TALL} fusion(p), kind=kInput, calls=turned_and_more", "", "transpose of 96x64 to 1x0", WIDE),
        (f"{WIDE} fusion(p, u), kind=kLoop, calls=updated", "", "", WIDE),
        ("f32[128,96]{1,0} fusion(p), kind=kLoop, calls=joined", "concatenate fusion", "", "f32[128,96]{1,0}"),
        (f"{WIDE} fusion(p, places, some), kind=kInput, calls=scattered", "scatter fusion", "", WIDE),
        (f"({WIDE}, {WIDE}) fusion(p), kind=kLoop, calls=of_two", "", "", WIDE),
    ],
)
def test_how_the_threads_of_a_kernel_go(line: str, form: str, hero: str, shape: str):
    state, instruction = one(line)
    walk = rules.walk_of(state, instruction)
    assert (walk.form, walk.hero, str(walk.shape)) == (form, hero, shape)
    assert rules.form_of_output(state, instruction) == form


TWO_SUMS = """HloModule m

pick {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = f32[] parameter(2)
  d = f32[] parameter(3)
  s = f32[] add(a, c)
  m = f32[] maximum(b, d)
  ROOT r = (f32[], f32[]) tuple(s, m)
}

two {
  x = f32[SIZES]{ORDER} parameter(0)
  z = f32[] constant(0)
  ROOT r = (f32[64]{0}, f32[64]{0}) reduce(x, x, z, z), dimensions={DIMENSION}, to_apply=pick
}

ENTRY e {
  p = f32[SIZES]{ORDER} parameter(0)
  ROOT f = (f32[64]{0}, f32[64]{0}) fusion(p), kind=kInput, calls=two
}
"""


@pytest.mark.parametrize(
    ("sizes", "order", "dimension", "form"),
    [("64,96", "1,0", "1", ""), ("4,64", "1,0", "0", "variadic reduce in a loop")],
)
def test_a_reduction_of_several_arrays(sizes: str, order: str, dimension: str, form: str):
    text = TWO_SUMS.replace("SIZES", sizes).replace("ORDER", order).replace("DIMENSION", dimension)
    module = hlo_opt.parse(text)
    assert rules.form_of_output(state_of(module), module.entry.root) == form


@dataclass(frozen=True)
class Row:
    """What a rule says of `a` and `b`."""

    rule: PairCheck
    first: str
    second: str
    more: tuple[str, ...] = ()
    kept: bool = False
    parent: str = ""
    against: Reason | None = None


no = Reason.of


UPDATED = f"{WIDE} dynamic-update-slice(p, u, i, i)"
TRANSPOSED = f"{TALL} transpose(p), {TURNED}"
OF_ROWS, OF_COLUMNS, TURN = "row reduction of 1x64x96", "column reduction of 1x64x96", "transpose of 96x64 to 1x0"


def heroes(first: str, second: str, reader: str = "b") -> Reason:
    return no("FUS432", first="a", first_hero=first, second=reader, second_hero=second)


def slices(first: str, second: str) -> Reason:
    numbers = {"first_slice": f"[{first}, 0:32]", "second_slice": f"[{second}, 0:32]"}
    return no("FUS433", first="a", second="b", parent="s", **numbers)


def keeps(producer: str, opcode: str, why: str) -> Reason:
    return no("FUS136", producer=producer, opcode=opcode, why=why)


TABLE = {
    "loops": Row(rules.output_form, NEGATED, TANH),
    "the first is no loop": Row(
        rules.output_form, REVERSED, TANH, against=no("FUS133", instruction="a", form="reverse")
    ),
    "the second is no loop": Row(
        rules.output_form, TANH, REVERSED, against=no("FUS133", instruction="b", form="reverse")
    ),
    "what is kept is no loop": Row(rules.output_form, REVERSED, f"{WIDE} tanh(a)", kept=True),
    "what reads it is no loop": Row(
        rules.output_form, TANH, f"{WIDE} reverse(a), dimensions={{0}}", kept=True,
        against=no("FUS133", instruction="b", form="reverse"),
    ),
    "single siblings": Row(rules.plain_siblings, NEGATED, TANH, against=no("FUS135", first="a", second="b")),
    "the first sibling is a fusion": Row(rules.plain_siblings, FUSED, TANH),
    "the second sibling is a fusion": Row(rules.plain_siblings, TANH, FUSED),
    # heroes
    "equal reductions": Row(rules.heroes_fit, ROW_SUM, f"{ROW} reduce(w, z), {ROWS}"),
    "a row and a column": Row(rules.heroes_fit, ROW_SUM, COLUMN_SUM, against=heroes(OF_ROWS, OF_COLUMNS)),
    "rows of other sizes": Row(
        rules.heroes_fit, ROW_SUM, f"{COLUMN} reduce(q, z), {ROWS}", against=heroes(OF_ROWS, "row reduction of 1x96x64")
    ),
    "a reduction and a loop": Row(rules.heroes_fit, ROW_SUM, NEGATED),
    "a loop and a reduction": Row(rules.heroes_fit, NEGATED, ROW_SUM),
    "a transpose and a loop": Row(rules.heroes_fit, TRANSPOSED, NEGATED),
    "what is kept is transposed": Row(rules.heroes_fit, NEGATED, f"{TALL} transpose(a), {TURNED}", kept=True),
    "it is transposed behind a sum": Row(
        rules.heroes_fit, NEGATED, f"{TALL} fusion(a, p), kind=kInput, calls=turned_later", kept=True
    ),
    "it is transposed, and more": Row(
        rules.heroes_fit, NEGATED, f"{TALL} fusion(a), kind=kInput, calls=turned_and_more", kept=True,
        against=heroes("loop", TURN, "a8"),
    ),
    "it is read twice before": Row(
        rules.heroes_fit, NEGATED, f"{TALL} fusion(a), kind=kInput, calls=read_twice", kept=True,
        against=heroes("loop", TURN, "y9"),
    ),
    "a transpose is kept": Row(rules.heroes_fit, TRANSPOSED, f"{TALL} abs(a)", kept=True),
    "a transpose is kept and reversed": Row(
        rules.heroes_fit, TRANSPOSED, f"{TALL} reverse(a), dimensions={{0}}", kept=True, against=heroes(TURN, "loop")
    ),
    "a transpose is kept and copied": Row(
        rules.heroes_fit, TRANSPOSED, f"{TALL} copy(a)", kept=True, against=heroes(TURN, "loop")
    ),
    "a transpose is kept in another shape": Row(rules.heroes_fit, TRANSPOSED, "f32[6144]{0} bitcast(a)", kept=True),
    # shapes
    "one shape": Row(rules.shapes_fit, NEGATED, TANH),
    "two shapes": Row(
        rules.shapes_fit, NEGATED, f"{ROW} tanh(v)",
        against=no("FUS431", first="a", first_shape=WIDE, second="b", second_shape=ROW),
    ),
    "a reduction walks its operand": Row(rules.shapes_fit, ROW_SUM, NEGATED),
    # slices
    "slices that overlap": Row(rules.slices_overlap, part("0:5"), part("4:8"), parent="s"),
    "slices that overlap, the other way round": Row(rules.slices_overlap, part("4:8"), part("0:5"), parent="s"),
    "slices that touch": Row(rules.slices_overlap, part("0:4"), part("4:8"), parent="s", against=slices("0:4", "4:8")),
    "slices that touch, the other way round": Row(
        rules.slices_overlap, part("4:8"), part("0:4"), parent="s", against=slices("4:8", "0:4")
    ),
    "slices of what stays in a cache": Row(
        rules.slices_overlap, "f32[4,51]{1,0} slice(near), slice={[0:4], [0:51]}",
        "f32[1,51]{1,0} slice(near), slice={[4:5], [0:51]}", parent="near",
    ),
    "the second is no slice": Row(rules.slices_overlap, part("0:4"), "f32[8,32]{1,0} negate(s)", parent="s"),
    "the first is no slice": Row(rules.slices_overlap, "f32[8,32]{1,0} negate(s)", part("0:4"), parent="s"),
    "one is more than a slice": Row(
        rules.slices_overlap, part("0:4"), "f32[4,32]{1,0} fusion(s), kind=kLoop, calls=cut_twice", parent="s"
    ),
    "no parent": Row(rules.slices_overlap, part("0:4"), part("4:8")),
    # updates
    "no update": Row(rules.updates_in_place, FUSED, TANH),
    "an update": Row(rules.updates_in_place, UPDATED, TANH, against=no("FUS631", update="a", size=672)),
    "an update in a fusion": Row(
        rules.updates_in_place, TANH, f"{WIDE} fusion(p, u), kind=kLoop, calls=updated",
        against=no("FUS631", update="y3", size=672),
    ),
    # producers that are kept
    "a loop is kept": Row(rules.producer_form, NEGATED, f"{WIDE} tanh(a)", kept=True),
    "a loop of several is kept": Row(rules.producer_form, FUSED, f"{WIDE} tanh(a)", kept=True),
    "a plain reduction is kept": Row(rules.producer_form, ROW_SUM, f"{ROW} tanh(a)", kept=True),
    "an update is kept": Row(
        rules.producer_form, UPDATED, f"{WIDE} tanh(a)", kept=True,
        against=keeps("a", "dynamic-update-slice", "updates a buffer in place"),
    ),
    "a scatter is kept": Row(
        rules.producer_form, f"{WIDE} fusion(p, places, some), kind=kInput, "
                             f"calls=scattered", f"{WIDE} tanh(a)", kept=True,
        against=keeps("y5", "fusion", "updates a buffer in place"),
    ),
    "a reduction kernel is kept": Row(
        rules.producer_form, f"{ROW} fusion(p), kind=kInput, calls=sums", f"{ROW} tanh(a)", kept=True,
        against=keeps("y1", "fusion", "is a reduction kernel"),
    ),
    "a Triton kernel is kept": Row(
        rules.producer_form, f"{WIDE} fusion(p), {TRITON}, calls=negated", f"{WIDE} tanh(a)", kept=True,
        against=keeps("y0", "fusion", "is a Triton kernel"),
    ),
    "a transpose that is kept": Row(
        rules.producer_form, TRANSPOSED, f"{TALL} tanh(a)", kept=True, against=keeps("a", "transpose", "moves data")
    ),
    "a transposing kernel is kept": Row(
        rules.producer_form, f"{TALL} fusion(p), kind=kInput, calls=turned", f"{TALL} tanh(a)", kept=True,
        against=keeps("y2", "fusion", "is a transpose kernel"),
    ),
    "a product is kept": Row(
        rules.producer_form, "f32[64,64]{1,0} dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        "f32[64,64]{1,0} tanh(a)", kept=True, against=keeps("a", "dot", "is no loop"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", TABLE)
def test_a_rule(what: str):
    row = TABLE[what]
    assert row.rule(both(row.first, row.second, *row.more, kept=row.kept, parent=row.parent)) == row.against


SHAPES = [
    ("f32[64,96]{1,0}", "f32[64,96]{1,0}", True),
    ("f32[64,96]{1,0}", "bf16[64,96]{1,0}", True),
    ("f32[64,96]{1,0}", "f32[96,64]{1,0}", True),  # both are read from the first element to the last
    ("f32[64,96]{1,0}", "f32[96,64]{0,1}", True),  # a transpose that moves nothing
    ("f32[64,96]{0,1}", "f32[64,96]{1,0}", False),
    ("f32[64,96]{0,1}", "f32[96,64]{0,1}", False),
    ("f32[64,96]{1,0}", "f32[6144]{0}", True),
    ("f32[64,96]{0,1}", "f32[6144]{0}", False),
    ("f32[64,96]{0,1}", "f32[64,1,96]{0,1,2}", True),
    ("f32[64,96]{1,0}", "f32[64,95]{1,0}", False),
    ("(f32[64,96]{1,0})", "f32[64,96]{1,0}", False),
    ("f32[64,96]{1,0}", "(f32[64,96]{1,0})", False),
]


@pytest.mark.parametrize(("first", "second", "same"), SHAPES)
def test_which_shapes_one_loop_walks(first: str, second: str, same: bool):
    entry = hlo_opt.parse(
        f"HloModule m\nENTRY e {{\n  a = {first} parameter(0)\n  ROOT b = {second} parameter(1)\n}}\n"
    ).entry
    assert rules.same_walk(*(i.shape for i in entry.instructions)) == same


# ---- structure


def whole(user: str, reads: str = "tuple", root: bool = False) -> Pair:
    """A kernel of two outputs, which `user` reads."""
    lines = [
        *INPUTS,
        f"a = ({WIDE}, {WIDE}) fusion(p), kind=kLoop, calls=of_two",
        f"b = {TANH}",
        user,
    ]
    module = module_of(*lines, *(() if root else ("r = f32[] add(z, z)",)), **KERNELS)
    return Beside(named(module, "a"), named(module, "b"), state_of(module))


@pytest.mark.parametrize(
    ("user", "reader"),
    [
        (f"g = {WIDE} get-tuple-element(a), index=1", ""),
        (f"g = (({WIDE}, {WIDE})) tuple(a)", "g"),
    ],
)
def test_a_tuple_is_read_element_by_element(user: str, reader: str):
    expected = [no("FUS134", instruction="a", user=reader)] if reader else []
    assert list(rules.structure(whole(user))) == expected


def test_the_caller_reads_a_tuple_whole():
    lines = (*INPUTS, f"b = {TANH}", f"a = ({WIDE}, {WIDE}) fusion(p), kind=kLoop, calls=of_two")
    module = module_of(*lines, **KERNELS)
    pair = Beside(named(module, "b"), module.entry.root, state_of(module))
    assert list(rules.structure(pair)) == [no("FUS134", instruction="a", user="the caller")]


def test_a_producer_with_several_outputs_is_not_kept_but_joined():
    lines = (
        *INPUTS,
        f"a = ({WIDE}, {WIDE}) fusion(p), kind=kLoop, calls=of_two",
        f"g = {WIDE} get-tuple-element(a), index=1",
        f"b = {TANH}",
    )
    module = module_of(*lines, **KERNELS)
    ends = named(module, "a"), named(module, "b"), state_of(module)
    assert list(rules.structure(Beside(*ends))) == []
    assert list(rules.structure(MultiOutputEdge(*ends))) == [no("FUS105", producer="a", outputs=2)]


def test_what_makes_one_kernel_impossible_comes_in_order():
    first = 'f32[64,96]{1,0} custom-call(p), custom_call_target="f", custom_call_has_side_effect=true'
    found = list(rules.structure(both(first, f"{WIDE} tanh(p), control-predecessors={{a}}")))
    assert [r.code for r in found] == ["FUS102", "FUS103", "FUS308"]
