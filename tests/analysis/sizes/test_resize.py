"""Modules at other sizes: what follows a dimension, and what is refused, with the pages of the codes."""

from __future__ import annotations

import pytest

import hlo_opt
from hlo_opt.analysis.sizes import size_specs
from hlo_opt.analysis.sizes.resize import SizeRequest, Ties, tie
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
    return tie(hlo_opt.parse(text), [SizeRequest.of(request) for request in requests])


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


def only(body: str, request: str = "p0:0=..24", size: int = 12, dimensions: str = "12") -> Ties:
    """The ties of a module of one parameter `x`, and what the body does with it."""
    text = f"HloModule m\nENTRY e {{\n  x = f32[{dimensions}] parameter(0)\n  zero = f32[] constant(0)\n{body}\n}}\n"
    found = ties_of(text, request)
    assert found.size == size
    return found


def shapes(found: Ties, size: int) -> dict[str, str]:
    module = found.at(size)
    hlo_opt.verify(module)
    return {i.name: ",".join(map(str, i.shape.dimensions)) for i in module.entry.instructions}


@pytest.mark.parametrize(
    ("part", "size", "wanted"),
    [
        ("f32[1] slice(x), slice={[11:12]}", 5, "[4:5]"),
        ("f32[3] slice(x), slice={[9:12]}", 5, "[2:5]"),
        ("f32[3] slice(x), slice={[0:3]}", 5, "[0:3]"),
        ("f32[11] slice(x), slice={[1:12]}", 5, "[1:5]"),
        ("f32[11] slice(x), slice={[0:11]}", 5, "[0:4]"),
        ("f32[10] slice(x), slice={[1:11]}", 5, "[1:4]"),
        ("f32[2] slice(x), slice={[9:11]}", 5, "[2:4]"),
        ("f32[6] slice(x), slice={[0:12:2]}", 8, "[0:8:2]"),
        ("f32[3] slice(x), slice={[1:12:4]}", 8, "[1:8:4]"),
    ],
)
def test_bounds_of_slices_count_from_the_nearer_end(part: str, size: int, wanted: str) -> None:
    found = only(f"  ROOT s = {part}")
    hlo_opt.verify(found.at(size))
    assert f"slice={{{wanted}}}" in str(found.at(size))


def test_parts_of_one_size_share_what_follows() -> None:
    body = "\n".join(f"  part{k} = f32[4] slice(x), slice={{[{4 * k}:{4 * k + 4}]}}" for k in range(3))
    found = only(f"{body}\n  ROOT t = (f32[4], f32[4], f32[4]) tuple(part0, part1, part2)")
    assert found.sizes == (3, 6, 9, 12, 15, 18, 21, 24) and found.range == "3 to 24 in steps of 3"
    assert [f"slice={{[{2 * k}:{2 * k + 2}]}}" in str(found.at(6)) for k in range(3)] == [True] * 3


def test_a_concatenate_says_how_long_its_parts_are() -> None:
    """As where random words are drawn in two halves, and what they are used for says how many."""
    found = only(
        "  i = f32[12] iota(), iota_dimension=0\n"
        "  a = f32[6] slice(i), slice={[0:6]}\n  b = f32[6] slice(i), slice={[6:12]}\n"
        "  n = f32[6] negate(a)\n  m = f32[6] negate(b)\n  j = f32[12] concatenate(n, m), dimensions={0}\n"
        "  ROOT s = f32[12] add(x, j)"
    )
    assert found.sizes == tuple(range(2, 25, 2))
    assert {name: shapes(found, 8)[name] for name in "iabnmj"} == dict(zip("iabnmj", "844448", strict=True))


def test_blocks_hold_at_their_multiples() -> None:
    found = only("  ROOT b = f32[3,4] reshape(x)")
    assert found.sizes == (4, 8, 12, 16, 20, 24) and shapes(found, 20)["b"] == "5,4"
    with pytest.raises(UsageError, match="whole"):
        found.check(10)
    assert found.dimensions([(20,)]) == 20
    with pytest.raises(UsageError, match="4 to 24 in steps of 4"):
        found.dimensions([(10,)])


def test_a_split_gives_the_size_to_the_dimension_that_is_it() -> None:
    found = only("  f = f32[24] reshape(x)\n  ROOT b = f32[2,12] reshape(f)", "p0:1=..24", 12, "2,12")
    assert shapes(found, 5) == {"x": "2,5", "zero": "", "f": "10", "b": "2,5"}


def test_windows_follow() -> None:
    add = "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT s = f32[] add(a, b)\n}\n"
    text = (
        f"HloModule m\n{add}ENTRY e {{\n  x = f32[12] parameter(0)\n  zero = f32[] constant(0)\n"
        "  c = f32[12] reduce-window(x, zero), window={size=12 pad=11_0}, to_apply=add\n"
        "  s = f32[12] reduce-window(x, zero), window={size=3 pad=1_1}, to_apply=add\n"
        "  h = f32[6] reduce-window(x, zero), window={size=2 stride=2}, to_apply=add\n"
        "  ROOT t = (f32[12], f32[12], f32[6]) tuple(c, s, h)\n}\n"
    )
    found = ties_of(text, "p0:0=..24")
    assert found.sizes == tuple(range(2, 25, 2)) and shapes(found, 8)["h"] == "4"
    assert "window={size=8 pad=7_0}" in str(found.at(8)) and "window={size=3 pad=1_1}" in str(found.at(8))


def test_without_a_least_size_it_is_the_first_that_holds() -> None:
    assert only("  ROOT s = f32[3] slice(x), slice={[0:3]}").least == 3
    with pytest.raises(UsageError) as caught:
        only("  ROOT s = f32[3] slice(x), slice={[0:3]}", "p0:0=1..24")
    assert caught.value.code == "SIZ105"


def test_calls_by_element_are_followed() -> None:
    call = 'custom-call(k, k, c, c), custom_call_target="cu_threefry2x32_ffi"'
    found = ties_of(
        "HloModule m\nENTRY e {\n  c = u32[6,2] parameter(0)\n  k = u32[] parameter(1)\n"
        f"  ROOT t = (u32[6,2], u32[6,2]) {call}\n}}\n",
        "p0:0",
    )
    assert str(found.at(4).entry.root.shape.without_layout()) == "(u32[4,2], u32[4,2])"


@pytest.mark.parametrize("text", ["p0", "q0:0", "p0:0=3", "p0:0=5..2", "p0:0=0..0", "p0:0=1..99999", "p9:0", "p0:7"])
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
    if spec.code in ("SIZ111", "SIZ113"):
        ties = Sized.of(module, requests).original
        assert [text for _, text in ties.frozen + ties.read] == [
            {"SIZ111": "1/4", "SIZ113": "[9:10] of 10 is [n - 1:n] of n"}[spec.code]
        ]
        return
    with pytest.raises(UsageError) as caught:
        sized = Sized.of(module, requests)
        sized.family(hlo_opt.fuse(sized.module)[0], "h100_sxm")
    assert caught.value.code == spec.code
