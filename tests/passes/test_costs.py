"""Every edge that one kernel could hold is priced both ways: siblings, elements of a tuple and what goes through a
bitcast too."""

import pytest
from small_modules import H100, module_of

import hlo_opt
from hlo_opt.fusion.decision import FusionDecision
from hlo_opt.fusion.state import FusionState
from hlo_opt.passes.decisions import MemberCosts
from hlo_opt.passes.run import report_on, run

SIBLINGS = """HloModule m

ENTRY e {
  p = f32[4096]{0} parameter(0)
  n = f32[4096]{0} negate(p)
  t = f32[4096]{0} tanh(p)
  ROOT r = (f32[4096]{0}, f32[4096]{0}) tuple(n, t)
}
"""

PAIR = """HloModule m

both {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = f32[] parameter(2)
  d = f32[] parameter(3)
  s = f32[] add(a, c)
  m = f32[] maximum(b, d)
  ROOT r = (f32[], f32[]) tuple(s, m)
}

ENTRY e {
  p = f32[64,64]{1,0} parameter(0)
  zero = f32[] constant(0)
  pair = (f32[64]{0}, f32[64]{0}) reduce(p, p, zero, zero), dimensions={1}, to_apply=both
  sum = f32[64]{0} get-tuple-element(pair), index=0
  most = f32[64]{0} get-tuple-element(pair), index=1
  n = f32[64]{0} negate(sum)
  t = f32[64]{0} tanh(OTHER)
  ROOT r = (f32[64]{0}, f32[64]{0}) tuple(n, t)
}
"""


def edges(text: str, passes: str) -> dict[tuple[str, str], FusionDecision]:
    found = report_on(run(hlo_opt.parse(text), passes=passes, simplify="never"))
    assert all(d.cost is not None for d in found.decisions)
    return {(d.producer, d.consumer): d for d in found.decisions}


@pytest.mark.parametrize("joins", [False, True])
def test_siblings_save_a_launch_and_what_both_read(joins: bool):
    decision = edges(SIBLINGS, f"multi-output-fusion{{plain-siblings={str(joins).lower()}}}")["n", "t"]
    assert decision.fused is joins
    cost = decision.cost
    assert cost is not None and cost.bytes_saved == 4 * 4096 and cost.bytes_unfused == 4 * 4 * 4096
    assert 1.75 <= cost.us_saved < 2.4  # a launch takes 1 us, its ends 0.75, and so much that it waits for memory


@pytest.mark.parametrize(("other", "saved"), [("most", 2 * 4 * 64), ("sum", 4 * 64)])
def test_an_element_that_nobody_else_reads_is_not_written_either(other: str, saved: int):
    decision = edges(PAIR.replace("OTHER", other), "instruction-fusion")["pair", "n"]
    assert decision.cost is not None and decision.cost.bytes_saved == saved


def test_what_is_computed_from_another_element_is_not_handed_on():
    """`n` reads one element of the pair itself, and `h`, which a kernel between makes of the other: the pair must stay
    for that, and be computed again."""
    between = PAIR.replace("n = f32[64]{0} negate(sum)", "h = f32[64]{0} negate(most)\n  n = f32[64]{0} add(sum, h)")
    cost = edges(between.replace("OTHER", "most"), "dce")["pair", "n"].cost
    assert cost is not None and cost.kept and cost.bytes_saved == 4 * 64 - 4 * 64 * 64


def test_edges_of_other_members_have_costs_of_their_own():
    sizes = (64, 4096)
    lines = [f"p{k} = f32[{size}]{{0}} parameter({k})" for k, size in enumerate(sizes)]
    for k, size in enumerate(sizes):
        lines += [
            f"{name}{k} = f32[{size}]{{0}} {opcode}({given}{k})"
            for name, opcode, given in (("a", "negate", "p"), ("b", "tanh", "a"), ("c", "abs", "p"))
        ]
    module = module_of(*lines, "r = f32[] constant(0)")
    of = {i.name: i for i in module.entry.instructions}
    costs = MemberCosts(FusionState(module, H100))
    for k, size in enumerate(sizes):
        cost = costs.of(of[f"a{k}"], of[f"b{k}"])
        assert cost is not None and cost.bytes_saved == 2 * 4 * size and costs.of(of[f"a{k}"], of[f"b{k}"]) is cost
        beside = costs.beside(of[f"a{k}"], of[f"c{k}"])
        assert beside is not None and beside.bytes_saved == 4 * size
    assert costs.of(of["p0"], of["a0"]) is None


TWO_WAYS = """HloModule m

ENTRY e {
  p = f32[4096]{0} parameter(0)
  n = f32[4096]{0} negate(p)
  d = f32[4096]{0} custom-call(n), custom_call_target="library"
  s = f32[4096]{0} add(p, d)
  pair = (f32[4096]{0}, f32[4096]{0}) custom-call(s), custom_call_target="library"
  left = f32[4096]{0} get-tuple-element(pair), index=0
  right = f32[4096]{0} get-tuple-element(pair), index=1
  product = f32[4096]{0} multiply(left, right)
  ROOT r = (f32[4096]{0}, f32[4096]{0}) tuple(n, product)
}
"""


def test_the_dearest_are_pairs_of_kernels_that_could_be_one():
    """`n` and `s` read the same, but `s` needs `n`: no kernel holds both. All others are calls of a library."""
    found = report_on(
        run(
            hlo_opt.parse(TWO_WAYS),
            passes="instruction-fusion, multi-output-fusion{plain-siblings=true}",
            simplify="never",
        )
    )
    assert ("n", "s") in {(d.producer, d.consumer) for d in found.refused}
    assert all(d.cost is None for d in found.refused) and found.dearest == []
