"""Instructions of one signature cost the same."""

import hlo_opt
from hlo_opt.analysis.graph.structure import edge_signature, signature
from hlo_opt.analysis.targets import target
from hlo_opt.analysis.xla.performance import Priced, estimate_fusion

TEXT = """\
HloModule m

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY e {
  p = f32[4096]{0} parameter(0)
  q = f32[4096]{0} parameter(1)
  m1 = f32[4096]{0} multiply(p, q), metadata={op_name="one"}
  m2 = f32[4096]{0} multiply(q, p), metadata={op_name="other"}
  a1 = f32[4096]{0} add(m1, p)
  a2 = f32[4096]{0} add(m2, q)
  a3 = f32[4096]{0} add(m1, m2)
  part1 = f32[64]{0} slice(m1), slice={[0:64]}
  part2 = f32[64]{0} slice(m1), slice={[0:128:2]}
  zero = f32[] constant(0)
  r1 = f32[] reduce(a1, zero), dimensions={0}, to_apply=sum
  ROOT t = (f32[4096]{0}, f32[4096]{0}, f32[64]{0}, f32[64]{0}, f32[]) tuple(a2, a3, part1, part2, r1)
}
"""
BY_NAME = {i.name: i for i in hlo_opt.parse(TEXT).entry.instructions}


def of(producer: str, consumer: str) -> object:
    above, below = BY_NAME[producer], BY_NAME[consumer]
    return edge_signature(above, below, signature(above), signature(below))


def test_places_in_the_source_do_not_count():
    assert signature(BY_NAME["m1"]) == signature(BY_NAME["m2"])


def test_attributes_opcodes_and_called_computations_do():
    assert signature(BY_NAME["part1"]) != signature(BY_NAME["part2"])
    assert signature(BY_NAME["a1"]) != signature(BY_NAME["m1"])
    assert signature(BY_NAME["r1"]) is BY_NAME["r1"]
    assert signature(BY_NAME["zero"]) is BY_NAME["zero"]


def test_edges_of_one_signature_cost_the_same():
    device = target("h100_sxm")
    edges = [("m1", "a1"), ("m2", "a2"), ("m1", "a3"), ("m1", "part1"), ("m1", "part2")]
    costs: dict[object, tuple[float, ...]] = {}
    for producer, consumer in edges:
        cost = estimate_fusion(Priced(BY_NAME[producer], device), [Priced(BY_NAME[consumer], device)])
        assert costs.setdefault(of(producer, consumer), cost) == cost
    assert of("m1", "a1") == of("m2", "a2")


def test_which_operands_are_shared_counts():
    assert of("m1", "a1") != of("m1", "a3")
