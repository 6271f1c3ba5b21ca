"""Edges that the user forbids: no pass joins their ends, everything else is decided around them, and the reason is
FUS505."""

from __future__ import annotations

import pytest
from loops import loop

import hlo_opt
from hlo_opt.diag import UsageError
from hlo_opt.passes import preset_names, run
from hlo_opt.passes.run import Outcome

V = "f32[64]{0}"
CHAIN = f"a = {V} negate(p)\n  b = {V} tanh(a)\n  ROOT c = {V} abs(b)"
SHARED = f"a = {V} tanh(p)\n  b = {V} abs(a)\n  c = {V} negate(a)\n  ROOT t = ({V}, {V}) tuple(b, c)"
BESIDE = f"q = {V} parameter(1)\n  a = {V} tanh(p)\n  b = {V} abs(q)\n  ROOT t = ({V}, {V}) tuple(a, b)"


def fused(lines: str, preset: str = "default", **options) -> Outcome:
    text = f"HloModule m\n\nENTRY e {{\n  p = {V} parameter(0)\n  {lines}\n}}\n"
    return run(hlo_opt.parse(text), preset, **options)


def kernels(outcome: Outcome) -> list[set[str]]:
    """What the fusions of the entry hold, by opcodes."""
    return [
        {i.opcode for i in fusion.called_by("calls").instructions} - {"parameter", "tuple"}
        for fusion in outcome.module.entry.instructions
        if fusion.opcode == "fusion"
    ]


def codes(outcome: Outcome) -> dict[tuple[str, str], set[str]]:
    return {(d.producer, d.consumer): {r.code for r in d.reasons} for d in outcome.decide() if d.reasons}


@pytest.mark.parametrize("preset", preset_names())
def test_no_preset_joins_the_ends_of_a_forbidden_edge(preset: str) -> None:
    assert kernels(fused(CHAIN, preset)) == [{"negate", "tanh", "abs"}]
    apart = fused(CHAIN, preset, forbid=[("%a", "b")])
    assert kernels(apart) == [{"tanh", "abs"}]
    assert list(codes(apart)) == [("a", "b")] and "FUS505" in codes(apart)["a", "b"]
    free = fused(CHAIN, preset, forbid=[("a", "b")], what_if=["FUS505"])
    assert kernels(free) == [{"negate", "tanh", "abs"}] and not codes(free)


@pytest.mark.parametrize("edge", [("b", "c"), ("c", "b")])
def test_kernels_that_read_one_value_stay_apart(edge: tuple[str, str]) -> None:
    passes = "multi-output-fusion{plain-siblings=true,producer-consumer=false}"
    assert kernels(fused(SHARED, passes=passes)) == [{"abs", "negate"}]
    apart = fused(SHARED, passes=passes, forbid=[edge])
    assert kernels(apart) == [] and codes(apart)["b", "c"] == {"FUS505"}


@pytest.mark.parametrize("passes", ["horizontal-loop-fusion", "launch-packing"])
def test_kernels_beside_each_other_stay_apart(passes: str) -> None:
    assert kernels(fused(BESIDE, passes=passes)) == [{"tanh", "abs"}]
    apart = fused(BESIDE, passes=passes, forbid=[("a", "b")])
    assert kernels(apart) == [] and "FUS505" in codes(apart)["a", "b"]


def test_a_copy_that_is_forbidden_is_not_written_by_the_kernel() -> None:
    lines = f"a = {V} tanh(p)\n  b = {V} abs(a)\n  c = {V} copy(b)\n  ROOT t = ({V}, {V}) tuple(b, c)"
    passes = "instruction-fusion{may-duplicate=false},copy-fusion"
    assert kernels(fused(lines, passes=passes)) == [{"tanh", "abs", "copy"}]
    assert kernels(fused(lines, passes=passes, forbid=[("b", "c")])) == [{"tanh", "abs"}]


def test_a_loop_stays_one_where_an_edge_of_its_rounds_is_forbidden() -> None:
    text = loop([V], [f"y = {V} tanh(x1)", f"v = {V} abs(y)"], ["v"])
    module, passes = hlo_opt.parse(text), "instruction-fusion,while-fusion"
    assert not any(i.opcode == "while" for i in run(module, passes=passes).module.entry.instructions)
    apart = run(module, passes=passes, forbid=[("y", "v")])
    assert any(i.opcode == "while" for i in apart.module.entry.instructions)
    assert "FUS505" in codes(apart)["y", "v"]
    free = run(module, passes=passes, forbid=[("y", "v")], what_if=["FUS505"])
    assert not any(i.opcode == "while" for i in free.module.entry.instructions)


def test_an_edge_is_not_both_forced_and_forbidden() -> None:
    with pytest.raises(UsageError, match="a:b cannot be both forced and forbidden"):
        fused(CHAIN, force=[("a", "%b")], forbid=[("%a", "b")])
    with pytest.raises(UsageError, match="there is no instruction 'd'"):
        fused(CHAIN, forbid=[("a", "d")])
