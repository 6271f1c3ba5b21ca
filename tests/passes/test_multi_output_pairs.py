"""Which kernels multi-output fusion tries together, in which order, and what it says of those that stay apart."""

from __future__ import annotations

import pytest
from small_modules import H100, engine_of, module_of

from hlo_opt.diag import Reason
from hlo_opt.fusion import compatibility
from hlo_opt.fusion.compatibility import Beside, MultiOutputEdge
from hlo_opt.fusion.context import FuseOptions, PassContext
from hlo_opt.fusion.engine import Engine
from hlo_opt.fusion.order import Order
from hlo_opt.ir import Instruction
from hlo_opt.ir.walk import post_order
from hlo_opt.passes import multi_output_fusion
from hlo_opt.passes.multi_output_fusion import MultiOutputFusion

ROW, WIDE = "f32[64]{0}", "f32[64,64]{1,0}"
GEMM = 'kind=kCustom, calls=product, backend_config={"fusion_backend_config":{"kind":"__triton_gemm"}}'
KERNELS = {
    "held": (f"x0 = {ROW} parameter(0)", f"y0 = {ROW} negate(x0)"),
    "of_two": (f"x1 = {ROW} parameter(0)", f"y1 = {ROW} negate(x1)", f"t1 = ({ROW}, {ROW}) tuple(y1, x1)"),
    "product": (f"x2 = {ROW} parameter(0)", f"y2 = {ROW} negate(x2)"),
}
PASS = MultiOutputFusion()
PLAIN = MultiOutputFusion(plain_siblings=True)


def read(*lines: str, **options: object) -> tuple[Engine, dict[str, Instruction]]:
    module = module_of(
        f"p = {ROW} parameter(0)", f"q = {ROW} parameter(1)", "w = f32[32]{0} parameter(2)", *lines, **KERNELS
    )
    return engine_of(module, **options)


def no(code: str, **numbers: object) -> Reason:
    return Reason.of(code, **numbers)


TWO_OUTPUTS = f"f = ({ROW}, {ROW}) fusion(p), kind=kLoop, calls=of_two"
READERS = (
    f"a = {ROW} tanh(p)",
    f"b = {ROW} fusion(p), kind=kLoop, calls=held",
    TWO_OUTPUTS,
    "d = f32[] dot(p, p), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
    f'c = {ROW} custom-call(p), custom_call_target="x"',
    "t = s32[64]{0} bitcast(p)",
    "s = f32[32]{0} slice(p), slice={[0:32]}",
    f"g = {ROW} get-tuple-element(f), index=0",
    f"r = ({ROW}, {ROW}, {ROW}, f32[], {ROW}, s32[64]{{0}}, f32[32]{{0}}) tuple(a, b, g, d, c, t, s)",
)


def test_siblings_are_the_kernels_that_we_generate_those_with_most_outputs_first():
    engine, of = read(*READERS)
    found = multi_output_fusion._candidates(engine, of["p"])
    assert [i.name for i in found] == ["f", "b", "a", "s"]
    assert [[i.name for i in group] for group in PASS._groups(engine, found)] == [["f", "b", "a"]]
    assert [[i.name for i in group] for group in MultiOutputFusion(any_form=True)._groups(engine, found)] == [
        ["f", "b", "a", "s"]
    ]
    for disabled in ("FUS431", "FUS432"):
        engine.disabled = frozenset({disabled})
        assert len(PASS._groups(engine, found)) == 1
    engine.disabled = frozenset({"FUS133"})
    assert [[i.name for i in group] for group in PASS._groups(engine, found)] == [["f", "b", "a"], ["s"]]
    engine.forced = frozenset({("x", "y")})
    assert len(PASS._groups(engine, found)) == 1
    assert PASS._groups(engine, found[:1]) == []


def test_who_has_siblings():
    _, of = read(
        "o = f32[1]{0} parameter(3)",
        "v = f32[1]{0} negate(o)",
        f"u = {ROW} abs(q)",
        "y = f32[1]{0} add(v, o)",
        f"a = {ROW} tanh(p)",
        f"r = {ROW} add(a, p)",
    )
    assert [n for n in ("o", "v", "u", "p", "a") if multi_output_fusion._may_have_siblings(of[n])] == ["p"]
    _, of = read(
        TWO_OUTPUTS,
        f"g = {ROW} get-tuple-element(f), index=0",
        f"h = {ROW} get-tuple-element(f), index=1",
        f"r = {ROW} add(g, h)",
    )
    assert multi_output_fusion._may_have_siblings(of["f"])


CHAIN = (f"a = {ROW} tanh(p)", f"b = {ROW} abs(a)", f"c = {ROW} fusion(a), kind=kLoop, calls=held")


def consumer(engine: Engine, producer: Instruction, fuser: MultiOutputFusion = PASS) -> str:
    entry = producer.computation
    found = fuser._consumer(producer, Order(entry, post_order(entry)), engine)
    return "" if found is None else found.name


def test_which_consumer_a_producer_joins():
    engine, of = read(*CHAIN, f"r = ({ROW}, {ROW}) tuple(b, c)")
    assert consumer(engine, of["a"]) == "c" and consumer(engine, of["p"]) == "" and consumer(engine, of["b"]) == ""
    more = (
        *CHAIN[:2],
        TWO_OUTPUTS.replace("(p)", "(a)"),
        CHAIN[2],
        f"g = {ROW} get-tuple-element(f), index=0",
        f"r = ({ROW}, {ROW}, {ROW}) tuple(b, c, g)",
    )
    engine, of = read(*more)
    assert consumer(engine, of["a"]) == "f"
    # read by one kernel only: where that writes several values anyway
    engine, of = read(CHAIN[0], CHAIN[2], f"r = {ROW} abs(c)")
    assert consumer(engine, of["a"]) == ""
    engine, of = read(CHAIN[0], more[2], f"g = {ROW} get-tuple-element(f), index=0", f"r = {ROW} abs(g)")
    assert consumer(engine, of["a"]) == "f"
    # the result of the computation is needed elsewhere, too
    engine, of = read(f"b = {ROW} abs(p)", f"a = {ROW} tanh(p)")
    assert consumer(engine, of["b"]) == ""


def test_a_consumer_that_needs_it_in_another_way_is_left_out():
    engine, of = read(
        CHAIN[0],
        f'd = {ROW} custom-call(a), custom_call_target="x"',
        f"b = {ROW} add(a, d)",
        f"c = {ROW} cosine(a)",
        f"r = ({ROW}, {ROW}) tuple(b, c)",
    )
    entry = of["a"].computation
    order = Order(entry, post_order(entry))
    kept = MultiOutputEdge(of["a"], of["b"], engine.state, engine.origins)
    assert list(multi_output_fusion._cycle(kept, order)) == [no("FUS131", producer="a", consumer="b")]
    assert consumer(engine, of["a"]) == "c"
    pairs = {("a", "d"): ("a", "d"), ("d", "a"): ("a", "d"), ("b", "d"): ("d", "b")}
    for (first, second), (needed, user) in pairs.items():
        pair = Beside(of[first], of[second], engine.state, engine.origins)
        assert list(multi_output_fusion._cycle(pair, order)) == [no("FUS132", needed=needed, user=user)]
    assert not list(multi_output_fusion._cycle(Beside(of["b"], of["c"], engine.state, engine.origins), order))


def against(fuser: MultiOutputFusion, engine: Engine, pair: Beside | MultiOutputEdge) -> list[str]:
    entry = pair.producer.computation
    return [r.code for r in fuser._against(engine, pair, Order(entry, post_order(entry)))]


def test_what_speaks_against_a_pair_comes_in_order(monkeypatch: pytest.MonkeyPatch):
    lines = (
        f"a = {ROW} tanh(p)",
        "b = f32[32]{0} slice(p), slice={[0:32]}, control-predecessors={a}",
        f"r = ({ROW}, f32[32]{{0}}) tuple(a, b)",
    )
    engine, of = read(*lines)
    pair = Beside(of["a"], of["b"], engine.state, engine.origins, parent=of["p"])
    unplanned = no("FUS303", elements=2, limit=1)
    monkeypatch.setattr(compatibility, "without_plan", lambda pair: unplanned)
    assert against(PASS, engine, pair) == ["FUS103", "FUS135", "FUS133", "FUS431", "FUS132", "FUS303"]
    assert against(PLAIN, engine, pair) == ["FUS103", "FUS133", "FUS431", "FUS132", "FUS303"]
    assert against(MultiOutputFusion(any_form=True), engine, pair) == ["FUS103", "FUS135", "FUS132", "FUS303"]
    for forced in (("a", "b"), ("b", "a")):
        engine.forced = frozenset({forced})
        assert against(PASS, engine, pair) == ["FUS103", "FUS132", "FUS303"]
    engine.forced = frozenset({("a", "x")})
    engine.disabled = frozenset({"FUS103", "FUS133", "FUS303", "FUS132"})
    assert against(PASS, engine, pair) == ["FUS110", "FUS135", "FUS431", "FUS110", "FUS110"]
    engine.forbidden["b", ""] = engine.forbidden["q", ""] = unplanned
    assert against(PASS, engine, pair)[:2] == ["FUS110", "FUS110"] and len(against(PASS, engine, pair)) == 6


class Choice:
    """A plugin's rule."""

    def against(self, edge: object) -> Reason:
        return no("FUS501", producer="a", users=2)


def test_prices_and_choices_count_last(monkeypatch: pytest.MonkeyPatch):
    slower = Reason.of("FUS434", first="x", second="y", model="", us_fused=2.0, us_unfused=1.0)
    monkeypatch.setattr(compatibility, "pays", lambda pair: slower)
    engine, of = read(*CHAIN, f"r = ({ROW}, {ROW}) tuple(b, c)", choices=(Choice(),))
    kept, beside = (
        kind(of[x], of[y], engine.state, engine.origins)
        for kind, x, y in ((MultiOutputEdge, "a", "c"), (Beside, "c", "b"))
    )
    assert against(PASS, engine, kept) == ["FUS434", "FUS501"]
    assert against(PASS, engine, beside) == ["FUS501"]
    assert against(MultiOutputFusion(price_siblings=True), engine, beside) == ["FUS434", "FUS501"]
    engine.disabled = frozenset({"FUS434", "FUS501"})
    assert not against(PASS, engine, kept)


def test_which_edges_are_its_business():
    engine, of = read(
        *CHAIN,
        TWO_OUTPUTS.replace("(p)", "(c)"),
        f"g = {ROW} get-tuple-element(f), index=0",
        f"e2 = {ROW} abs(g)",
        f"r = ({ROW}, {ROW}) tuple(b, e2)",
    )
    looked = {
        (x, y): PASS.looks_at(engine.edge(of[x], of[y]))
        for x, y in (("a", "b"), ("c", "f"), ("p", "a"), ("b", "r"), ("g", "e2"))
    }
    assert looked == {("a", "b"): True, ("c", "f"): True, ("p", "a"): False, ("b", "r"): False, ("g", "e2"): False}
    assert not MultiOutputFusion(producer_consumer=False).looks_at(engine.edge(of["a"], of["b"]))
    engine, of = read(f"a = {ROW} tanh(p)", f"b = {ROW} abs(a)", f"r = {ROW} negate(b)")
    assert not PASS.looks_at(engine.edge(of["a"], of["b"]))


def told(fuser: MultiOutputFusion, engine: Engine) -> list[tuple[str, str, list[str]]]:
    found = fuser.sibling_refusals(engine, engine.module.entry)
    return [(t.first.name, t.second.name, [r.code for r in t.reasons]) for t in found]


def test_neighbours_are_told_of_once():
    engine, _ = read(
        f"a = {ROW} add(p, q)",
        f"b = {ROW} subtract(p, q)",
        f"c = {ROW} fusion(q), kind=kLoop, calls=held",
        f"r = ({ROW}, {ROW}, {ROW}) tuple(a, b, c)",
    )
    assert told(PASS, engine) == [("a", "b", ["FUS135"]), ("c", "a", [])]
    assert told(PLAIN, engine) == [("a", "b", []), ("c", "a", [])]
    assert told(MultiOutputFusion(siblings=False), engine) == []


def test_readers_of_a_librarys_kernel_are_not_tried():
    lines = (
        f"l = {ROW} fusion(p), {GEMM}",
        f"a = {ROW} tanh(l)",
        f"b = {ROW} abs(l)",
        f"r = ({ROW}, {ROW}) tuple(a, b)",
    )
    engine, _ = read(*lines)
    ((first, second, codes),) = told(PLAIN, engine)
    assert (first, second, codes) == ("a", "b", ["FUS137"])
    (refusal,) = PLAIN.sibling_refusals(engine, engine.module.entry)
    assert refusal.reasons == [no("FUS137", parent="l", first="a", second="b")]
    engine.disabled = frozenset({"FUS137"})
    assert told(PLAIN, engine) == [("a", "b", [])]
    for disabled, joined in (((), False), (("FUS137",), True)):
        engine, _ = read(*lines)
        assert PLAIN.run(engine.module, PassContext(FuseOptions(H100, disabled=frozenset(disabled)))) == joined
    # where they read something else together, that is what they have in common
    engine, _ = read(lines[0], f"a = {ROW} add(l, q)", f"b = {ROW} subtract(l, q)", lines[3])
    assert told(PLAIN, engine) == [("a", "b", [])]


def kernels(count: int, opcodes: str = "tanh") -> tuple[str, ...]:
    lines = [f"a{n} = {ROW} {opcodes}(p)" for n in range(count)]
    return (*lines, f"r = ({', '.join([ROW] * count)}) tuple({', '.join(f'a{n}' for n in range(count))})")


def launched(engine: Engine) -> list[int]:
    free = ("parameter", "tuple", "get-tuple-element", "constant")
    return [sum(1 for _ in i.shape.leaves()) for i in engine.module.entry.instructions if i.opcode not in free]


def test_a_kernel_looks_at_so_many_others(monkeypatch: pytest.MonkeyPatch):
    """The first refuses all; after the limit of refusals the second has its turn."""
    tries: list[tuple[str, str]] = []

    def refuse(pair: Beside) -> Reason | None:
        tries.append((pair.producer_name, pair.consumer_name))
        return no("FUS135", first="a", second="b")

    monkeypatch.setattr(compatibility, "BESIDE", (refuse,))
    engine, _ = read(*kernels(4))
    MultiOutputFusion(plain_siblings=True, max_tries=2, producer_consumer=False).run(
        engine.module, PassContext(FuseOptions(H100))
    )
    assert tries == [("a0", "a1"), ("a0", "a2"), ("a1", "a2"), ("a1", "a3"), ("a2", "a3")]


def test_siblings_that_one_refuses_find_each_other(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        compatibility,
        "BESIDE",
        (lambda pair: no("FUS135", first="a", second="b") if pair.producer_name == "a0" else None,),
    )
    engine, _ = read(*kernels(4))
    context = PassContext(FuseOptions(H100))
    assert PLAIN.run(engine.module, context)
    assert sorted(launched(engine)) == [1, 3] and context.steps == 2


@pytest.mark.parametrize("outputs", [94, 95])
def test_a_kernel_that_writes_as_much_as_it_may_is_full(outputs: int):
    held = (f"x9 = {ROW} parameter(0)", *(f"y9{n} = {ROW} negate(x9)" for n in range(outputs)))
    shape = ", ".join([ROW] * outputs)
    big = (*held, f"t9 = ({shape}) tuple({', '.join(f'y9{n}' for n in range(outputs))})")
    module = module_of(
        f"p = {ROW} parameter(0)", f"f = ({shape}) fusion(p), kind=kLoop, calls=big", f"r = {ROW} abs(p)", big=big
    )
    engine = Engine(module, PassContext(FuseOptions(H100)))
    pair = Beside(
        next(i for i in module.entry.instructions if i.name == "f"), module.entry.root, engine.state, engine.origins
    )
    full = no("FUS201", count=97, operands=1, outputs=96, limit=96)
    assert multi_output_fusion._is_full(pair, full) == (outputs == 95)
    assert not multi_output_fusion._is_full(pair, no("FUS135", first="a", second="b"))


@pytest.mark.parametrize(("steps", "left"), [(0, [1, 1, 1]), (1, [2, 1]), (2, [3]), (None, [3])])
def test_each_join_is_a_step(steps: int | None, left: list[int]):
    engine, _ = read(*CHAIN, f"r = ({ROW}, {ROW}, {ROW}) tuple(a, b, c)")
    context = PassContext(FuseOptions(H100, stop_after_step=steps))
    assert PASS.run(engine.module, context) == (steps != 0)
    assert sorted(launched(engine), reverse=True) == left
    assert context.steps == (2 if steps is None else steps)


def test_constants_have_no_siblings_and_options_switch_halves_off():
    lines = (
        "k = f32[64]{0} constant({...})",
        f"a = {ROW} tanh(k)",
        f"b = {ROW} fusion(k), kind=kLoop, calls=held",
        f"r = ({ROW}, {ROW}) tuple(a, b)",
    )
    engine, _ = read(*lines)
    assert not PASS.run(engine.module, PassContext(FuseOptions(H100))) and told(PASS, engine) == []
    for options in ({"siblings": False}, {"producer_consumer": False}):
        engine, _ = read(*CHAIN, f"r = ({ROW}, {ROW}, {ROW}) tuple(a, b, c)")
        assert MultiOutputFusion(**options).run(engine.module, PassContext(FuseOptions(H100)))
        assert sorted(launched(engine)) == [1, 2]
    assert (PASS.max_tries, PASS.siblings, PASS.producer_consumer, PASS.any_form) == (100, True, True, False)
