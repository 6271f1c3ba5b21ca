"""Each rule about two kernels as one, by itself: what it says of a pair just inside it and of one just outside."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from kernel_pairs import COLUMN, COLUMNS, FUSED, INPUTS, KERNELS, ROW, ROWS, TALL, TRITON, TURNED, WIDE, both, one
from small_modules import H100, module_of, named, state_of

import hlo_opt
from hlo_opt.analysis.performance import Priced, fused_estimate
from hlo_opt.diag import Reason
from hlo_opt.fusion import compatibility as rules
from hlo_opt.fusion.compatibility import Beside, Kept, Pair, PairCheck
from hlo_opt.fusion.known import Outlook
from hlo_opt.fusion.state import Traits
from hlo_opt.fusion.trial import as_fusion
from hlo_opt.plans.limits import DEEPEST


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


NEGATED, TANH = f"{WIDE} negate(p)", f"{WIDE} tanh(p)"
REVERSED = f"{WIDE} reverse(p), dimensions={{0}}"
ROW_SUM, COLUMN_SUM = f"{ROW} reduce(p, z), {ROWS}", f"{COLUMN} reduce(p, z), {COLUMNS}"
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


def part(rows: str) -> str:
    """Some of the eight rows of `s`: 1,024 bytes."""
    start, limit = map(int, rows.split(":"))
    return f"f32[{limit - start},32]{{1,0}} slice(s), slice={{[{rows}], [0:32]}}"


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
        rules.producer_form, f"{WIDE} fusion(p, places, some), kind=kInput, calls=scattered", f"{WIDE} tanh(a)", kept=True,
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
    assert list(rules.structure(Kept(*ends))) == [no("FUS105", producer="a", outputs=2)]


def test_what_makes_one_kernel_impossible_comes_in_order():
    first = 'f32[64,96]{1,0} custom-call(p), custom_call_target="f", custom_call_has_side_effect=true'
    found = list(rules.structure(both(first, f"{WIDE} tanh(p), control-predecessors={{a}}")))
    assert [r.code for r in found] == ["FUS102", "FUS103", "FUS308"]


# ---- budgets


def budget(first: Traits, second: Traits) -> Pair:
    pair = both(NEGATED, TANH)
    pair._above, pair._below = first, second
    return pair


@pytest.mark.parametrize(
    ("first", "second", "fits"), [(4, 4, True), (4, 5, False), (5, 4, False), (9, 0, True), (0, 9, True)]
)
def test_how_many_reductions_one_kernel_holds(first: int, second: int, fits: bool):
    found = rules.reductions_fit(budget(Traits(reductions=first), Traits(reductions=second)))
    assert found == (None if fits else no("FUS203", count=9, limit=8))


def buffers(first: int, second: int, common: int, *, kept: bool = False, constants: int = 0) -> Pair:
    """`a` and `b` with so many operands, of which `common` are the same; `b` reads `a` besides where that is kept."""
    lines = [f"p{n} = f32[1]{{0}} parameter({n})" for n in range(first + second - common)]
    lines += [f"c{n} = f32[1]{{0}} constant({{{n}}})" for n in range(constants)]
    one = [f"p{n}" for n in range(first)]
    other = [f"p{n}" for n in range(first - common, first + second - common)] + [f"c{n}" for n in range(constants)]
    if kept:
        other.append("a")
    lines.append(f'a = f32[1]{{0}} custom-call({", ".join(one)}), custom_call_target="f"')
    lines.append(f'b = (f32[1]{{0}}, f32[1]{{0}}) custom-call({", ".join(other)}), custom_call_target="f"')
    module = module_of(*lines)
    ends = named(module, "a"), named(module, "b"), state_of(module)
    return Kept(*ends) if kept else Beside(*ends)


@pytest.mark.parametrize(
    ("pair", "count"),
    [
        ({"first": 40, "second": 53, "common": 0}, (93, 3, True)),
        ({"first": 40, "second": 54, "common": 0}, (94, 3, False)),
        ({"first": 40, "second": 55, "common": 2}, (93, 3, True)),
        ({"first": 40, "second": 56, "common": 2}, (94, 3, False)),
        ({"first": 40, "second": 53, "common": 0, "constants": 2}, (93, 3, True)),
        ({"first": 40, "second": 53, "common": 0, "kept": True}, (93, 3, True)),
        ({"first": 40, "second": 54, "common": 0, "kept": True}, (94, 3, False)),
    ],
)
def test_how_many_buffers_one_kernel_has(pair: dict[str, int], count: tuple[int, int, bool]):
    operands, outputs, fits = count
    made = buffers(**pair)
    assert rules.buffers(made) == (operands, outputs)
    numbers = {"count": operands + outputs, "operands": operands, "outputs": outputs, "limit": 96}
    assert rules.buffers_fit(made) == (None if fits else no("FUS201", **numbers))


def test_how_much_code_one_kernel_has(monkeypatch: pytest.MonkeyPatch):
    pair = both(f"{WIDE} tanh(p)", FUSED)
    size = sum(pair.state.priced_by_xla(i).usage.code_size for i in (pair.producer, pair.consumer))
    assert rules.joint(pair) == {"code size": size, "walk": rules.walk_of(pair.state, pair.producer)}
    monkeypatch.setattr(rules, "MAX_CODE_SIZE", size)
    assert rules.code_fits(pair) is None
    monkeypatch.setattr(rules, "MAX_CODE_SIZE", size - 1)
    assert rules.code_fits(pair) == no("FUS230", producer="a", consumer="y0", size=size, limit=size - 1)


def test_what_is_kept_is_emitted_for_each_of_its_readers(monkeypatch: pytest.MonkeyPatch):
    """The slices read it at three places."""
    cut = (
        f"xb = {WIDE} parameter(0)",
        *(f"cut{n} = f32[8,96]{{1,0}} slice(xb), slice={{[{n}:{n + 8}], [0:96]}}" for n in range(3)),
        "ab = f32[8,96]{1,0} add(cut0, cut1)",
        "yb = f32[8,96]{1,0} add(ab, cut2)",
    )
    module = module_of(*INPUTS, f"a = {TANH}", "b = f32[8,96]{1,0} fusion(a), kind=kLoop, calls=cut", cut=cut)
    pair = Kept(named(module, "a"), named(module, "b"), state_of(module))
    above, below = (rules.code_size(pair.state, i) for i in (pair.producer, pair.consumer))
    monkeypatch.setattr(rules, "MAX_CODE_SIZE", 0)
    assert rules.code_fits(pair) == no("FUS230", producer="a", consumer="yb", size=3 * above + below, limit=0)
    assert rules.joint(pair) == {}


@pytest.mark.parametrize(
    ("first", "second", "leads"),
    [
        (NEGATED, ROW_SUM, "b"),
        (ROW_SUM, NEGATED, "a"),
        (NEGATED, TANH, "a"),
        (ROW_SUM, f"{ROW} reduce(w, z), {ROWS}", "a"),
        (REVERSED, TANH, ""),
        (TANH, REVERSED, ""),
    ],
)
def test_the_threads_of_joint_kernels_go_as_the_hero_wants(first: str, second: str, leads: str):
    pair = both(first, second)
    found = rules.joint(pair).get("walk")
    assert found == (rules.walk_of(pair.state, pair.producer if leads == "a" else pair.consumer) if leads else None)


# ---- plans


def test_a_plan_is_only_asked_for_where_there_may_be_none(monkeypatch: pytest.MonkeyPatch):
    asked: list[Pair] = []
    monkeypatch.setattr(rules, "_plan", lambda pair: asked.append(pair) or no("FUS303", elements=2, limit=1))
    deepest = budget(Traits(depth=DEEPEST - 1), Traits(depth=1))
    assert rules.without_plan(deepest) is None and not asked
    for pair in (
        budget(Traits(depth=DEEPEST), Traits(depth=1)),
        budget(Traits(reduces=1), Traits()),
        budget(Traits(), Traits(reduces=1)),
    ):
        assert rules.without_plan(pair) == no("FUS303", elements=2, limit=1)
    assert len(asked) == 3


def test_a_plan_is_made_once(monkeypatch: pytest.MonkeyPatch):
    pair = both(ROW_SUM, NEGATED)
    asked: list[int] = []
    found = Outlook("a kind", 1)
    monkeypatch.setattr(pair.state, "outlook", lambda structure, cluster: asked.append(structure) or found)
    assert rules._plan(pair) is rules._plan(pair) is found
    assert len(asked) == 1
    assert rules.without_plan(pair) is None


@pytest.mark.parametrize(("rows", "code"), [(0, "FUS407"), (1, "FUS407"), (2, ""), (3, "")])
def test_rows_that_threads_share_stay_shared(rows: int, code: str):
    pair = both(ROW_SUM, f"{ROW} reduce(w, z), {ROWS}")
    pair._merged = Outlook("loop", rows)
    expected = no("FUS407", consumer="b", producer="a", kind="loop") if code else None
    assert rules.keeps_row_reductions(pair) == expected


@pytest.mark.parametrize(("first", "second"), [(NEGATED, ROW_SUM), (ROW_SUM, NEGATED)])
def test_one_row_kernel_of_two_stays_one(first: str, second: str):
    pair = both(first, second)
    pair._merged = Outlook("loop", 0)
    assert rules.keeps_row_reductions(pair) == no("FUS407", consumer="b", producer="a", kind="loop")
    pair._merged = no("FUS303", elements=2, limit=1)
    assert rules.keeps_row_reductions(pair) is None


@pytest.mark.parametrize(
    ("first", "second"),
    [(NEGATED, TANH), (ROW_SUM, f"{WIDE} tanh(p), control-predecessors={{a}}")],
)
def test_rows_are_not_asked_for_where_there_are_none_or_nothing_can_be_one(first: str, second: str):
    pair = both(first, second)
    pair._merged = Outlook("loop", 0)
    assert rules.keeps_row_reductions(pair) is None


# ---- prices


def test_what_two_kernels_take_apart_and_as_one():
    kept, beside = both(NEGATED, f"{WIDE} tanh(a)", kept=True), both(NEGATED, TANH)
    for pair in (kept, beside):
        above, below = (Priced(i, H100) for i in (pair.producer, pair.consumer))
        apart = 2 * H100.kernel_launch_us + above.estimate.us + below.estimate.us
        if pair is kept:
            joint = fused_estimate(above, below, keep_producer=True).us
        else:
            joint = Priced(as_fusion(pair.cluster()), H100).estimate.us
        assert rules.times(pair) == pytest.approx((apart, H100.kernel_launch_us + joint))
        assert rules.times(pair)[1] < rules.times(pair)[0] and rules.pays(pair) is None


@pytest.mark.parametrize(("us_unfused", "us_fused", "pays"), [(2.0, 2.0, True), (2.0, 2.5, False)])
def test_one_kernel_may_take_as_long_as_two(
    us_unfused: float, us_fused: float, pays: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(rules, "times", lambda pair: (us_unfused, us_fused))
    found = rules.pays(both(NEGATED, TANH))
    assert found == (None if pays else no("FUS434", first="a", second="b", us_fused=2.5, us_unfused=2.0))


# ---- structures and clusters


def test_kernels_beside_each_other_share_their_inputs():
    pair = both(NEGATED, f"{WIDE} add(p, w)")
    cluster = pair.cluster()
    assert [i.name for i in cluster.inputs] == ["p", "w"]
    assert [r.instruction.name for r in cluster.roots] == ["a", "b"]
    assert [[o.instruction.name for o in r.operands] for r in cluster.roots] == [["p"], ["p", "w"]]


def test_what_makes_pairs_another_structure():
    numbers = {}
    module = module_of(
        *INPUTS,
        f"a = {NEGATED}",
        f"b = {TANH}",
        f"c = {WIDE} tanh(w)",
        f"d = {WIDE} tanh(a)",
        f"e2 = {WIDE} abs(a)",
        f"f = {WIDE} negate(w)",
    )
    state = state_of(module)
    of = {name: named(module, name) for name in ("a", "b", "c", "d", "e2", "f")}
    for kind, first, second in (
        (Beside, "a", "b"),
        (Beside, "a", "c"),
        (Beside, "b", "a"),
        (Kept, "a", "d"),
        (Kept, "a", "e2"),
        (Beside, "a", "d"),
    ):
        numbers[kind, first, second] = kind(of[first], of[second], state).structure()
    assert len(set(numbers.values())) == 6
    assert Beside(of["f"], of["c"], state).structure() == numbers[Beside, "a", "b"]


def test_who_reads_a_tuple_whole_is_named_also_behind_elements():
    lines = (f"g = {WIDE} get-tuple-element(a), index=1", f"h = (({WIDE}, {WIDE})) tuple(a)")
    module = module_of(
        *INPUTS, f"a = ({WIDE}, {WIDE}) fusion(p), kind=kLoop, calls=of_two", f"b = {TANH}", *lines, **KERNELS
    )
    pair = Beside(named(module, "a"), named(module, "b"), state_of(module))
    assert list(rules.structure(pair)) == [no("FUS134", instruction="a", user="h")]


@pytest.mark.parametrize(
    ("first", "second"), [(f"{WIDE} add(p, w)", f"{WIDE} abs(w)"), (f"{WIDE} abs(w)", f"{WIDE} add(p, w)")]
)
def test_which_operands_are_common_is_part_of_a_structure(first: str, second: str):
    module = module_of(
        *INPUTS,
        f"a = {first}",
        f"b = {second}",
        f"c = {second.replace('(w)', '(p)').replace('p, w', 'w, p')}",
        "r = f32[] add(z, z)",
    )
    state = state_of(module)
    of = {name: named(module, name) for name in "abc"}
    assert Beside(of["a"], of["b"], state).structure() != Beside(of["a"], of["c"], state).structure()


def test_a_slow_reduction_is_no_hero():
    """The first root is a reduction in a loop, the second one that threads share."""
    held = (
        "xc = f32[4,64]{1,0} parameter(0)",
        f"yc = {WIDE} parameter(1)",
        "zc = f32[] constant(0)",
        "ac = f32[64]{0} reduce(xc, zc), dimensions={0}, to_apply=sum",
        f"nc = {ROW} negate(ac)",
        f"bc = {ROW} reduce(yc, zc), {ROWS}",
        f"tc = ({ROW}, {ROW}) tuple(nc, bc)",
    )
    module = module_of(
        *INPUTS,
        "l = f32[4,64]{1,0} parameter(11)",
        f"f = ({ROW}, {ROW}) fusion(l, p), kind=kInput, calls=held",
        held=held,
    )
    assert rules.hero_for(state_of(module), module.entry.root).instruction.name == "bc"


@pytest.mark.parametrize(
    "line",
    [
        f"{WIDE} copy(p)",
        f"{WIDE} add(p, p)",
        "f32[128,96]{1,0} concatenate(p, p), dimensions={0}",
        f"{WIDE} broadcast(v), dimensions={{0}}",
        "f32[6144]{0} bitcast(p)",
        "f32[7,96]{1,0} dynamic-slice(p, i, i), dynamic_slice_sizes={7,96}",
        "s32[5]{0} iota(), iota_dimension=0",
        "f32[66,96]{1,0} pad(p, z), padding=1_1x0_0",
        ROW_SUM,
        f"{WIDE} reduce-window(p, z), window={{size=1x1}}, to_apply=sum",
        "f32[96,64]{1,0} reshape(p)",
        REVERSED,
        part("0:4"),
        "f32[5,96]{1,0} gather(p, places), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,96}",
        "f32[64,1,96]{2,1,0} transpose(t1), dimensions={1,0,2}",
    ],
)
def test_what_loops_compute_is_kept(line: str):
    module = module_of(
        *INPUTS,
        "t1 = f32[1,64,96]{2,1,0} parameter(11)",
        f"a = {line}",
        f"b = {line.split('} ')[0]}}} abs(a)",
        "r = f32[] add(z, z)",
    )
    assert rules.producer_form(Kept(named(module, "a"), named(module, "b"), state_of(module))) is None
