"""Instructions and kernels that differ in names only have one number."""

import hlo_opt
from hlo_opt.analysis.graph.cluster import cluster_of
from hlo_opt.analysis.graph.structure import Members, Structures, shared_operands

TEXT = """\
HloModule m

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

also_sum {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] add(x, y)
}

largest {
  x.1 = f32[] parameter(0)
  y.1 = f32[] parameter(1)
  ROOT z.1 = f32[] maximum(x.1, y.1)
}

body {
  p0 = f32[64]{0} parameter(0)
  n0 = f32[64]{0} negate(p0)
  ROOT m0 = f32[64]{0} multiply(n0, p0)
}

same_body {
  p1 = f32[64]{0} parameter(0)
  n1 = f32[64]{0} negate(p1), metadata={op_name="other"}
  ROOT m1 = f32[64]{0} multiply(n1, p1)
}

other_body {
  p2 = f32[64]{0} parameter(0)
  n2 = f32[64]{0} negate(p2)
  ROOT m2 = f32[64]{0} multiply(n2, n2)
}

ENTRY e {
  p = f32[64]{0} parameter(0)
  zero = f32[] constant(0)
  nought = f32[] constant(0)
  one = f32[] constant(1)
  r1 = f32[] reduce(p, zero), dimensions={0}, to_apply=sum, metadata={op_name="here"}
  r2 = f32[] reduce(p, zero), dimensions={0}, to_apply=also_sum
  r3 = f32[] reduce(p, zero), dimensions={0}, to_apply=largest
  f1 = f32[64]{0} fusion(p), kind=kLoop, calls=body
  f2 = f32[64]{0} fusion(p), kind=kLoop, calls=same_body
  f3 = f32[64]{0} fusion(p), kind=kLoop, calls=other_body
  ROOT t = (f32[], f32[], f32[], f32[64]{0}, f32[64]{0}, f32[64]{0}) tuple(r1, r2, r3, f1, f2, f3)
}
"""


def test_names_and_metadata_do_not_count_but_what_is_called_does():
    by_name = {i.name: i for i in hlo_opt.parse(TEXT).entry.instructions}
    members = Members(Structures())
    of = {name: members.of(by_name[name]) for name in ("r1", "r2", "r3", "zero", "nought", "one", "f1", "f2", "f3")}
    assert of["r1"] == of["r2"] != of["r3"]
    assert of["zero"] == of["nought"] != of["one"]
    assert of["f1"] == of["f2"] != of["f3"]


def test_a_copy_of_a_module_has_the_same_numbers():
    structures = Structures()
    one, other = ({i.name: Members(structures).of(i) for i in hlo_opt.parse(TEXT).entry.instructions} for _ in range(2))
    assert one == other


def test_what_kernels_hold():
    by_name = {i.name: i for i in hlo_opt.parse(TEXT).entry.instructions}
    members = Members(Structures())
    bodies = [members.of_body(by_name[name].called_by("calls")) for name in ("f1", "f2", "f3")]
    clusters = [members.of_cluster(cluster_of(by_name[name])) for name in ("f1", "f2", "f3")]
    assert bodies[0] == bodies[1] != bodies[2]
    assert clusters[0] == clusters[1] != clusters[2]


def test_numbers_are_given_once():
    structures = Structures()
    first = structures.number("first")
    assert structures.number("first") == first
    assert len({first, structures.number("second"), structures.another(), structures.another()}) == 4


def test_where_operands_are_shared():
    by_name = {i.name: i for i in hlo_opt.parse(TEXT).entry.instructions}
    p, zero, r1, r2 = (by_name[n] for n in ("p", "zero", "r1", "r2"))
    assert shared_operands([r1, *r1.operands], [zero, p]) == (-1, 1, 0)
    assert shared_operands([r1], [r2]) == (-1,)


CONSTANTS = """\
HloModule m

ENTRY e {
  a = f32[] constant(1)
  b = f32[] constant(1.0)
  c = f32[] constant(2)
  d = f32[2000]{0} constant({...})
  e = f32[2000]{0} constant({...})
  f = f32[] constant(1), sharding={replicated}, frontend_attributes={k="v"}, backend_config="x"
  ROOT t = (f32[], f32[], f32[], f32[2000]{0}, f32[2000]{0}, f32[]) tuple(a, b, c, d, e, f)
}
"""


def test_constants_count_by_value_and_hints_do_not():
    by_name = {i.name: i for i in hlo_opt.parse(CONSTANTS).entry.instructions}
    members = Members(Structures())
    of = {name: members.of(by_name[name]) for name in "abcdef"}
    assert of["a"] == of["b"] == of["f"] != of["c"]
    assert of["d"] != of["e"]
