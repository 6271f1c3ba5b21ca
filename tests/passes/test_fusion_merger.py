from dataclasses import replace

import numpy as np
import pytest
from small_modules import H100, engine_of, module_of

import hlo_opt
from hlo_opt.analysis.xla.performance import estimate_fusion
from hlo_opt.diag import Reason
from hlo_opt.fusion.context import FuseOptions, PassContext
from hlo_opt.fusion.decision import FusionDecision
from hlo_opt.fusion.engine import Engine
from hlo_opt.fusion.legality import Edge
from hlo_opt.fusion.prices import Prices
from hlo_opt.ir import Instruction, Module
from hlo_opt.passes import fusion_merger
from hlo_opt.passes.fusion_merger import KEPT_SHARE, FusionMerger
from hlo_opt.plans.price import FREE, Price

FIRST = "instruction-fusion{may-duplicate=false}"


def fuse(users: str, passes: str, size: int = 64) -> tuple[Module, list[FusionDecision]]:
    text = f"""HloModule m

ENTRY e {{
  p = f32[64]{{0}} parameter(0)
  q = f32[64]{{0}} parameter(1)
  m = f32[64]{{0}} multiply(p, q)
  s = f32[64]{{0}} add(m, q)
{users}
}}
""".replace("[64]", f"[{size}]")
    return hlo_opt.fuse(hlo_opt.parse(text), passes=passes, simplify="never")


def launched(module: Module) -> list[str]:
    return [i.opcode for i in module.entry.instructions if i.opcode not in ("parameter", "constant", "tuple")]


TWO = "  a = f32[64]{0} negate(s)\n  b = f32[64]{0} tanh(s)\n  ROOT r = (f32[64]{0}, f32[64]{0}) tuple(a, b)"


def test_a_fusion_moves_into_all_its_users():
    assert launched(fuse(TWO, FIRST)[0]) == ["fusion", "negate", "tanh"]
    fused, decisions = fuse(TWO, f"{FIRST},fusion-merger")
    assert launched(fused) == ["fusion", "fusion"]
    assert all(d.fused for d in decisions)
    assert {d.rule for d in decisions} == {"instruction-fusion", "fusion-merger"}


def test_or_into_none():
    fused, decisions = fuse(TWO.replace("tuple(a, b)", "tuple(a, s)"), f"{FIRST},fusion-merger,dce")
    assert launched(fused) == ["fusion", "negate"]
    (left,) = [d for d in decisions if not d.fused]
    assert (left.producer, left.consumer, left.rule) == ("s", "a", "fusion-merger")
    assert [r.code for r in left.reasons] == ["FUS108"]


def test_not_where_the_model_says_slower():
    slow = TWO.replace("b = f32[64]{0} tanh(s)", "b = f32[64]{0} cosine(s)").replace("negate", "sine")
    fused, decisions = fuse(slow.replace("add(m, q)", "power(m, q)"), f"{FIRST},fusion-merger", size=1 << 22)
    assert launched(fused)  # large arrays: each user would read both operands instead of one
    costs = [d.cost for d in decisions if not d.fused and any(r.code == "FUS408" for r in d.reasons)]
    for cost in costs:
        assert cost is not None


def test_copies_are_limited():
    fused, decisions = fuse(TWO, f"{FIRST},fusion-merger{{max-copies=1}}")
    assert launched(fused) == ["fusion", "negate", "tanh"]
    assert {r.code for d in decisions for r in d.reasons} == {"FUS205"}


# ---- rule by rule

ROW = "f32[64]{0}"
KERNELS = {"held": (f"x0 = {ROW} parameter(0)", f"a0 = {ROW} abs(x0)", f"y0 = {ROW} negate(a0)")}
FUSED = (f"p = {ROW} parameter(0)", f"f = {ROW} fusion(p), kind=kLoop, calls=held")


def read(*lines: str, **options: object) -> tuple[Engine, dict[str, Instruction]]:
    module = module_of(*FUSED, *lines, **KERNELS)
    return engine_of(module, **options)


def no(code: str, **numbers: object) -> Reason:
    return Reason.of(code, **numbers)


THREE = (f"a = {ROW} negate(f)", f"b = {ROW} tanh(f)", f"c = {ROW} abs(f)", f"r = ({ROW}, {ROW}, {ROW}) tuple(a, b, c)")


@pytest.mark.parametrize(("limit", "fits"), [(4, True), (3, False)])
def test_how_many_copies_there_may_be(limit: int, fits: bool):
    """Two members, and two users more than one."""
    engine, of = read(*THREE)
    merger = FusionMerger(max_copies=limit)
    assert merger._copies(engine, of["f"]) == (
        None if fits else no("FUS205", producer="y0", size=2, users=3, copies=4, limit=3)
    )
    assert [u.name for u in merger._takers(engine, of["f"])] == (["a", "b", "c"] if fits else [])
    assert list(merger.against_producer(engine, of["f"])) == ([] if fits else [(None, merger._copies(engine, of["f"]))])
    engine.disabled = frozenset({"FUS205"})
    assert merger._copies(engine, of["f"]) is None


def test_only_kernels_count_as_copies():
    engine, of = read(*THREE[:2], f"t = ({ROW}) tuple(f)", f"r = ({ROW}, {ROW}) tuple(a, b)")
    assert FusionMerger(max_copies=2)._copies(engine, of["f"]) is None
    assert FusionMerger(max_copies=1)._copies(engine, of["f"]) == no(
        "FUS205", producer="y0", size=2, users=2, copies=2, limit=1
    )


def cannot(user: str, opcode: str, why: str) -> Reason:
    return no("FUS108", producer="y0", user=user, opcode=opcode, why=why)


@pytest.mark.parametrize(
    ("lines", "user", "why"),
    [
        ((f"a = {ROW} negate(f)", f"r = ({ROW}, {ROW}) tuple(a, f)"), "r", "it is how the value leaves"),
        ((f"t = ({ROW}) tuple(f)", f"a = {ROW} negate(f)", f"r = {ROW} abs(a)"), "t", "`tuple` launches no kernel"),
        ((f"a = {ROW} negate(f)", f'd = {ROW} custom-call(f), '
                                  f'custom_call_target="x"', f"r = {ROW} add(a, d)"), "d", "FUS308 custom-call-opaque"),
    ],
)  # fmt: skip
def test_the_first_user_that_cannot_take_it(lines: tuple[str, ...], user: str, why: str):
    engine, of = read(*lines)
    merger = FusionMerger()
    ((named_user, reason),) = merger.against_producer(engine, of["f"])
    assert named_user is of[user] and reason.code == "FUS108"
    assert dict(reason.numbers) | {"why": ""} == {"producer": "y0", "user": user, "opcode": of[user].opcode, "why": ""}
    assert str(reason.numbers["why"]).startswith(why.split(" custom")[0])
    # others are told of it, the user itself of its own reason only
    edge = engine.edge(of["f"], of["a"])
    assert list(merger.refusals(engine, edge)) == [reason]
    assert reason not in list(merger.refusals(engine, engine.edge(of["f"], of[user])))
    assert merger._takers(engine, of["f"]) == []


def test_without_the_rule_those_that_can_take_it_do():
    lines = (f"a = {ROW} negate(f)", f"r = ({ROW}, {ROW}) tuple(a, f)")
    engine, of = read(*lines, disabled=frozenset({"FUS108"}))
    assert FusionMerger()._takers(engine, of["f"]) == [of["a"]]
    assert list(FusionMerger().against_producer(engine, of["f"])) == []
    engine, of = read(*lines, forced=frozenset({("y0", "a")}))
    assert FusionMerger()._takers(engine, of["f"]) == [of["a"]]
    engine, of = read(*THREE[:2], f"r = ({ROW}, {ROW}, {ROW}) tuple(a, b, "
                                  f"f)", forced=frozenset({("y0", "b")}))  # fmt: skip
    assert FusionMerger()._takers(engine, of["f"]) == [of["b"]]


@pytest.mark.parametrize(("us_unfused", "us_fused", "slower"), [(3.0, 3.0, False), (3.0, 3.5, True)])
def test_one_that_takes_as_long_is_merged(
    us_unfused: float, us_fused: float, slower: bool, monkeypatch: pytest.MonkeyPatch
):
    merger = FusionMerger()
    monkeypatch.setattr(FusionMerger, "_times", lambda self, engine, producer, takers: (us_unfused, us_fused))
    engine, of = read(*THREE)
    wanted = no("FUS408", producer="y0", users=3, model="", us_fused=3.5, us_unfused=3.0) if slower else None
    takers = [of["a"], of["b"], of["c"]]
    assert merger._slower(engine, of["f"], takers) == wanted
    assert merger._takers(engine, of["f"]) == ([] if slower else takers)
    assert list(merger.against_producer(engine, of["f"])) == ([(None, wanted)] if slower else [])
    for options in ({"disabled": frozenset({"FUS408"})}, {"forced": frozenset({("y0", "b")})}):
        engine, of = read(*THREE, **options)
        assert merger._slower(engine, of["f"], [of["a"], of["b"]]) is None


@pytest.mark.parametrize("dear", [0, 1, 2])
def test_no_kernel_is_priced_after_it_is_certain_that_merging_takes_longer(dear: int, monkeypatch: pytest.MonkeyPatch):
    engine, of = read(*THREE)
    takers, asked = [of["a"], of["b"], of["c"]], list[Instruction]()

    def joined(self: Prices, producer: Instruction, consumer: Instruction) -> Price:
        asked.append(consumer)
        return replace(FREE, us=100.0 if consumer is takers[dear] else engine.state.target.kernel_launch_us)

    monkeypatch.setattr(Prices, "of", lambda self, kernel: replace(FREE, us=5.0))
    monkeypatch.setattr(Prices, "joined", joined)
    assert FusionMerger()._takers(engine, of["f"]) == []
    assert asked == takers[: dear + 1] and not engine.state.known.merges


@pytest.mark.parametrize("row_kernels", [True, False])
def test_times_are_estimated_once_for_kernels_alike(row_kernels: bool, monkeypatch: pytest.MonkeyPatch):
    engine, of = read(*THREE)
    merger, takers = FusionMerger(row_kernels=row_kernels), [of["a"], of["b"]]
    state, prices = engine.state, engine.state.prices
    found = merger._times(engine, of["f"], takers)
    if row_kernels:
        apart = [prices.of(i) for i in (of["f"], *takers)]
        merged = [prices.joined(of["f"], u) for u in takers]
        assert found == pytest.approx((sum(p.us for p in apart), sum(p.us for p in merged if isinstance(p, Price))))
    else:
        by_xla = estimate_fusion(state.priced_by_xla(of["f"]), [state.priced_by_xla(u) for u in takers])
        assert found == by_xla[:2]
    known = dict(state.known.merges)
    assert merger._times(engine, of["f"], takers) is state.known.merges[next(iter(known))] and len(known) == 1
    FusionMerger(row_kernels=not row_kernels)._times(engine, of["f"], takers)
    merger._times(engine, of["f"], [of["a"]])
    assert len(state.known.merges) == 3


@pytest.mark.parametrize(
    ("weigh", "launch", "can", "unfused"),
    [(True, 1.0, True, KEPT_SHARE * 7.0), (False, 1.0, True, 9.0), (True, 2.0, True, 9.0), (True, 1.0, False, 9.0)]
)  # fmt: skip
def test_one_user_may_write_a_fusion_for_the_others(
    weigh: bool, launch: float, can: bool, unfused: float, monkeypatch: pytest.MonkeyPatch
):
    """Not where that is not asked for, the fusion is little more than a launch, or there is no such kernel."""
    kept = replace(FREE, us=4.0) if can else Reason.of("FUS306", values=2, limit=1)
    monkeypatch.setattr(Prices, "of", lambda self, kernel: replace(FREE, us=3.0, launch=launch))
    monkeypatch.setattr(Prices, "joined", lambda self, producer, consumer: replace(FREE, us=3.5))
    monkeypatch.setattr(Prices, "with_producer", lambda self, producer, consumer: kept)
    engine, of = read(f"a = {ROW} negate(f)", f"b = {ROW} tanh(f)", f"r = ({ROW}, {ROW}) tuple(a, b)")
    merger = FusionMerger(weigh_kept=weigh)
    assert merger._times(engine, of["f"], [of["a"], of["b"]]) == (unfused, 7.0)
    assert merger._times(engine, of["f"], [of["a"]]) == (6.0, 3.5)


def test_which_edges_are_its_business_and_by_which_rules():
    engine, of = read(*THREE)
    merger = FusionMerger(max_emissions=7)
    assert merger.looks_at(engine.edge(of["f"], of["a"])) and not merger.looks_at(engine.edge(of["f"], of["r"]))
    assert not merger.looks_at(engine.edge(of["p"], of["a"]))
    assert merger.policy(engine, engine.module.entry).max_emissions == 7
    names = [
        {c.__name__ for c in FusionMerger(row_kernels=rows).policy(engine, engine.module.entry).checks()}
        for rows in (True, False)
    ]
    assert names[0] - names[1] == {"keeps_row_reduction", "keeps_sliding_windows", "keeps_blocks"}
    assert names[1] - names[0] == {"code_size"}
    assert not names[0] & {"producer_is_fusion", "duplication", "memory_traffic"} and len(names[0]) == 12
    assert not merger.policy(engine, engine.module.entry).rules_out(engine.edge(of["f"], of["a"]))
    assert (FusionMerger().max_emissions, FusionMerger().max_copies) == (15, 256)


@pytest.mark.parametrize("row_kernels", [True, False])
def test_the_form_of_a_kernel_counts_where_row_kernels_are_known(row_kernels: bool):
    engine, of = read(*THREE)
    merger = FusionMerger(row_kernels=row_kernels)
    assert merger.policy(engine, engine.module.entry).any_form is not row_kernels
    assert merger.takes(engine, of["f"], of["a"])
    assert list(merger.refusals(engine, engine.edge(of["f"], of["b"]))) == []


@pytest.mark.parametrize(("steps", "kernels"), [(0, 4), (1, 4), (2, 4), (3, 3), (None, 3)])
def test_each_user_is_a_step(steps: int | None, kernels: int):
    module = module_of(*FUSED, *THREE, **KERNELS)
    context = PassContext(FuseOptions(H100, stop_after_step=steps))
    assert FusionMerger().run(module, context) == (steps != 0)
    launched = [i for i in module.entry.instructions if i.opcode not in ("parameter", "tuple")]
    assert len(launched) == kernels and sum(i.opcode == "fusion" for i in launched) == (
        1 if steps == 0 else 3 if steps in (3, None) else 1 + context.steps
    )


def distances(coordinates: int) -> str:
    """Which of 32 centres is nearest to each of 4,096 points."""
    whole, flat = f"f32[4096,32,{coordinates}]", f"f32[4096,{coordinates}]"
    return f"""HloModule m

sum {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}

least {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] minimum(a, b)
}}

ENTRY e {{
  x = {flat} parameter(0)
  y = f32[32,{coordinates}] parameter(1)
  xs = {whole} broadcast(x), dimensions={{0,2}}
  ys = {whole} broadcast(y), dimensions={{1,2}}
  d = {whole} subtract(xs, ys)
  s = {whole} multiply(d, d)
  zero = f32[] constant(0)
  far = f32[] constant(inf)
  r = f32[4096,32] reduce(s, zero), dimensions={{2}}, to_apply=sum
  ROOT n = f32[4096] reduce(r, far), dimensions={{1}}, to_apply=least
}}"""


@pytest.mark.parametrize(("coordinates", "kernels"), [(8, 1), (16, 1), (256, 2)])
def test_a_thread_folds_a_short_row_in_the_row_kernel_after_it(coordinates: int, kernels: int) -> None:
    module = hlo_opt.parse(distances(coordinates))
    made, _ = hlo_opt.fuse(module)
    assert sum(i.opcode in ("fusion", "reduce") for i in made.entry.instructions) == kernels
    draw = np.random.default_rng(2)
    given = [draw.normal(size=p.shape.dimensions).astype(np.float32) for p in module.entry.parameters]
    (want,), (got,) = hlo_opt.evaluate(module, given), hlo_opt.compile(made, backend="host")(*given)
    np.testing.assert_allclose(got, want, rtol=1e-5)


def last_sums(terms: int) -> str:
    """Sums of rows, before what is scaled by them."""
    return f"""HloModule m

sum {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}

ENTRY e {{
  p = f32[64,{terms}] parameter(0)
  x = f32[64,4096] parameter(1)
  zero = f32[] constant(0)
  s = f32[64] reduce(p, zero), dimensions={{1}}, to_apply=sum
  b = f32[64,4096] broadcast(s), dimensions={{0}}
  ROOT m = f32[64,4096] multiply(x, b)
}}"""


@pytest.mark.parametrize(
    ("terms", "option", "kernels"), [(8, "true", 1), (8, "false", 2), (32, "true", 2), (64, "true", 2)]
)
def test_a_loop_folds_short_rows_where_that_takes_less_time(terms: int, option: str, kernels: int) -> None:
    passes = f"instruction-fusion,fusion-merger{{short-rows={option}}}"
    made, decisions = hlo_opt.fuse(hlo_opt.parse(last_sums(terms)), passes=passes, simplify="never")
    assert sum(i.opcode in ("fusion", "reduce") for i in made.entry.instructions) == kernels
    refused = {r.code for d in decisions if not d.fused for r in d.reasons}
    assert (refused == set()) if kernels == 1 else ({"FUS402", "FUS404"} <= refused)


def test_what_short_rows_take_is_asked_only_where_it_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def folds(edge: Edge, *, anywhere: bool) -> bool:
        asked.append(edge.producer.name)
        return anywhere

    monkeypatch.setattr(fusion_merger, "folds_short_rows", folds)
    merger = FusionMerger(short_rows=True)
    engine, of = read(*THREE)
    assert merger.takes(engine, of["f"], of["a"]) and asked == []
    module = hlo_opt.parse(last_sums(8))
    engine, of = engine_of(module)
    assert merger.takes(engine, of["s"], of["b"]) and asked == ["s"]
    assert not FusionMerger().takes(engine, of["s"], of["b"]) and asked == ["s"]
