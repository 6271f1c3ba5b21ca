"""Two kernels as one, with nothing else changed: by elements, through bitcasts, written for others or computed
again."""

from __future__ import annotations

import pytest
from small_modules import H100, module_of, named

import hlo_opt
from hlo_opt.analysis.graph.cluster import merge_elements
from hlo_opt.diag import Reason
from hlo_opt.fusion.context import FuseOptions, PassContext
from hlo_opt.fusion.engine import Engine
from hlo_opt.fusion.joining import (
    Union,
    join,
    no_union_beside,
    no_union_of,
    read_by_others,
    union_beside,
    union_of,
    ways_between,
)
from hlo_opt.fusion.proof import prove_same_graph
from hlo_opt.ir import Module, edit
from hlo_opt.ops.sets import launches
from hlo_opt.plans.sketch import Sketch

V = "f32[4096]{0}"
P = f"p = {V} parameter(0)"
BOTH = (
    "a = f32[] parameter(0)",
    "b = f32[] parameter(1)",
    "c = f32[] parameter(2)",
    "d = f32[] parameter(3)",
    "s = f32[] add(a, c)",
    "m = f32[] maximum(b, d)",
    "r = (f32[], f32[]) tuple(s, m)",
)
PAIR = (
    "p = f32[64,64]{1,0} parameter(0)",
    "zero = f32[] constant(0)",
    "pair = (f32[64]{0}, f32[64]{0}) reduce(p, p, zero, zero), dimensions={1}, to_apply=both",
    "sum = f32[64]{0} get-tuple-element(pair), index=0",
    "most = f32[64]{0} get-tuple-element(pair), index=1",
)


def engine_of(module: Module) -> Engine:
    return Engine(module, PassContext(FuseOptions(H100)), "test")


def united(module: Module, first: str, second: str) -> tuple[Union, Module]:
    """Both as one in a copy, which is proved to compute the same."""
    copy = edit.clone_module(module)
    for computation in copy.computations:
        computation.index_users()
    engine = engine_of(copy)
    one, other = named(copy, first), named(copy, second)
    found = union_of(engine, one, other) if other in _readers(one) else union_beside(engine, one, other)
    assert isinstance(found, Union), found
    made = join(engine, found)
    assert not isinstance(made, Reason), made
    edit.sort_computations(copy)
    hlo_opt.verify(copy)
    prove_same_graph(module, copy)
    return found, copy


def _readers(producer):
    found, left = [], list(producer.users)
    while left:
        user = left.pop()
        found.append(user)
        left += user.users if not launches(user) else ()
    return found


def kernels(module: Module) -> list[str]:
    return [i.name if i.opcode != "fusion" else "fusion" for i in module.entry.instructions if launches(i)]


def test_a_producer_that_only_the_consumer_reads_is_gone() -> None:
    module = module_of(P, f"n = {V} negate(p)", "b = f32[64,64]{1,0} bitcast(n)", "t = f32[64,64]{1,0} tanh(b)")
    found, made = united(module, "n", "t")
    assert not found.written and not found.copies and kernels(made) == ["fusion"]


def test_what_others_read_is_written() -> None:
    module = module_of(P, f"n = {V} negate(p)", f"t = {V} tanh(n)", f"s = {V} sine(n)", f"r = ({V}, {V}) tuple(t, s)")
    found, made = united(module, "n", "t")
    assert [w.name for w in found.written] == ["n"] and not found.copies and kernels(made) == ["fusion", "s"]


def test_what_lies_on_another_way_to_the_consumer_is_computed_again() -> None:
    """`s` reads the producer and is read by the consumer: a kernel of both would need itself."""
    call = f's = {V} custom-call(n), custom_call_target="x"'
    module = module_of(P, f"n = {V} negate(p)", call, f"t = {V} add(n, s)")
    found, made = united(module, "n", "t")
    assert found.copies and not found.written and kernels(made) == ["n", "s", "fusion"]
    refused = union_of(engine_of(module), named(module, "n"), named(module, "t"), may_copy=False)
    assert isinstance(refused, Reason) and refused.code == "FUS131"


def test_one_element_of_several_is_taken_in_and_the_other_written() -> None:
    module = module_of(*PAIR, "n = f32[64]{0} negate(sum)", "r = (f32[64]{0}, f32[64]{0}) tuple(n, most)", both=BOTH)
    found, made = united(module, "pair", "n")
    assert [w.name for w in found.written] == ["most"] and kernels(made) == ["fusion"]
    (fusion,) = (i for i in made.entry.instructions if i.opcode == "fusion")
    assert len(fusion.shape.elements) == 2


def test_elements_that_nobody_reads_are_left_out() -> None:
    two = (f"q = {V} parameter(0)", f"s = {V} sine(q)", f"c = {V} cosine(q)", f"two = ({V}, {V}) tuple(s, c)")
    module = module_of(
        P,
        f"pair = ({V}, {V}) fusion(p), kind=kLoop, calls=both",
        f"first = {V} get-tuple-element(pair), index=0",
        f"second = {V} get-tuple-element(pair), index=1",
        f"n = {V} negate(first)",
        f"r = ({V}, {V}) tuple(n, second)",
        both=two,
    )
    pair, n = named(module, "pair"), named(module, "n")
    state, ways = engine_of(module).state, ways_between(pair, n)
    assert ways is not None
    alone = merge_elements(state.cluster(pair), state.cluster(n), ways, ())
    assert [m.instruction.opcode for m in alone.members] == ["sine", "negate"]
    both = merge_elements(state.cluster(pair), state.cluster(n), ways, [named(module, "second")])
    assert [m.instruction.opcode for m in both.members] == ["sine", "cosine", "negate"] and len(both.roots) == 2


def test_siblings_become_one() -> None:
    module = module_of(P, f"n = {V} negate(p)", f"t = {V} tanh(p)", f"r = ({V}, {V}) tuple(n, t)")
    found, made = united(module, "n", "t")
    assert found.cost.us_saved > 0 and kernels(made) == ["fusion"]


def test_siblings_of_which_one_needs_the_other_do_not() -> None:
    call = f's = {V} custom-call(n), custom_call_target="x"'
    module = module_of(P, f"n = {V} negate(p)", call, f"t = {V} add(p, s)")
    for ends in (("n", "t"), ("t", "n")):
        found = union_beside(engine_of(module), *(named(module, end) for end in ends))
        assert isinstance(found, Reason) and found.code == "FUS132"
        assert (found.numbers["needed"], found.numbers["user"]) == ("n", "t")


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ((f"n = {V} negate(p)", f"b = {V} opt-barrier(n)", f"t = {V} tanh(b)"), "FUS113"),
        ((f'n = {V} custom-call(p), custom_call_target="x"', f"t = {V} tanh(n)"), "FUS308"),
        (
            (
                f'c = {V} custom-call(p), custom_call_target="x"',
                f"n = {V} negate(p)",
                f"b = {V} bitcast(n), control-predecessors={{c}}",
                f"t = {V} tanh(b)",
            ),
            "FUS103",
        ),
    ],
)
def test_why_there_is_no_one_kernel(lines: tuple[str, ...], code: str) -> None:
    module = module_of(P, *lines)
    found = union_of(engine_of(module), named(module, "n"), named(module, "t"))
    assert isinstance(found, Reason) and found.code == code
    assert no_union_of(engine_of(module), named(module, "n"), named(module, "t")) == found


@pytest.mark.parametrize(
    ("lines", "ends"),
    [
        ((P, f"n = {V} negate(p)", f"t = {V} tanh(n)"), ("n", "t")),
        ((P, f"n = {V} negate(p)", f"t = {V} tanh(n)", f"r = ({V}, {V}) tuple(n, t)"), ("n", "t")),
        ((P, f"n = {V} negate(p)", "b = f32[64,64]{1,0} bitcast(n)", "t = f32[64,64]{1,0} tanh(b)"), ("n", "t")),
        ((*PAIR, "n = f32[64]{0} negate(sum)", "r = (f32[64]{0}, f32[64]{0}) tuple(n, most)"), ("pair", "n")),
    ],
)
def test_that_there_is_one_takes_no_price_to_know(
    lines: tuple[str, ...], ends: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = module_of(*lines, **({"both": BOTH} if "pair" in ends else {}))
    monkeypatch.setattr(Sketch, "price", property(lambda self: pytest.fail("a price was asked for")))
    assert no_union_of(engine_of(module), *(named(module, end) for end in ends)) is None


def test_nor_for_siblings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sketch, "price", property(lambda self: pytest.fail("a price was asked for")))
    module = module_of(P, f"n = {V} negate(p)", f"t = {V} tanh(p)", f"s = {V} sine(t)")
    engine = engine_of(module)
    assert no_union_beside(engine, named(module, "n"), named(module, "t")) is None
    found = no_union_beside(engine, named(module, "t"), named(module, "s"))
    assert found is not None and found.code == "FUS132"


def test_ways_name_what_hands_on() -> None:
    module = module_of(*PAIR[:3], PAIR[4], "v = f32[8,8]{1,0} bitcast(most)", "n = f32[8,8]{1,0} negate(v)", both=BOTH)
    pair, n = named(module, "pair"), named(module, "n")
    ways = ways_between(pair, n)
    assert ways is not None and [[s.name for s in way] for way in ways.values()] == [["most", "v"]]
    assert not read_by_others(pair, n, ways)
    assert ways_between(named(module, "p"), n) == {}
