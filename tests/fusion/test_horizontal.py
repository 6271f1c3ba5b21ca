"""What the horizontal passes share: the kernels that a consumer reads, who else reads them, and joining them into one
launch."""

from __future__ import annotations

import pytest
from small_modules import H100, module_of

from hlo_opt.diag import Reason
from hlo_opt.fusion import horizontal
from hlo_opt.fusion.context import FuseOptions, PassContext
from hlo_opt.fusion.engine import Engine
from hlo_opt.fusion.horizontal import (
    Joiner,
    buffer_count,
    consumers,
    impossible,
    is_forced,
    operand_kernels,
    other_users,
    size_of,
)
from hlo_opt.ir import Instruction, Module, edit
from hlo_opt.ir.walk import post_order

ROW = "f32[64]{0}"
PAIR = f"({ROW}, {ROW})"
INPUTS = (f"p = {ROW} parameter(0)", f"q = {ROW} parameter(1)", "z = f32[] constant(0)")
KERNELS = {
    "of_two": (f"x0 = {ROW} parameter(0)", f"y0 = {ROW} negate(x0)", f"t0 = {PAIR} tuple(y0, x0)"),
    "nested": (
        f"x1 = {ROW} parameter(0)",
        f"w1 = {ROW} parameter(1)",
        f"sum1 = {ROW} add(x1, w1)",
        f"y1 = {ROW} negate(sum1)",
    ),
}


def read(*lines: str) -> tuple[Module, dict[str, Instruction]]:
    module = module_of(*INPUTS, *lines, **KERNELS)
    return module, {i.name: i for i in module.entry.instructions}


def test_the_kernels_that_a_consumer_reads():
    _, of = read(
        f"f = {PAIR} fusion(p), kind=kLoop, calls=of_two",
        f"g = {ROW} get-tuple-element(f), index=0",
        f"h = {ROW} get-tuple-element(f), index=1",
        f"n = ({PAIR}, {PAIR}) tuple(f, f)",
        f"m = {PAIR} get-tuple-element(n), index=0",
        f"k = {ROW} get-tuple-element(m), index=0",
        f"a = {ROW} negate(p)",
        "b = s32[64]{0} bitcast(a)",
        f'r = {ROW} custom-call(h, p, z, a, g, b, a, k), custom_call_target="f"',
    )  # fmt: skip
    assert [i.name for i in operand_kernels(of["r"])] == ["f", "a"]


USES = {
    "its consumer only": ((f"r = {ROW} abs(a)",), ""),
    "another kernel": ((f"o = {ROW} tanh(a)", f"r = {ROW} add(a, o)"), "o"),
    "the result": ((f"r0 = {ROW} abs(a)", f"r = ({ROW}, {ROW}) tuple(r0, a)"), ""),
    "a tuple that is not the result": ((f"n = ({ROW}) tuple(a)", f"r = {ROW} abs(a)"), "n"),
}


@pytest.mark.parametrize("what", USES)
def test_who_else_reads_a_candidate(what: str):
    lines, user = USES[what]
    _, of = read(f"a = {ROW} negate(p)", *lines)
    consumer = of.get("r0", of["r"])
    expected = Reason.of("FUS141", instruction="a", consumer=consumer.name, user=user) if user else None
    assert other_users(of["a"], consumer) == expected


@pytest.mark.parametrize(
    ("lines", "user"),
    [
        ((f"h = {ROW} get-tuple-element(f), index=1", f"r = {ROW} add(g, h)"), ""),
        ((f"h = {ROW} get-tuple-element(f), index=1", f"o = {ROW} abs(h)", f"r = {ROW} add(g, o)"), "o"),
        ((f"r = {ROW} abs(g)", f"h = {ROW} get-tuple-element(f), index=1"), ""),
        ((f"o = ({PAIR}) tuple(f)", f"r = {ROW} abs(g)"), "o"),
    ],
)
def test_elements_of_a_candidate_are_looked_through(lines: tuple[str, ...], user: str):
    _, of = read(f"f = {PAIR} fusion(p), kind=kLoop, calls=of_two", f"g = {ROW} get-tuple-element(f), index=0", *lines)
    expected = Reason.of("FUS141", instruction="f", consumer="r", user=user) if user else None
    assert other_users(of["f"], of["r"]) == expected


def test_sizes_of_kernels():
    module, of = read(
        f"f = {PAIR} fusion(p), kind=kLoop, calls=of_two",
        f"a = {ROW} add(p, p)",
        f"n = {ROW} fusion(p, q), kind=kLoop, calls=nested",
        f'r = {ROW} custom-call(p, q, p), custom_call_target="f"',
    )
    engine = Engine(module, PassContext(FuseOptions(H100)))
    assert {name: buffer_count(of[name]) for name in "fanr"} == {"f": 3, "a": 2, "n": 3, "r": 3}
    assert {name: size_of(engine, of[name]) for name in "fanr"} == {"f": 3, "a": 1, "n": 4, "r": 1}


class Choice:
    """A plugin's rule."""

    def against(self, edge: object) -> Reason:
        return Reason.of("FUS501", producer="a", users=2)


def test_what_keeps_two_apart_whatever_the_policy():
    module, of = read(
        f"a = {ROW} negate(p)",
        f"b = {ROW} tanh(q)",
        f"c = {ROW} abs(q), control-predecessors={{b}}",
        f"r = {ROW} add(a, c)",
    )
    engine = Engine(module, PassContext(FuseOptions(H100)))
    assert list(impossible(engine, of["a"], of["a"])) == []
    assert [r.code for r in impossible(engine, of["a"], of["b"])] == ["FUS103"]
    engine = Engine(module, PassContext(FuseOptions(H100, disabled=frozenset({"FUS103"}))))
    assert list(impossible(engine, of["a"], of["b"])) == [Reason.of("FUS110", rule="FUS103")]
    unplanned = Reason.of("FUS303", elements=2, limit=1)
    for name, count in (("a", 1), ("c", 0)):
        engine = Engine(
            module, PassContext(FuseOptions(H100), forbidden={(name, ""): unplanned, ("a", "c"): unplanned})
        )
        assert list(impossible(engine, of["a"], of["b"]))[1:] == [unplanned] * count
    engine = Engine(
        module, PassContext(FuseOptions(H100, disabled=frozenset({"FUS303"})), forbidden={("b", ""): unplanned})
    )
    assert list(impossible(engine, of["a"], of["b"]))[1:] == [Reason.of("FUS110", rule="FUS303")]
    other = Reason.of("FUS303", elements=3, limit=1)
    engine = Engine(module, PassContext(FuseOptions(H100), forbidden={("a", ""): unplanned, ("b", ""): other}))
    assert list(impossible(engine, of["a"], of["b"]))[1:] == [unplanned, other]
    engine = Engine(module, PassContext(FuseOptions(H100, choices=(Choice(),))))  # type: ignore[arg-type]
    assert [r.code for r in impossible(engine, of["a"], of["b"])] == ["FUS103", "FUS501"]


@pytest.mark.parametrize(("pair", "forced"), [((), False), (("a", "b"), True), (("b", "a"), True), (("a", "r"), False)])
def test_two_are_forced_by_their_names_in_any_order(pair: tuple[str, ...], forced: bool):
    module, of = read(f"a = {ROW} negate(p)", f"b = {ROW} tanh(q)", f"r = {ROW} add(a, b)")
    options = FuseOptions(H100, forced=frozenset({pair} if pair else ()))  # type: ignore[arg-type]
    engine = Engine(module, PassContext(options))
    assert is_forced(engine, of["a"], of["b"]) == forced


def test_consumers_come_from_the_end_and_those_of_one_operand_do_not():
    module, of = read(f"a = {ROW} add(p, q)", f"b = {ROW} abs(a)", f"c = {ROW} add(a, b)", f"r = {ROW} add(c, b)")
    order = post_order(module.entry)
    found = consumers(module.entry, order)
    assert next(found) is of["r"]
    edit.set_operands(of["r"], [of["a"], of["b"]])
    edit.remove(of["c"])
    assert [i.name for i in found] == ["a"]


CAREFUL, CARELESS = frozenset(), frozenset({"FUS141"})
SPAN = (f"a = {ROW} negate(p)", f"b = {ROW} tanh(a)", f"c = {ROW} abs(q)", f"r = ({ROW}, {ROW}, {ROW}) tuple(a, b, c)")


def joiner(*lines: str, disabled: frozenset[str] = CAREFUL, steps: int = 100) -> tuple[Joiner, dict[str, Instruction]]:
    module, of = read(*lines)
    options = FuseOptions(H100, disabled=disabled, stop_after_step=steps)
    return Joiner(Engine(module, PassContext(options)), module.entry), of


def kernels(found: Joiner) -> list[int]:
    """How many members each kernel has, operands first."""
    entry = found.engine.module.entry
    return [
        len([m for m in i.called_by("calls").instructions if m.opcode not in ("parameter", "tuple")])
        if i.opcode == "fusion"
        else 1
        for i in post_order(entry)
        if i.opcode in ("fusion", "negate", "tanh", "abs", "cosine")
    ]


def test_where_candidates_may_need_each_other_their_order_is_looked_at():
    found, of = joiner(*SPAN)
    assert list(found.connected(of["a"], of["b"])) == []  # nobody but the consumer reads a candidate
    found, of = joiner(*SPAN, disabled=CARELESS)
    wanted = [Reason.of("FUS132", needed="a", user="b")]
    assert list(found.connected(of["a"], of["b"])) == list(found.connected(of["b"], of["a"])) == wanted
    assert list(found.connected(of["a"], of["c"])) == []
    found, of = joiner(*SPAN, disabled=CARELESS | {"FUS132"})
    assert list(found.connected(of["a"], of["b"])) == [Reason.of("FUS110", rule="FUS132")]


def test_a_span_becomes_one_kernel_but_for_what_needs_it():
    found, of = joiner(*SPAN, disabled=CARELESS)
    assert found.join_all([of["a"], of["b"], of["c"]])
    assert sorted(kernels(found)) == [1, 2]
    apart = (
        f"a = {ROW} negate(p)",
        f"b = {ROW} tanh(q)",
        f"c = {ROW} abs(q)",
        f"r = ({ROW}, {ROW}, {ROW}) tuple(a, b, c)",
    )
    for disabled in (CAREFUL, CARELESS):
        found, of = joiner(*apart, disabled=disabled)
        assert found.join_all([of["a"], of["b"], of["c"]])
        assert kernels(found) == [3]
    found, of = joiner(*apart)
    assert not found.join_all([of["a"]]) and not found.join_all([])
    assert kernels(found) == [1, 1, 1]


def test_what_joins_later_is_seen_in_its_new_place():
    """`d` needs `b`, which is part of the kernel of `a` by then."""
    lines = (
        f"a = {ROW} negate(p)",
        f"b = {ROW} tanh(q)",
        f"d = {ROW} abs(b)",
        f"e2 = {ROW} cosine(p)",
        f"r = ({ROW}, {ROW}, {ROW}, {ROW}) tuple(a, b, d, e2)",
    )
    found, of = joiner(*lines, disabled=CARELESS)
    assert found.join_all([of["a"], of["b"], of["d"], of["e2"]])
    assert sorted(kernels(found)) == [1, 3]


def test_no_more_steps_than_are_allowed():
    lines = (
        *(f"a{n} = {ROW} {o}(p)" for n, o in enumerate(("negate", "tanh", "abs"))),
        f"r = ({ROW}, {ROW}, {ROW}) tuple(a0, a1, a2)",
    )
    for steps, wanted in ((0, [1, 1, 1]), (1, [1, 2]), (2, [3])):
        found, of = joiner(*lines, steps=steps)
        assert found.join_all([of[f"a{n}"] for n in range(3)]) == (steps > 0)
        assert sorted(kernels(found)) == wanted


def test_what_has_no_plan_together_stays_apart(monkeypatch: pytest.MonkeyPatch):
    lines = (
        *(f"a{n} = {ROW} {o}(p)" for n, o in enumerate(("negate", "tanh", "abs"))),
        f"r = ({ROW}, {ROW}, {ROW}) tuple(a0, a1, a2)",
    )
    found, of = joiner(*lines)
    unplanned = Reason.of("FUS303", elements=2, limit=1)
    monkeypatch.setattr(horizontal, "without_plan", lambda pair: unplanned if pair.consumer is of["a1"] else None)
    assert found.join_all([of[f"a{n}"] for n in range(3)])
    assert sorted(kernels(found)) == [1, 2] and of["a1"].parent is not None
