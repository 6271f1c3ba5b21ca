"""Two kernels as one: how much it may hold, how its threads go, whether it has a plan, what it costs, and which pairs
are alike."""

from __future__ import annotations

import pytest
from kernel_pairs import (
    FUSED,
    INPUTS,
    KERNELS,
    NEGATED,
    REVERSED,
    ROW,
    ROW_SUM,
    ROWS,
    TANH,
    WIDE,
    both,
    part,
)
from small_modules import H100, module_of, named, state_of

from hlo_opt.analysis.xla.performance import Priced, fused_estimate
from hlo_opt.diag import Reason
from hlo_opt.fusion import compatibility as rules
from hlo_opt.fusion.compatibility import Beside, MultiOutputEdge, Pair
from hlo_opt.fusion.traits import Traits
from hlo_opt.plans import Launch
from hlo_opt.plans.limits import DEEPEST
from hlo_opt.plans.sketch import Sketch, Summary, as_fusion

no = Reason.of


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
    """`a` with `first` operands and `b` with `second`, `common` of them the same; where `a` is kept, `b` reads it, too."""
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
    return MultiOutputEdge(*ends) if kept else Beside(*ends)


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
    assert rules.joint(pair) == {rules.CODE_SIZE: size, rules.WALK: rules.walk_of(pair.state, pair.producer)}
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
    pair = MultiOutputEdge(named(module, "a"), named(module, "b"), state_of(module))
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
    found = rules.joint(pair).get(rules.WALK)
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
    found = Sketch.known(Summary("a kind", 1, Launch(1, 1)))
    monkeypatch.setattr(pair.state, "sketch", lambda structure, cluster: asked.append(structure) or found)
    assert rules._plan(pair) is rules._plan(pair) is found
    assert len(asked) == 1
    assert rules.without_plan(pair) is None


@pytest.mark.parametrize(("rows", "code"), [(0, "FUS407"), (1, "FUS407"), (2, ""), (3, "")])
def test_rows_that_threads_share_stay_shared(rows: int, code: str):
    pair = both(ROW_SUM, f"{ROW} reduce(w, z), {ROWS}")
    pair._merged = Sketch.known(Summary("loop", rows, Launch(1, 1)))
    expected = no("FUS407", consumer="b", producer="a", kind="loop") if code else None
    assert rules.keeps_row_reductions(pair) == expected


@pytest.mark.parametrize(("first", "second"), [(NEGATED, ROW_SUM), (ROW_SUM, NEGATED)])
def test_one_row_kernel_of_two_stays_one(first: str, second: str):
    pair = both(first, second)
    pair._merged = Sketch.known(Summary("loop", 0, Launch(1, 1)))
    assert rules.keeps_row_reductions(pair) == no("FUS407", consumer="b", producer="a", kind="loop")
    pair._merged = no("FUS303", elements=2, limit=1)
    assert rules.keeps_row_reductions(pair) is None


@pytest.mark.parametrize(
    ("first", "second"),
    [(NEGATED, TANH), (ROW_SUM, f"{WIDE} tanh(p), control-predecessors={{a}}")],
)
def test_rows_are_not_asked_for_where_there_are_none_or_nothing_can_be_one(first: str, second: str):
    pair = both(first, second)
    pair._merged = Sketch.known(Summary("loop", 0, Launch(1, 1)))
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
        assert rules.times_by_xla(pair) == pytest.approx((apart, H100.kernel_launch_us + joint))
        assert rules.times_by_xla(pair)[1] < rules.times_by_xla(pair)[0] and rules.pays_by_xla(pair) is None


@pytest.mark.parametrize(("us_unfused", "us_fused", "pays"), [(2.0, 2.0, True), (2.0, 2.5, False)])
def test_one_kernel_may_take_as_long_as_two(
    us_unfused: float, us_fused: float, pays: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(rules, "times_by_xla", lambda pair: (us_unfused, us_fused))
    found = rules.pays_by_xla(both(NEGATED, TANH))
    assert found == (
        None if pays else no("FUS434", first="a", second="b", model=rules.XLAS_MODEL, us_fused=2.5, us_unfused=2.0)
    )


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
        (MultiOutputEdge, "a", "d"),
        (MultiOutputEdge, "a", "e2"),
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
        "f32[5,96]{1,0} gather(p, places), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, "
        "index_vector_dim=1, slice_sizes={1,96}",
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
    assert rules.producer_form(MultiOutputEdge(named(module, "a"), named(module, "b"), state_of(module))) is None
