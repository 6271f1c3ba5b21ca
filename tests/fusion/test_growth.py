"""What is kept up while fusions grow equals what is computed of the grown fusion at once."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hlo_opt
from hlo_opt.analysis.graph.cluster import Cluster, cluster_of
from hlo_opt.analysis.targets import target
from hlo_opt.analysis.xla.heroes import heroes_of
from hlo_opt.analysis.xla.performance import Priced, fused_estimate
from hlo_opt.fusion import legality, state
from hlo_opt.fusion.context import FuseOptions, PassContext
from hlo_opt.fusion.engine import Engine
from hlo_opt.fusion.outline import remove_uncalled_of
from hlo_opt.fusion.state import FusionState
from hlo_opt.ir import Instruction, Module, edit
from hlo_opt.plans import choose

H100 = target("h100_sxm")
SUM = "sum {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n"
WIDE, TALL, ROW, SMALL = "f32[64,96]{1,0}", "f32[96,64]{1,0}", "f32[64]{0}", "f32[7,96]{1,0}"

TEMPLATES = (
    (WIDE, "negate(%{0})", (WIDE,)),
    (WIDE, "exponential(%{0})", (WIDE,)),
    (WIDE, "add(%{0}, %{1})", (WIDE, WIDE)),
    (WIDE, "multiply(%{0}, %{0})", (WIDE,)),
    (WIDE, "select(%mask, %{0}, %{1})", (WIDE, WIDE)),
    (TALL, "transpose(%{0}), dimensions={{1,0}}", (WIDE,)),
    (WIDE, "transpose(%{0}), dimensions={{1,0}}", (TALL,)),
    (TALL, "abs(%{0})", (TALL,)),
    (ROW, "reduce(%{0}, %zero), dimensions={{1}}, to_apply=sum", (WIDE,)),
    (ROW, "reduce(%{0}, %zero), dimensions={{0}}, to_apply=sum", (TALL,)),
    (ROW, "sqrt(%{0})", (ROW,)),
    (WIDE, "broadcast(%{0}), dimensions={{0}}", (ROW,)),
    (SMALL, "slice(%{0}), slice={{[3:10], [0:96]}}", (WIDE,)),
    (SMALL, "cosine(%{0})", (SMALL,)),
    (WIDE, "dynamic-update-slice(%{0}, %{1}, %at, %at)", (WIDE, SMALL)),
    (SMALL, "dynamic-slice(%{0}, %at, %at), dynamic_slice_sizes={{7,96}}", (WIDE,)),
    (WIDE, "concatenate(%{0}, %{0}, %{0}, %{0}, %{0}, %{0}, %{0}, %{0}, %{0}, %last), dimensions={{0}}", (SMALL,)),
    (WIDE, "copy(%{0})", (WIDE,)),
    (WIDE, "bitcast(%{0})", (WIDE,)),
)


@st.composite
def modules(draw: st.DrawFn) -> str:
    """Random operations on a few shapes; everything that nothing reads is returned."""
    pools = {WIDE: ["wide", "table"], TALL: ["tall"], ROW: ["row"], SMALL: ["small"]}
    lines: list[str] = []
    unread: dict[str, str] = {}
    for number in range(draw(st.integers(3, 14))):
        made, text, wanted = draw(st.sampled_from(TEMPLATES))
        names = [draw(st.sampled_from(pools[shape][-5:])) for shape in wanted]
        lines.append(f"  %v{number} = {made} {text.format(*names)}")
        for name in names:
            unread.pop(name, None)
        unread[f"v{number}"] = made
        pools[made].append(f"v{number}")
    shapes = ", ".join(unread.values())
    body = "\n".join(lines)
    return f"""HloModule m

{SUM}
ENTRY e {{
  %wide = {WIDE} parameter(0)
  %tall = {TALL} parameter(1)
  %row = {ROW} parameter(2)
  %small = {SMALL} parameter(3)
  %mask = pred[64,96]{{1,0}} parameter(4)
  %at = s32[] parameter(5)
  %last = f32[1,96]{{1,0}} parameter(6)
  %zero = f32[] constant(0)
  %table = {WIDE} constant({{...}})
{body}
  ROOT %r = ({shapes}) tuple({", ".join(f"%{n}" for n in unread)})
}}
"""


def same_shape(grown: Cluster, made: Cluster) -> None:
    assert list(grown.inputs) == list(made.inputs)
    assert {n.instruction for n in grown.members} == {n.instruction for n in made.members}
    assert [r.instruction for r in grown.roots] == [r.instruction for r in made.roots]
    assert grown.opcodes == made.opcodes
    assert {n.instruction for n in grown.notable} == {n.instruction for n in made.notable}
    of = {n.instruction: n for n in made.members} | made.inputs
    for node in [*grown.members, *grown.inputs.values()]:
        assert [o.instruction for o in node.operands] == [o.instruction for o in of[node.instruction].operands]
        assert {u.instruction for u in node.users} == {u.instruction for u in of[node.instruction].users}
    before: set[object] = set(grown.inputs.values())
    for node in grown.members:
        assert before.issuperset(node.operands)
        before.add(node)


def same_price(grown: Priced, made: Priced) -> None:
    assert grown.reads == made.reads
    assert list(grown.reads) == list(made.reads)
    for name in ("flops", "code_size", "written", "constant_bytes"):
        assert getattr(grown.usage, name) == getattr(made.usage, name), name
    for instruction, node in made.cluster.inputs.items():
        other = grown.cluster.inputs[instruction]
        assert grown.usage.utilization[other] == made.usage.utilization[node]
        assert grown.usage.emitted[other] == made.usage.emitted[node]
    assert grown.moves == made.moves
    assert grown.is_plain == made.is_plain
    assert grown.writes_reduction == made.writes_reduction
    assert grown.form == made.form
    assert grown.estimate == made.estimate


def same_facts(grown: FusionState, made: FusionState, fusion: Instruction) -> None:
    here, there = grown.below(fusion), made.below(fusion)
    left, right = grown.cluster(fusion), made.cluster(fusion)
    for operand in left.inputs:
        assert grown.emissions(fusion).of(operand) == made.emissions(fusion).of(operand)
        one, other = left.inputs[operand], right.inputs[operand]
        for name in ("reusing", "reusing_once_per_row", "enlarging"):
            assert (getattr(here, name).get(one) is None) == (getattr(there, name).get(other) is None), name
    assert [h.instruction for h in heroes_of(left)] == [h.instruction for h in heroes_of(right)]


def same_merged(state: FusionState, producer: Instruction, consumer: Instruction) -> None:
    """The estimate of a pair, from what is known of both and from both made anew."""
    fresh = fused_estimate(Priced(producer, H100), Priced(consumer, H100))
    assert state.fused_by_xla(producer, consumer) == fresh


@settings(max_examples=60, deadline=None)
@given(modules(), st.randoms(use_true_random=False))
def test_a_grown_fusion_is_what_it_would_be_at_once(text: str, random: object) -> None:
    module = hlo_opt.parse(text)
    engine = Engine(module, PassContext(FuseOptions(H100)))
    state = engine.state
    module.entry.index_users()
    inside: set[Instruction] = set()
    for _ in range(8):
        edges = [
            (producer, consumer)
            for consumer in module.entry.instructions
            for producer in dict.fromkeys(consumer.operands)
            if consumer.opcode != "tuple" and producer.opcode not in ("parameter", "tuple")
        ]
        if not edges:
            return
        for producer, consumer in edges:
            same_merged(state, producer, consumer)
        producer, consumer = edges[random.randrange(len(edges))]  # type: ignore[attr-defined]
        engine.fuse(producer, consumer)
        fresh = FusionState(module, H100)
        for fusion in [i for i in module.entry.instructions if i.opcode == "fusion"]:
            inside.add(fusion)
            same_shape(state.cluster(fusion), cluster_of(fusion))
            same_price(state.priced_by_xla(fusion), Priced(fusion, H100))
            if fresh.lowering(fusion) is None:  # else the passes would not have made it
                assert state.prices.of(fusion) == fresh.prices.of(fusion)
            same_facts(state, fresh, fusion)
    assert inside
    verify(module)


@settings(max_examples=60, deadline=None)
@given(modules(), st.randoms(use_true_random=False))
def test_what_is_known_of_a_producer_goes_on_in_a_consumer_of_which_nothing_was_asked(
    text: str, random: object
) -> None:
    module = hlo_opt.parse(text)
    engine = Engine(module, PassContext(FuseOptions(H100)))
    state = engine.state
    module.entry.index_users()
    with patch("hlo_opt.analysis.graph.cluster.WORTH_KEEPING", 1):
        for _ in range(8):
            edges = [
                (producer, consumer)
                for consumer in module.entry.instructions
                for producer in dict.fromkeys(consumer.operands)
                if consumer.opcode != "tuple" and producer.opcode not in ("parameter", "tuple")
            ]
            if not edges:
                break
            producer, consumer = edges[random.randrange(len(edges))]  # type: ignore[attr-defined]
            for ask in (state.priced_by_xla, state.prices.of, state.emissions, state.below):
                if random.random() < 0.5:  # type: ignore[attr-defined]
                    ask(producer)
            engine.fuse(producer, consumer)
    fresh = FusionState(module, H100)
    for fusion in [i for i in module.entry.instructions if i.opcode == "fusion"]:
        same_shape(state.cluster(fusion), cluster_of(fusion))
        same_price(state.priced_by_xla(fusion), Priced(fusion, H100))
        if fresh.lowering(fusion) is None:
            assert state.prices.of(fusion) == fresh.prices.of(fusion)
        same_facts(state, fresh, fusion)


def test_a_large_producer_is_not_gone_over_again_in_a_small_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    size = 200
    module = hlo_opt.parse(chain(size))
    engine = Engine(module, PassContext(FuseOptions(H100)))
    module.entry.index_users()
    *chained, producer, consumer = [i for i in module.entry.instructions if i.opcode != "parameter"]
    for above in reversed(chained):
        engine.state.priced_by_xla(producer)
        producer = engine.fuse(above, producer)
    engine.state.priced_by_xla(producer)
    sizes: list[int] = []

    def counting(instruction: Instruction) -> Cluster:
        made = cluster_of(instruction)
        sizes.append(made.size)
        return made

    monkeypatch.setattr(state, "cluster_of", counting)
    fusion = engine.fuse(producer, consumer)
    same_price(engine.state.priced_by_xla(fusion), Priced(fusion, H100))
    assert sizes == [1]


def test_a_fusion_that_takes_a_value_twice_gives_up_both_operands() -> None:
    text = f"""HloModule m

body {{
  one = {WIDE} parameter(0)
  two = {WIDE} parameter(1)
  ROOT s = {WIDE} add(one, two)
}}

ENTRY e {{
  x = {WIDE} parameter(0)
  n = {WIDE} negate(x)
  ROOT f = {WIDE} fusion(n, n), kind=kLoop, calls=body
}}
"""
    module = hlo_opt.parse(text)
    engine = Engine(module, PassContext(FuseOptions(H100)))
    module.entry.index_users()
    negate, two = (i for i in module.entry.instructions if i.opcode != "parameter")
    fusion = engine.fuse(negate, two)
    assert [o.name for o in fusion.operands] == ["x"]
    verify(module)
    assert sorted(i.opcode for i in fusion.called_by("calls").instructions) == ["add", "negate", "parameter"]


def verify(module: Module) -> None:
    remove_uncalled_of(module, list(module.computations))
    for computation in module.computations:
        edit.sort(computation)
    edit.sort_computations(module)
    hlo_opt.verify(hlo_opt.parse(str(module)))


def chain(size: int) -> str:
    lines = [f"  v{n + 1} = {WIDE} negate(v{n})" for n in range(size)]
    return (
        f"HloModule m\n\nENTRY e {{\n  v0 = {WIDE} parameter(0)\n"
        + "\n".join(lines)
        + f"\n  ROOT r = {WIDE} abs(v{size})\n}}\n"
    )


@pytest.mark.parametrize(("size", "kernels"), [(36, 1), (60, 2)])
def test_a_kernel_stops_growing_before_it_is_too_large(
    size: int, kernels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(legality, "LARGEST", 40)
    monkeypatch.setattr(choose, "values_computed", lambda region: len(region.computation.instructions))
    monkeypatch.setattr(choose, "LARGEST", 40)
    fused, decisions = hlo_opt.fuse(hlo_opt.parse(chain(size)), passes="instruction-fusion")
    assert sum(i.opcode == "fusion" for i in fused.entry.instructions) == kernels
    codes = {reason.code for decision in decisions for reason in decision.reasons}
    assert ("FUS306" in codes) == (kernels > 1)
