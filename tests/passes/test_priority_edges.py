"""What priority fusion says of single edges: the user that refuses, the price, the constants."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_modules import H100, engine_of, module_of

from hlo_opt.analysis.xla.performance import estimate_fusion
from hlo_opt.diag import Reason
from hlo_opt.fusion.compatibility import XLAS_MODEL
from hlo_opt.fusion.context import FuseOptions, PassContext
from hlo_opt.fusion.engine import Engine
from hlo_opt.fusion.prices import Prices
from hlo_opt.ir import Instruction
from hlo_opt.passes import priority_fusion
from hlo_opt.passes.priority_fusion import PriorityFusion
from hlo_opt.plans.price import FREE

ROW = "f32[64]{0}"
CALL = 'custom-call(a), custom_call_target="x"'
A, B, C = f"a = {ROW} negate(p)", f"b = {ROW} tanh(a)", f"c = {ROW} abs(a)"
PASS = PriorityFusion()
KERNELS = {"held": (f"x0 = {ROW} parameter(0)", f"y0 = {ROW} negate(x0)")}


def read(*lines: str, **options: object) -> tuple[Engine, dict[str, Instruction]]:
    module = module_of(f"p = {ROW} parameter(0)", *lines, **KERNELS)
    return engine_of(module, **options)


def no(code: str, **numbers: object) -> Reason:
    return Reason.of(code, **numbers)


BOTH = f"r = ({ROW}, {ROW}) tuple(b, c)"


@pytest.mark.parametrize(
    ("lines", "user", "opcode", "why"),
    [
        ((A, B, f"r = ({ROW}, {ROW}) tuple(b, a)"), "r", "tuple", "it is how the value leaves"),
        ((A, B, f"t = ({ROW}) tuple(a)", f"r = {ROW} abs(b)"), "t", "tuple", "FUS308 no-kernel-opcode"),
        ((A, B, f"d = {ROW} {CALL}", f"r = {ROW} add(b, d)"), "d", "custom-call", "FUS308 custom-call-opaque"),
        ((A, B, f"r = {ROW} {CALL}"), "r", "custom-call", "FUS308 custom-call-opaque"),
    ],
)
def test_the_user_that_refuses_keeps_a_producer_out_of_all(lines: tuple[str, ...], user: str, opcode: str, why: str):
    engine, of = read(*lines)
    own = PASS.decide(engine, of["a"], of[user])
    assert own is not None
    why = why if why.startswith("it is") else f"{own.code} {own.slug}"
    reason = no("FUS108", producer="a", user=user, opcode=opcode, why=why)
    assert list(PASS.against_producer(engine, of["a"])) == [(of[user], reason)]
    assert list(PASS.refusals(engine, engine.edge(of["a"], of["b"]))) == [reason]
    assert reason not in list(PASS.refusals(engine, engine.edge(of["a"], of[user])))
    engine, of = read(*lines, disabled=frozenset({"FUS108"}))
    assert list(PASS.against_producer(engine, of["a"])) == []


class Saving:
    """Says what fusing saves, and remembers into which users."""

    def __init__(self, quarters: int) -> None:
        self.quarters = quarters
        self.users: list[list[str]] = []

    def __call__(self, state: object, producer: Instruction, users: list[Instruction]) -> int:
        self.users.append([u.name for u in users])
        return self.quarters


def test_the_price_of_all_users_keeps_a_producer_out(monkeypatch: pytest.MonkeyPatch):
    engine, of = read(
        A, B, "t = s32[64]{0} bitcast(a)", "c = s32[64]{0} abs(t)", "r = (f32[64]{0}, s32[64]{0}) tuple(b, c)"
    )
    users = [of["b"], of["t"]]
    for saved, slower in ((0, False), (-1, True)):
        asked = Saving(saved)
        monkeypatch.setattr(priority_fusion, "saved_quarters", asked)
        found = list(PASS.against_producer(engine, of["a"]))
        assert asked.users == [["b", "t"]]
        if not slower:
            assert found == []
            continue
        state = engine.state
        us_unfused, us_fused, _, _ = estimate_fusion(
            state.priced_by_xla(of["a"]), [state.priced_by_xla(u) for u in users]
        )
        reason = no("FUS408", producer="a", users=2, model=XLAS_MODEL, us_fused=us_fused, us_unfused=us_unfused)
        assert found == [(None, reason)] and list(PASS.refusals(engine, engine.edge(of["a"], of["b"]))) == [reason]
        engine, of = read(A, B, C, BOTH, disabled=frozenset({"FUS408"}))
        assert list(PASS.against_producer(engine, of["a"])) == []


def test_nothing_is_priced_where_nobody_takes_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(priority_fusion, "saved_quarters", lambda *given: -1)
    engine, of = read(A, f"r = {ROW} {CALL}", disabled=frozenset({"FUS108"}))
    assert list(PASS.against_producer(engine, of["a"])) == []


@pytest.mark.parametrize("producer", ["t", "p"])
def test_of_what_is_no_producer_nothing_is_said(producer: str):
    engine, of = read(
        "t = s32[64]{0} bitcast(p)",
        "b = s32[64]{0} abs(t)",
        f"c = {ROW} abs(p)",
        f"r = (s32[64]{{0}}, {ROW}, {ROW}) tuple(b, c, p)",
    )
    assert list(PASS.against_producer(engine, of[producer])) == []


def test_what_was_slower_before_is_told_where_nothing_else_is():
    left = no("FUS408", producer="a", users=1, model=XLAS_MODEL, us_fused=2.0, us_unfused=1.0)
    for disabled, told in (((), [left]), (("FUS408",), [])):
        engine, of = read(A, B, f"r = {ROW} abs(b)", disabled=frozenset(disabled))
        engine.context.left["priority-fusion", "a"] = left
        assert list(PASS.refusals(engine, engine.edge(of["a"], of["b"]))) == told
    engine, of = read(A, f"b = {ROW} {CALL}", f"r = {ROW} abs(b)")
    engine.context.left["priority-fusion", "a"] = left
    assert left not in list(PASS.refusals(engine, engine.edge(of["a"], of["b"])))


def test_which_instructions_are_producers():
    lines = (
        f'd = {ROW} custom-call(p), custom_call_target="x"',
        f'e2 = ({ROW}, {ROW}) custom-call(p), custom_call_target="x"',
        A,
        f"r = {ROW} add(d, a)",
    )
    for disabled, taken in (((), ["a", "r"]), (("FUS122",), ["d", "a", "r"])):
        engine, of = read(*lines, disabled=frozenset(disabled))
        takes = priority_fusion._producers(engine)
        assert [name for name in ("p", "d", "e2", "a", "r") if takes(of[name])] == taken
    assert PASS.looks_at(engine.edge(of["a"], of["r"])) and PASS.looks_at(engine.edge(of["a"], of["d"]))
    engine, of = read(A, f"r = ({ROW}) tuple(a)")
    assert not PASS.looks_at(engine.edge(of["a"], of["r"]))


CONSTANTS = (
    "k = f32[1]{0} constant({3})",
    "m = f32[2]{0} constant({3, 4})",
    "w = f32[1]{0} parameter(1)",
    "n = f32[2]{0} parameter(2)",
    "t = s32[1]{0} bitcast(k)",
    "a = f32[1]{0} add(w, k)",
    "b = f32[2]{0} add(n, m)",
    'c = f32[1]{0} custom-call(k), custom_call_target="x"',
    "d = s32[1]{0} abs(t)",
    "e2 = f32[1]{0} multiply(k, w)",
    "r = (f32[1]{0}, f32[2]{0}, f32[1]{0}, s32[1]{0}, f32[1]{0}) tuple(a, b, c, d, e2)",
)


@pytest.mark.parametrize(("steps", "fusions"), [(0, 0), (1, 1), (2, 2), (None, 2)])
def test_constants_of_one_element_go_into_what_takes_them(steps: int | None, fusions: int):
    engine, of = read(*CONSTANTS, stop_after_step=steps)
    computation, context = engine.module.entry, engine.context
    assert PASS._fuse_constants(computation, engine) == (steps != 0)
    found = [i for i in computation.instructions if i.opcode == "fusion"]
    assert len(found) == fusions and context.steps == fusions
    assert all([o.name for o in f.operands] == ["w"] for f in found)
    assert {u.opcode for u in of["k"].users if u.opcode != "fusion"} >= {"bitcast", "custom-call"}
    assert [u.opcode for u in of["m"].users] == ["add"]


@pytest.mark.parametrize(("steps", "left"), [(0, 3), (1, 3), (2, 2), (None, 2)])
def test_each_user_is_a_step(steps: int | None, left: int):
    module = module_of(f"p = {ROW} parameter(0)", A, B, C, BOTH)
    context = PassContext(FuseOptions(H100, stop_after_step=steps))
    assert PASS.run(module, context) == (steps != 0)
    assert sum(i.opcode not in ("parameter", "tuple") for i in module.entry.instructions) == left
    assert context.steps == (2 if steps is None else steps)


def test_what_did_not_pay_is_noted_down(monkeypatch: pytest.MonkeyPatch):
    """The tanh is computed for each element that `b` reads of it."""
    module = module_of(
        "p = f32[4096]{0} parameter(0)",
        "a = f32[4096]{0} tanh(p)",
        "b = f32[4096,4096]{1,0} broadcast(a), dimensions={0}",
        "r = f32[4096,4096]{1,0} abs(b)",
    )
    context = PassContext(FuseOptions(H100))
    PASS.run(module, context)
    (key,) = context.left
    assert key == ("priority-fusion", "a") and context.left[key].code == "FUS408"
    numbers = context.left[key].numbers
    assert numbers["users"] == 1 and numbers["us_fused"] > numbers["us_unfused"]


def test_the_default_is_that_of_xla():
    engine, _ = read(A, f"r = {ROW} abs(a)")
    sizes = [p.policy(engine, engine.module.entry).max_code_size for p in (PASS, PriorityFusion(7))]
    assert PASS.max_code_size == 10_000 and sizes == [10_000, 7]


def test_own_prices_leave_what_takes_our_kernels_longer(monkeypatch: pytest.MonkeyPatch):
    lines = (A, B, f"r = {ROW} abs(b)")
    engine, of = read(*lines)
    assert PASS.fuse_in(engine.module.entry, engine)
    assert [i.opcode for i in engine.module.entry.instructions] == ["parameter", "fusion"]
    monkeypatch.setattr(Prices, "joined", lambda *_: replace(FREE, us=1000.0))
    careful = PriorityFusion(own_prices=True)
    engine, of = read(*lines)
    apart = sum(engine.state.prices.of(of[name]).us for name in "br")
    assert not careful.fuse_in(engine.module.entry, engine)
    reason = engine.context.left["priority-fusion", "b"]
    assert reason == no("FUS408", producer="b", users=1, model="", us_fused=1000.0, us_unfused=apart)
    assert list(careful.refusals(engine, engine.edge(of["b"], of["r"]))) == [reason]
    engine, _ = read(*lines, disabled=frozenset({"FUS408"}))
    assert careful.fuse_in(engine.module.entry, engine)


@pytest.mark.parametrize("constants", [True, False])
def test_what_reads_constants_only_is_made_a_kernel_if_asked(constants: bool):
    engine, _ = read("k = f32[] constant(2)", f"w = {ROW} broadcast(k), dimensions={{}}")
    assert PriorityFusion(constants=constants).fuse_in(engine.module.entry, engine) is constants
    assert any(i.opcode == "fusion" for i in engine.module.entry.instructions) is constants
