"""What fusion passes share: what speaks against an edge and in which order, what is remembered of it, and what becomes
of kernels without a plan."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

import pytest
from small_modules import H100, module_of, named

import hlo_opt
from hlo_opt.analysis.targets import target
from hlo_opt.diag import Reason
from hlo_opt.fusion import engine as engines
from hlo_opt.fusion.context import FuseOptions, PassContext, PassMemory
from hlo_opt.fusion.decision import ByStructure
from hlo_opt.fusion.engine import Engine, reader_names
from hlo_opt.fusion.legality import Edge

ROW = "f32[64]{0}"
GEMM = 'kind=kCustom, backend_config={"fusion_backend_config":{"kind":"__triton_gemm"}}'
INPUTS = (f"p = {ROW} parameter(0)", f"q = {ROW} parameter(1)", "z = f32[] constant(0)")
CHAIN = (*INPUTS, f"a = {ROW} negate(p)", f"b = {ROW} tanh(a)", f"r = {ROW} abs(b)")


class Says:
    """A policy that says what it is told to, and counts how often it is asked."""

    def __init__(self, *codes: str, rules_out: bool = False, likeness: Hashable = "says") -> None:
        self.codes, self.out, self.like = codes, rules_out, likeness
        self.any_form = False
        self.asked = 0

    def against(self, edge: Edge, disabled: frozenset[str] = frozenset()) -> Iterator[Reason]:
        self.asked += 1
        numbers = {"producer": "a", "users": 2}
        yield from (Reason.of(code, **numbers) for code in self.codes if code not in disabled)

    def rules_out(self, edge: Edge, disabled: frozenset[str] = frozenset()) -> bool:
        return self.out

    def likeness(self, edge: Edge) -> Hashable:
        return self.like


class Choice:
    """A plugin's rule."""

    def __init__(self, code: str = "") -> None:
        self.code = code

    def against(self, edge: Edge) -> Reason | None:
        return Reason.of(self.code, producer="a", users=2) if self.code else None


def made(*lines: str, **options: object) -> tuple[Engine, Edge]:
    module = module_of(*(lines or CHAIN))
    notes = {"forbidden": options.pop("forbidden")} if "forbidden" in options else {}
    engine = Engine(module, PassContext(FuseOptions(H100, **options), **notes))  # type: ignore[arg-type]
    return engine, engine.edge(named(module, "a"), named(module, "b"))


def codes(engine: Engine, edge: Edge, policy: Says, *, any_form: bool = False) -> list[str]:
    policy.any_form = any_form
    return [r.code for r in engine.reasons(edge, policy)]


def plan_refused(edge: Edge) -> Reason:
    return Reason.of("FUS303", elements=2, limit=1)


def test_what_speaks_against_an_edge_comes_in_order(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(engines, "has_plan", plan_refused)
    waiting = (*CHAIN[:4], f"b = {ROW} tanh(a), control-predecessors={{q0}}", f"r = {ROW} abs(b)")
    lines = (*INPUTS, f"q0 = {ROW} abs(q)", *waiting[3:])
    refused = {("a", "b"): Reason.of("FUS306", values=2, limit=1)}
    engine, edge = made(*lines, forbidden=refused, choices=(Choice(), Choice("FUS501")))
    assert codes(engine, edge, Says("FUS501")) == ["FUS103", "FUS306", "FUS501", "FUS501", "FUS303"]
    assert codes(engine, edge, Says("FUS501"), any_form=True) == ["FUS103", "FUS306", "FUS501", "FUS501"]
    engine.forced = frozenset({("a", "b")})
    assert codes(engine, edge, Says("FUS501")) == ["FUS103", "FUS306", "FUS303"]
    engine.forced = frozenset()
    engine.disabled = frozenset({"FUS103", "FUS306", "FUS501", "FUS303"})
    assert codes(engine, edge, Says("FUS501")) == ["FUS110"] * 3
    monkeypatch.setattr(engines, "nests_deep", lambda edge: True)
    assert codes(engine, edge, Says("FUS501"), any_form=True) == ["FUS110"] * 3


def test_edges_alike_are_asked_about_once():
    lines = (
        *INPUTS,
        f"a = {ROW} negate(p)",
        f"a1 = {ROW} negate(q)",
        f"b = {ROW} tanh(a)",
        f"b1 = {ROW} tanh(a1)",
        f"c = {ROW} abs(a1)",
        f"d = {ROW} add(b, c)",
        f"r = {ROW} add(d, b1)",
    )
    engine, edge = made(*lines)
    module = engine.module
    policy = Says()
    assert engine.allows(edge, policy) and engine.allows(edge, policy) and policy.asked == 1
    other = engine.edge(named(module, "a1"), named(module, "b1"))
    assert engine.allows(other, policy) and policy.asked == 2  # a1 has two readers
    policy.any_form = True
    assert engine.allows(edge, policy) and policy.asked == 3
    policy.any_form = False
    policy.like = "otherwise"
    assert engine.allows(edge, policy) and policy.asked == 4
    policy.codes = ("FUS501",)
    assert engine.allows(edge, policy)  # what is known stays
    policy.like = None
    assert not engine.allows(edge, policy) and not engine.allows(edge, policy) and policy.asked == 6


@pytest.mark.parametrize(
    "options",
    [
        {"forced": frozenset({("x", "y")})},
        {"choices": (Choice(),)},
        {"forbidden": {("a", "b"): Reason.of("FUS306", values=2, limit=1)}},
    ],
)
def test_where_more_counts_each_edge_is_asked_about(options: dict[str, object]):
    engine, edge = made(**options)
    policy = Says()
    allowed = "forbidden" not in options
    assert [engine.allows(edge, policy) for _ in range(2)] == [allowed] * 2 and not engine.context.memory.known.verdicts


def test_what_is_forbidden_elsewhere_does_not_count():
    engine, edge = made(forbidden={("b", "a"): Reason.of("FUS306", values=2, limit=1)})
    assert engine.allows(edge, Says()) and list(engine.context.memory.known.verdicts.values()) == [True]


def test_control_dependencies_are_looked_at_each_time():
    lines = (
        *INPUTS,
        f"q0 = {ROW} abs(q)",
        f"a = {ROW} negate(p)",
        f"b = {ROW} tanh(a), control-predecessors={{q0}}",
        f"r = {ROW} abs(b)",
    )
    engine, edge = made(*lines)
    assert not engine.allows(edge, Says()) and not engine.context.memory.known.verdicts


def test_a_first_look_that_rules_out_ends_the_matter():
    engine, edge = made()
    policy = Says(rules_out=True)
    assert not engine.allows(edge, policy) and policy.asked == 0 and not engine.context.memory.known.verdicts
    engine.forced = frozenset({("a", "b")})
    assert engine.allows(edge, policy)


READERS = (
    "x = f32[64]{0} parameter(0)",
    "k = f32[64]{0} parameter(1)",
    "bits = s32[64]{0} bitcast(x)",
    "more = s32[64]{0} bitcast(bits)",
    "m = s32[64]{0} add(more, bits)",
    "n = f32[64]{0} negate(x)",
    "o = f32[64]{0} tanh(k)",
    "w = f32[64]{0} bitcast(m)",
    "u = f32[64]{0} add(w, n)",
    "v = f32[64]{0} add(u, o)",
)


def reading(line: str = f"b = {ROW} fusion(a, q), kind=kLoop, calls=held") -> tuple[Engine, Edge]:
    module = module_of(*INPUTS, f"a = {ROW} negate(p)", line, held=READERS)
    engine = Engine(module, PassContext(FuseOptions(H100)))
    return engine, engine.edge(named(module, "a"), module.entry.root)


def test_which_members_read_a_producer():
    engine, edge = reading()
    assert list(reader_names(edge)) == ["n", "m", "bits", "more"]
    engine.origins[next(i for c in engine.module.computations for i in c.instructions if i.name == "n")] = "before"
    assert list(reader_names(edge)) == ["before", "m", "bits", "more"]
    assert list(reader_names(reading(f"b = {ROW} fusion(a, q), {GEMM}, calls=held")[1])) == ["b"]
    assert list(reader_names(reading(f"b = {ROW} abs(a)")[1])) == ["b"]
    assert list(reader_names(reading(f"b = {ROW} fusion(q, a), kind=kLoop, calls=held")[1])) == ["o"]


@pytest.mark.parametrize(
    ("forced", "is_forced"),
    [
        ((), False),
        (("a", "b"), True),
        (("a", "v"), True),
        (("a", "n"), True),
        (("a", "m"), True),
        (("a", "o"), False),
        (("p", "b"), False),
    ],
)
def test_who_may_be_named_to_force_an_edge(forced: tuple[str, ...], is_forced: bool):
    engine, edge = reading()
    engine.forced = frozenset({forced} if forced else ())  # type: ignore[arg-type]
    assert engine.is_forced(edge) == is_forced


# ---- fusing


def test_a_fused_producer_is_told_of_and_a_fusion_of_nothing_else_stays():
    module = module_of(*CHAIN)
    engine = Engine(module, PassContext(FuseOptions(H100)), rule="first")
    fusion = engine.fuse(named(module, "a"), named(module, "b"))
    engine.rule = "second"
    again = engine.fuse(fusion, named(module, "r"))
    assert again.opcode == "fusion" and list(engine.changed) == [again] and fusion.parent is None
    assert engine.context.fused_by == {"a": "first", "b": "second"}
    assert len(engine.orphans) == 1
    assert not engine.finish()
    assert {c.name for c in module.computations} == {"sum", again.called_by("calls").name, "e"}
    assert not engine.changed and not engine.orphans and module.entry.root.name == "loop_abs_fusion"


def test_a_name_goes_with_a_copy():
    module = module_of(*CHAIN[:-1], f"c = {ROW} exponential(a)", f"r = {ROW} add(b, c)")
    engine = Engine(module, PassContext(FuseOptions(H100), origins={named(module, "b"): "was"}))
    fusion = engine.fuse(named(module, "a"), named(module, "b"))
    body = fusion.called_by("calls")
    names = {engine.origins.get(i, i.name) for i in body.instructions if i.opcode != "parameter"}
    assert names == {"a", "was"} and {i.name for i in body.instructions if i.opcode != "parameter"} == {"a.1", "b"}


def refusing(monkeypatch: pytest.MonkeyPatch, engine: Engine) -> None:
    monkeypatch.setattr(
        type(engine.state), "kind_of", lambda state, fusion, **how: plan_refused(engine.edge(fusion, fusion))
    )


def test_a_kernel_without_a_plan_is_taken_apart(monkeypatch: pytest.MonkeyPatch):
    module = module_of(*CHAIN)
    engine = Engine(module, PassContext(FuseOptions(H100)))
    before = engine.state
    engine.fuse(named(module, "a"), named(module, "b"))
    refusing(monkeypatch, engine)
    assert engine.finish()
    assert [i.opcode for i in module.entry.instructions] == [
        "parameter",
        "parameter",
        "constant",
        "negate",
        "tanh",
        "abs",
    ]
    reason = Reason.of("FUS303", elements=2, limit=1)
    assert engine.forbidden == {("a", ""): reason, ("b", ""): reason, ("p", "a"): reason, ("a", "b"): reason}
    assert engine.state is not before and engine.state is engine.context.memory.state(module, H100)
    assert list(engine.reasons(engine.edge(named(module, "a"), named(module, "b")), Says())) == [reason]


# ---- what passes hand on to each other


def test_what_is_known_holds_for_one_module_and_one_device():
    known = ByStructure()
    memory = PassMemory(known)
    one, other = module_of(*CHAIN), module_of(*CHAIN)
    state = memory.state(one, H100)
    assert memory.state(one, H100) is state and state.known is known is memory.known
    assert memory.state(one, target("b200")) is not state
    state = memory.state(one, H100)
    assert memory.state(other, H100) is not state
    state = memory.state(one, H100)
    memory.clear()
    assert memory.state(one, H100) is not state


CALLS = """HloModule m

held {
  x = f32[64]{0} parameter(0)
  ROOT y = f32[64]{0} negate(x)
}

other {
  x2 = f32[64]{0} parameter(0)
  ROOT y2 = f32[64]{0} negate(x2)
}

inner {
  x3 = f32[64]{0} parameter(0)
  ROOT y3 = f32[64]{0} negate(x3)
}

body {
  x4 = f32[64]{0} parameter(0)
  ROOT f4 = f32[64]{0} fusion(x4), kind=kLoop, calls=inner
}

ENTRY e {
  p = f32[64]{0} parameter(0)
  f = f32[64]{0} fusion(p), kind=kLoop, calls=held
  g = f32[64]{0} fusion(f), kind=kLoop, calls=other
  c = f32[64]{0} fusion(g), kind=kLoop, calls=body
  ROOT r = f32[64]{0} negate(c)
}
"""


@pytest.mark.parametrize(
    ("changed", "kept"),
    [
        ((), ("f", "g", "c")),
        (("held",), ("g", "c")),
        (("held", "other"), ("c",)),
        (("e",), None),
        (("inner",), None),
        (("body",), ("f", "g")),
    ],
)
def test_what_is_known_of_kernels_that_hold_nothing_that_changed(
    changed: tuple[str, ...], kept: tuple[str, ...] | None
):
    module = hlo_opt.parse(CALLS)
    memory = PassMemory()
    state = memory.state(module, H100)
    of = {i.name: i for i in module.entry.instructions}
    clusters = {name: state.cluster(of[name]) for name in ("f", "g", "c")}
    memory.changed_inside([c for c in module.computations if c.name in changed], module)
    assert (memory.state(module, H100) is state) == (kept is not None)
    if kept is not None:
        assert tuple(name for name in clusters if state.cluster(of[name]) is clusters[name]) == kept


def test_nothing_is_known_of_what_nobody_asked_about():
    memory = PassMemory()
    memory.changed_inside(list(hlo_opt.parse(CALLS).computations), hlo_opt.parse(CALLS))
    assert memory._state is None
