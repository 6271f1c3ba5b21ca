"""Which kernel became which."""

from __future__ import annotations

from hlo_opt.report.diff.comparison import diff
from hlo_opt.report.diff.kernels import KernelGroup

WHOLE = """HloModule m

part {
  x = f32[4096,256]{1,0} parameter(0)
  a = f32[4096,256]{1,0} tanh(x), metadata={op_name="a" source_file="m.py" source_line=4}
  ROOT b = f32[4096,256]{1,0} negate(a), metadata={op_name="b" source_file="m.py" source_line=5}
}

ENTRY e {
  p = f32[4096,256]{1,0} parameter(0)
  f = f32[4096,256]{1,0} fusion(p), kind=kLoop, calls=part
  ROOT d = f32[4096,4096]{1,0} dot(f, f), lhs_contracting_dims={1}, rhs_contracting_dims={1}
}
"""
APART = """HloModule m

ENTRY e {
  p = f32[4096,256]{1,0} parameter(0)
  a = f32[4096,256]{1,0} tanh(p), metadata={op_name="a" source_file="m.py" source_line=4}
  b = f32[4096,256]{1,0} negate(a), metadata={op_name="b" source_file="m.py" source_line=5}
  ROOT d = f32[4096,4096]{1,0} dot(b, b), lhs_contracting_dims={1}, rhs_contracting_dims={1}
}
"""


def only_group(old: str, new: str) -> KernelGroup:
    (difference,) = diff(old, new, fuse="never").differences
    (group,) = difference.groups
    assert difference.changes == []
    return group


def test_a_kernel_that_split():
    group = only_group(WHOLE, APART)
    assert group.kind == "split" and group.us > 0 and group.bytes > 0
    assert [k.name for k in group.old] == ["f"] and [k.name for k in group.new] == ["a", "b"]
    assert [(s.producer, s.consumer, s.old) for s in group.seams] == [("a", "b", None)]
    assert group.seams[0].new is not None and group.seams[0].new.reasons
    assert group.source.startswith("m.py:")


def test_kernels_that_joined():
    group = only_group(APART, WHOLE)
    assert group.kind == "joined" and group.us < 0
    assert [(s.producer, s.consumer, s.new) for s in group.seams] == [("a", "b", None)]


def test_a_fusion_of_one_operation_is_what_it_holds():
    text = WHOLE.replace("  ROOT b = f32[4096,256]{1,0} negate(a)", "  ROOT b = f32[4096,256]{1,0} copy(a)")
    alone = WHOLE.replace("  a = f32[4096,256]{1,0} tanh(x)", "  ROOT a = f32[4096,256]{1,0} tanh(x)")
    alone = "\n".join(line for line in alone.split("\n") if "negate" not in line)
    plain = APART.replace("dot(b, b)", "dot(a, a)")
    plain = "\n".join(line for line in plain.split("\n") if "negate" not in line)
    assert diff(alone, plain, fuse="never").same
    assert not diff(alone, text, fuse="never").same


def test_a_kernel_of_another_kind_is_told():
    found = diff(WHOLE, WHOLE.replace("kind=kLoop", "kind=kInput"), fuse="never")
    assert [g.kind for d in found.differences for g in d.groups] == ["changed"]


def test_a_value_that_is_computed_again_is_a_kernel_more():
    again = APART.replace(
        "  ROOT d", "  c = f32[4096,256]{1,0} tanh(p)\n  k = f32[4096,256]{1,0} negate(c)\n  ROOT d"
    ).replace("dot(b, b)", "dot(b, k)")
    found = diff(APART, again, fuse="never")
    assert found.counts.added == 0 and found.new.summary.kernels == found.old.summary.kernels + 2
    assert found.differences and found.differences[0].us > 0


def test_kernels_of_a_loop_count_each_round():
    def loop(body: str) -> str:
        return f"""HloModule m

round {{
  s = (s32[], f32[4096,256]{{1,0}}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  x = f32[4096,256]{{1,0}} get-tuple-element(s), index=1
  {body}
  ROOT t = (s32[], f32[4096,256]{{1,0}}) tuple(j, y)
}}

going {{
  s = (s32[], f32[4096,256]{{1,0}}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(50)
  ROOT l = pred[] compare(i, n), direction=LT
}}

ENTRY e {{
  p = f32[4096,256]{{1,0}} parameter(0)
  z = s32[] constant(0)
  s = (s32[], f32[4096,256]{{1,0}}) tuple(z, p)
  ROOT w = (s32[], f32[4096,256]{{1,0}}) while(s), condition=going, body=round
}}
"""

    old, new = (
        loop("y = f32[4096,256]{1,0} tanh(x)"),
        loop("c = f32[4096,256]{1,0} copy(x)\n  y = f32[4096,256]{1,0} tanh(c)"),
    )
    (difference,) = diff(old, new, fuse="never").differences
    (kernel,) = difference.groups[0].new
    assert kernel.rounds == 50 and abs(difference.us - 50 * kernel.us) < 1e-6
    more = old.replace("constant(50)", "constant(70)")
    (difference,) = diff(old, more, fuse="never").differences
    assert difference.changes[0].name == "n" and difference.us > 0
