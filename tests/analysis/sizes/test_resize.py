"""Modules at other sizes: what follows a dimension, and what is refused, with the pages of the codes."""

from __future__ import annotations

import pytest

import hlo_opt
from hlo_opt.analysis.sizes import size_specs
from hlo_opt.analysis.sizes.resize import Dynamic, Ties, tie
from hlo_opt.cli.sizes import Sized
from hlo_opt.diag import UsageError

BLOCK = """
HloModule m

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

ENTRY e {
  x = f32[6,4]{1,0} parameter(0)
  w = f32[4,3]{1,0} parameter(1)
  labels = s32[6]{0} parameter(2)
  table = f32[9,3]{1,0} parameter(3)
  zero = f32[] constant(0)
  ones = f32[6,3]{1,0} constant({{1,1,1},{1,1,1},{1,1,1},{1,1,1},{1,1,1},{1,1,1}})
  d = f32[6,3]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  rows = f32[6,3]{1,0} gather(table, labels), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,3}
  t = f32[6,3]{1,0} add(d, rows)
  u = f32[6,3]{1,0} multiply(t, ones)
  flat = f32[18]{0} reshape(u)
  back = f32[6,3]{1,0} reshape(flat)
  most = f32[5,3]{1,0} slice(back), slice={[1:6], [0:3]}
  padded = f32[7,3]{1,0} pad(most, zero), padding=1_1x0_0
  both = f32[13,3]{1,0} concatenate(padded, u), dimensions={0}
  turned = f32[3,13]{0,1} transpose(both), dimensions={1,0}
  total = f32[3]{0} reduce(turned, zero), dimensions={1}, to_apply=add
  ROOT r = (f32[3,13]{0,1}, f32[3]{0}) tuple(turned, total)
}
"""


def ties_of(text: str, *requests: str) -> Ties:
    return tie(hlo_opt.parse(text), [Dynamic.of(request) for request in requests])


def test_all_that_is_tied_follows() -> None:
    found = ties_of(BLOCK, "p0:0=2..9")
    assert found.parameters == ["p0:0", "p2:0"]
    assert (found.size, found.least, found.most) == (6, 2, 9)
    module = found.at(4)
    hlo_opt.verify(module)
    shapes = {i.name: str(i.shape.without_layout()) for i in module.entry.instructions}
    assert shapes["flat"] == "f32[12]" and shapes["most"] == "f32[3,3]" and shapes["both"] == "f32[9,3]"
    assert shapes["r"] == "(f32[3,9], f32[3])" and shapes["table"] == "f32[9,3]" and shapes["ones"] == "f32[4,3]"


def test_it_is_the_module_at_its_own_size() -> None:
    found = ties_of(BLOCK, "p0:0")
    before, after = found.module, found.at(6)
    assert [str(i.shape) for i in after.entry.instructions] == [str(i.shape) for i in before.entry.instructions]


def test_a_dimension_inside_follows_as_well() -> None:
    """Rows that are joined and split again would be ambiguous: the first dimension of a split takes the size."""
    flat = "  flat = f32[18]{0} reshape(u)\n  back = f32[6,3]{1,0} reshape(flat)\n"
    assert flat in BLOCK
    found = ties_of(BLOCK.replace(flat, "  back = f32[6,3]{1,0} copy(u)\n"), "p1:1=1..5")
    assert found.parameters == ["p1:1", "p3:1"]
    assert str(found.at(5).entry.root.shape.without_layout()) == "(f32[5,13], f32[5])"


def test_the_size_of_inputs() -> None:
    found = ties_of(BLOCK, "p0:0=2..9")
    shapes = [(4, 4), (4, 3), (4,), (9, 3)]
    assert found.dimensions(shapes) == 4
    for wrong in ([(5, 4), *shapes[1:]], [(10, 4), (4, 3), (10,), (9, 3)]):
        with pytest.raises(UsageError, match="the inputs have size"):
            found.dimensions(wrong)


def test_loops_and_fusions_are_followed_into() -> None:
    found = ties_of(
        """
HloModule m
body {
  s = (s32[], f32[8]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  v = f32[8]{0} get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  n = f32[8]{0} negate(v)
  ROOT t = (s32[], f32[8]{0}) tuple(j, n)
}
test {
  s = (s32[], f32[8]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  ten = s32[] constant(10)
  ROOT c = pred[] compare(i, ten), direction=LT
}
ENTRY e {
  v = f32[8]{0} parameter(0)
  zero = s32[] constant(0)
  s = (s32[], f32[8]{0}) tuple(zero, v)
  w = (s32[], f32[8]{0}) while(s), condition=test, body=body
  ROOT r = f32[8]{0} get-tuple-element(w), index=1
}
""",
        "p0:0",
    )
    module = found.at(3)
    hlo_opt.verify(module)
    assert "[8]" not in str(module)


def test_a_bound_in_the_text_is_the_range() -> None:
    text = "HloModule m\nENTRY e {\n  p = f32[<=8]{0} parameter(0)\n  ROOT n = f32[<=8]{0} negate(p)\n}\n"
    found = ties_of(text, "p0:0")
    assert (found.least, found.most) == (1, 8)
    assert "f32[5]{0} negate" in str(found.at(5))


@pytest.mark.parametrize("text", ["p0", "q0:0", "p0:0=3", "p0:0=5..2", "p0:0=0..4", "p0:0=1..99999", "p9:0", "p0:7"])
def test_requests_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="--dynamic"):
        ties_of(BLOCK, text)


def test_several_dimensions_are_one_size() -> None:
    assert ties_of(BLOCK, "p0:0", "p2:0").parameters == ["p0:0", "p2:0"]
    with pytest.raises(UsageError, match="two sizes") as caught:
        ties_of(BLOCK, "p0:0", "p1:0")
    assert caught.value.code == "SIZ106"


def of_page(example: str) -> tuple[hlo_opt.Module, list[str]]:
    first, _, text = example.partition("\n")
    return hlo_opt.parse(text), first.removeprefix("// dynamic: ").split()


@pytest.mark.parametrize("spec", size_specs().values(), ids=lambda s: s.code)
def test_the_example_of_each_page_is_refused_for_it(spec) -> None:
    assert spec.page and spec.template and spec.hint
    if not spec.example:
        return
    module, requests = of_page(spec.example)
    if spec.code == "SIZ111":
        assert [text for _, text in Sized.of(module, requests).original.frozen] == ["1/4"]
        return
    with pytest.raises(UsageError) as caught:
        sized = Sized.of(module, requests)
        sized.family(hlo_opt.fuse(sized.module)[0], "h100_sxm")
    assert caught.value.code == spec.code
