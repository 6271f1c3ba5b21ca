"""Tiled transposes on the host, against the NumPy meaning."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hlo_opt.analysis.targets import InLanes
from hlo_opt.codegen.lanes import as_loops
from hlo_opt.ir import ELEMENT_TYPES

TYPES = ("pred", "s8", "u8", "bf16", "f16", "s16", "f32", "s32", "u32", "f64", "s64", "u64", "c64", "c128")


def text_of(sizes: Sequence[int], element_type: str = "f32") -> str:
    return f"{element_type}[{','.join(map(str, sizes))}]{{{','.join(str(d) for d in reversed(range(len(sizes))))}}}"


def transpose(sizes: Sequence[int], order: Sequence[int], element_type: str = "f32") -> str:
    made = [sizes[d] for d in order]
    return f"""HloModule m
ENTRY e {{
  p = {text_of(sizes, element_type)} parameter(0)
  ROOT t = {text_of(made, element_type)} transpose(p), dimensions={{{",".join(map(str, order))}}}
}}
"""


def kinds(tool: Any, texts: Sequence[str]) -> set[str]:
    return {tool.plan(text).kind for text in texts}


def test_sizes_around_the_edges_of_tiles(tool: Any) -> None:
    edges = (16, 31, 32, 33, 63, 64, 65, 127)
    texts = [transpose((a, b), (1, 0)) for a, b in zip(edges, edges[3:] + edges[:3], strict=True)]
    texts += [transpose((3, a, 33), (0, 2, 1)) for a in (17, 64)]
    texts += [transpose((33, 5, 40), (2, 1, 0)), transpose((20, 3, 2, 40), (3, 1, 2, 0)), transpose((9, 1031), (1, 0))]
    assert kinds(tool, texts) == {"tiled-transpose"}
    tool.all_agree(texts)


def test_the_fastest_dimension_stays(tool: Any) -> None:
    cases = [(33, 40, 2, "f32"), (65, 31, 8, "s8"), (70, 17, 4, "bf16"), (31, 64, 1, "f64"), (40, 33, 3, "s16")]
    texts = [transpose((a, b, c), (1, 0, 2), t) for a, b, c, t in cases]
    texts.append(transpose((5, 33, 40, 2), (0, 2, 1, 3)))
    assert kinds(tool, texts) == {"tiled-transpose"}
    tool.all_agree(texts)


def test_neighbours_wider_than_a_bank_stay_together(tool: Any) -> None:
    texts = [transpose((33, 40, 3), (1, 0, 2)), transpose((65, 31, 3), (1, 0, 2), "f64")]
    assert kinds(tool, texts) == {"tiled-transpose"}
    odd = [transpose((33, 40, 31), (1, 0, 2), "s8"), transpose((40, 35, 17), (1, 0, 2), "bf16")]  # no whole words
    assert kinds(tool, odd) == {"tiled-transpose"}
    tool.all_agree(odd)
    short = [transpose((65, 2, 3), (1, 0, 2)), transpose((33, 40, 8), (1, 0, 2))]  # sectors are whole there
    assert kinds(tool, short) == {"loop"}
    tool.all_agree([*texts, *short])


def test_a_processor_moves_neighbours_without_tiles(planner: Any) -> None:
    """A row of neighbours is one access of a loop; from a tile, lanes move each element by itself."""
    lanes = replace(planner, target=InLanes.of(planner.target))
    texts = [transpose((333, 400, 3), (1, 0, 2)), transpose((330, 400, 31), (1, 0, 2), "s8")]
    assert kinds(planner, texts) == {"tiled-transpose"} and kinds(lanes, texts) == {"loop"}
    assert kinds(lanes, [transpose((333, 400), (1, 0))]) == {"tiled-transpose"}


def test_a_processor_ends_its_loops_at_edges(planner: Any) -> None:
    """Under a condition every access of its vectors has a mask, also those of tiles that are whole."""
    lanes = replace(planner, target=InLanes.of(planner.target))
    for kind in ("f32", "bf16"):  # one by one: two narrow elements of each lane would be gathered
        text = as_loops(lanes.kernel(transpose((2000, 2040), (1, 0), kind)))
        assert text is not None and text.count("hlo_lane < hlo_inside;") == text.count("hlo_lane < 32;") == 2
        loops = text.split("#pragma omp simd")[1:]
        assert len(loops) == 4 and not any("if (" in loop.split("\n}\n")[0] for loop in loops)
        assert lanes.plan(transpose((2048, 2048), (1, 0), kind)).segments[0].vector == 1


def test_a_reshape_of_another_order_is_a_move(tool: Any) -> None:
    """As JAX writes a transpose between two reshapes: of keys for a product, and back."""
    keys = """HloModule m
ENTRY e {
  x = bf16[2,70,120]{2,1,0} parameter(0)
  s = bf16[2,70,3,40]{3,2,1,0} reshape(x)
  t = bf16[2,3,40,70]{2,1,3,0} transpose(s), dimensions={0,2,3,1}
  ROOT r = bf16[6,40,70]{2,1,0} reshape(t)
}
"""
    back = """HloModule m
ENTRY e {
  x = f32[70,120]{1,0} parameter(0)
  r = f32[70,3,40]{0,2,1} reshape(x)
  ROOT n = f32[70,3,40]{0,2,1} negate(r)
}
"""
    assert kinds(tool, [keys, back]) == {"tiled-transpose"}
    tool.all_agree([keys, back])


def test_types(tool: Any) -> None:
    texts = [transpose((35, 66), (1, 0), t) for t in TYPES]
    assert kinds(tool, texts) == {"tiled-transpose"}
    tool.all_agree(texts)


def test_small_ones_and_empty_ones_are_loops(tool: Any) -> None:
    sizes = [(15, 64), (64, 7), (1, 64), (0, 64), (64, 0), (1, 1)]
    texts = [transpose(s, (1, 0)) for s in sizes] + [transpose((40, 2, 50), (0, 1, 2))]
    assert kinds(tool, texts) == {"loop"}
    tool.all_agree(texts)


def test_a_view_in_another_layout(tool: Any) -> None:
    texts = [
        f"""HloModule m
ENTRY e {{
  p = {t}[{a},{b}]{{1,0}} parameter(0)
  turned = {t}[{b},{a}]{{0,1}} bitcast(p)
  q = {t}[{b}]{{0}} parameter(1)
  beside = {t}[{b},{a}]{{1,0}} broadcast(q), dimensions={{0}}
  ROOT r = {t}[{b},{a}]{{1,0}} maximum(turned, beside)
}}
"""
        for a, b, t in ((40, 33, "f32"), (65, 70, "bf16"), (64, 128, "s8"))
    ]
    assert kinds(tool, texts) == {"tiled-transpose"}
    tool.all_agree(texts)


def test_a_copy_to_another_layout(tool: Any) -> None:
    text = "HloModule m\nENTRY e {\n  p = f32[70,40]{1,0} parameter(0)\n  ROOT c = f32[70,40]{0,1} copy(p)\n}\n"
    assert tool.plan(text).kind == "tiled-transpose"
    tool.agrees(text)


def test_what_leads_to_it_what_follows_and_what_goes_along(tool: Any) -> None:
    """Two transposes of the same sizes; an operand in the order of the result; an output in the order of the operand,
    one in other dimensions."""
    text = """HloModule m
ENTRY e {
  p = f32[70,33]{1,0} parameter(0)
  q = f32[33,70]{1,0} parameter(1)
  k = s8[70,33]{1,0} parameter(2)
  n = f32[70,33]{1,0} negate(p)
  m = f32[70,33]{1,0} convert(k)
  both = f32[70,33]{1,0} add(n, m)
  t = f32[33,70]{1,0} transpose(n), dimensions={1,0}
  u = s8[33,70]{1,0} transpose(k), dimensions={1,0}
  v = f32[33,70]{1,0} convert(u)
  s = f32[33,70]{1,0} add(t, q)
  o = f32[33,70]{1,0} multiply(s, v)
  flat = f32[3,11,70]{2,1,0} reshape(o)
  ROOT r = (f32[3,11,70]{2,1,0}, f32[70,33]{1,0}, f32[33,70]{1,0}) tuple(flat, both, s)
}
"""
    (segment,) = tool.plan(text).segments
    assert (segment.kind, len(segment.part.tiled), segment.roots) == ("tiled-transpose", 2, (0, 1, 2))
    source = tool.kernel(text).source
    assert (
        source.count("in0[") == source.count("in2[") == 1
    )  # both transposes and the output beside them share the reads
    tool.agrees(text, whole=True)


def test_square_plus_its_transpose(tool: Any) -> None:
    text = """HloModule m
ENTRY e {
  p = f32[65,65]{1,0} parameter(0)
  t = f32[65,65]{1,0} transpose(p), dimensions={1,0}
  s = f32[65,65]{1,0} add(t, p)
  d = f32[65,65]{1,0} subtract(p, t)
  n = f32[65,65]{1,0} negate(p)
  ROOT r = (f32[65,65]{1,0}, f32[65,65]{1,0}, f32[65,65]{1,0}) tuple(s, d, n)
}
"""
    assert tool.plan(text).kind == "tiled-transpose"
    tool.agrees(text)


def test_a_transpose_that_is_read_elsewhere_too(tool: Any) -> None:
    """A reversed read does not come out of the tile of the block that writes it."""
    text = """HloModule m
ENTRY e {
  p = f32[40,33]{1,0} parameter(0)
  t = f32[33,40]{1,0} transpose(p), dimensions={1,0}
  v = f32[33,40]{1,0} reverse(t), dimensions={0}
  s = f32[33,40]{1,0} add(t, v)
  g = f32[3,40]{1,0} slice(t), slice={[2:5], [0:40]}
  ROOT r = (f32[33,40]{1,0}, f32[33,40]{1,0}, f32[3,40]{1,0}) tuple(s, v, g)
}
"""
    assert {s.kind: s.roots for s in tool.plan(text).segments if s.kind != "loop"} == {"tiled-transpose": (0,)}
    tool.agrees(text)


def test_two_descriptions_and_a_reduction_in_one_launch(tool: Any) -> None:
    text = """HloModule m
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
ENTRY e {
  p = f32[40,64]{1,0} parameter(0)
  q = f32[100,33]{1,0} parameter(1)
  z = f32[] constant(0)
  t = f32[64,40]{1,0} transpose(p), dimensions={1,0}
  u = f32[33,100]{1,0} transpose(q), dimensions={1,0}
  s = f32[33]{0} reduce(q, z), dimensions={0}, to_apply=add
  ROOT r = (f32[64,40]{1,0}, f32[33,100]{1,0}, f32[33]{0}) tuple(t, u, s)
}
"""
    assert sorted(s.kind for s in tool.plan(text).segments) == [
        "column-reduction",
        "tiled-transpose",
        "tiled-transpose",
    ]
    tool.agrees(text, whole=True)


def ordered(sizes: Sequence[int], order: Sequence[int], element_type: str = "f32") -> str:
    return f"{element_type}[{','.join(map(str, sizes))}]{{{','.join(map(str, order))}}}"


def test_the_transpose_as_jax_writes_it(tool: Any) -> None:
    """`x.T + y`: the transpose is another name for x, and what lies in another order than the result is y."""
    text = """HloModule m
ENTRY e {
  x = f32[65,40]{1,0} parameter(0)
  y = f32[40,65]{1,0} parameter(1)
  t = f32[40,65]{0,1} transpose(x), dimensions={1,0}
  ROOT a = f32[40,65]{ORDER} add(t, y)
}
"""
    for order, tiled in (("0,1", "y"), ("1,0", "t")):
        (segment,) = tool.plan(text.replace("ORDER", order)).segments
        assert segment.kind == "tiled-transpose" and [i.name for i in segment.part.tiled] == [tiled]
        tool.agrees(text.replace("ORDER", order), whole=True)


def test_an_output_in_the_order_of_the_operand_goes_along(tool: Any) -> None:
    text = """HloModule m
ENTRY e {
  x = f32[100,70]{0,1} parameter(0)
  y = f32[100,70]{1,0} parameter(1)
  a = f32[100,70]{1,0} add(x, y)
  n = f32[100,70]{0,1} negate(x)
  ROOT t = (f32[100,70]{1,0}, f32[100,70]{0,1}) tuple(a, n)
}
"""
    (segment,) = tool.plan(text).segments
    assert (segment.kind, segment.roots) == ("tiled-transpose", (0, 1))
    assert tool.kernel(text).source.count("in0[") == 1
    tool.agrees(text, whole=True)


@st.composite
def orders(draw: st.DrawFn) -> str:
    """Two arrays in any orders, one of them perhaps transposed, and two results in any orders."""
    rank = draw(st.integers(2, 3))
    sizes = [draw(st.sampled_from([1, 3, 16, 33, 40])) for _ in range(rank)]
    lies = [draw(st.permutations(range(rank))) for _ in range(5)]
    moved = draw(st.permutations(range(rank)))
    given = [0] * rank
    for n, d in enumerate(moved):
        given[d] = sizes[n]
    kind = draw(st.sampled_from(["f32", "bf16", "f64", "u8"]))
    return f"""HloModule m
ENTRY e {{
  x = {ordered(given, lies[0], kind)} parameter(0)
  y = {ordered(sizes, lies[1], kind)} parameter(1)
  d = {ordered(given, lies[0], kind)} add(x, x)
  t = {ordered(sizes, lies[2], kind)} transpose(d), dimensions={{{",".join(map(str, moved))}}}
  a = {ordered(sizes, lies[3], kind)} add(t, y)
  n = {ordered(sizes, lies[4], kind)} multiply(y, y)
  ROOT r = ({ordered(sizes, lies[3], kind)}, {ordered(sizes, lies[4], kind)}) tuple(a, n)
}}
"""


@settings(
    max_examples=2,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(texts=st.lists(orders(), min_size=20, max_size=20))
def test_random_orders(tool: Any, texts: list[str]) -> None:
    tool.all_agree(texts)


def test_tiles_that_find_no_room_are_read_directly(tool: Any) -> None:
    lines = [f"  p{k} = c128[33,40]{{1,0}} parameter({k})" for k in range(4)]
    lines += [f"  t{k} = c128[40,33]{{1,0}} transpose(p{k}), dimensions={{1,0}}" for k in range(4)]
    lines += ["  a = c128[40,33]{1,0} add(t0, t1)", "  b = c128[40,33]{1,0} add(t2, t3)"]
    text = "HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n  ROOT s = c128[40,33]{1,0} add(a, b)\n}\n"
    found = tool.plan(text)
    assert len(found.segments[0].part.tiled) == 2 and found.launch.shared_bytes == 2 * 32 * 33 * 16
    tool.agrees(text, whole=True)


@st.composite
def transposes(draw: st.DrawFn) -> str:
    rank = draw(st.integers(2, 4))
    sizes = [draw(st.sampled_from([1, 2, 3, 16, 31, 32, 33, 65])) for _ in range(rank)]
    while math.prod(sizes) > 20_000:
        sizes[sizes.index(max(sizes))] = 2
    order = draw(st.permutations(range(rank)))
    return transpose(sizes, order, draw(st.sampled_from(TYPES)))


@settings(
    max_examples=2,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(texts=st.lists(transposes(), min_size=20, max_size=20))
def test_random_transposes(tool: Any, texts: list[str]) -> None:
    tool.all_agree(texts)


def narrow(kind: str, rows: int, columns: int, more: str = "") -> str:
    root = more or f"  ROOT r = {kind}[{columns},{rows}]{{1,0}} transpose(p), dimensions={{1,0}}\n"
    return f"HloModule m\n\nENTRY e {{\n  p = {kind}[{rows},{columns}]{{1,0}} parameter(0)\n{root}}}\n"


@pytest.mark.parametrize(
    ("kind", "rows", "columns", "vector"),
    [
        ("bf16", 1024, 1024, 2),
        ("f16", 1024, 1026, 2),
        ("bf16", 1024, 1025, 1),
        ("bf16", 64, 64, 1),
        ("s8", 2048, 2048, 4),
        ("pred", 2048, 2052, 4),
        ("u8", 2046, 2050, 2),
        ("s8", 100_000, 64, 2),
        ("f32", 2048, 2048, 1),
    ],
)
def test_narrow_elements_move_together(planner: Any, kind: str, rows: int, columns: int, vector: int) -> None:
    found = planner.plan(narrow(kind, rows, columns))
    (segment,) = found.segments
    side = 32 * vector
    assert (segment.kind, segment.vector) == ("tiled-transpose", vector)
    assert found.launch.grid == -(-rows // side) * -(-columns // side)
    assert found.launch.shared_bytes == side * (side + 1) * ELEMENT_TYPES[kind].bytes


def test_narrow_elements_land_where_they_belong(tool: Any) -> None:
    cases = [
        ("bf16", 770, 1026),
        ("f16", 1024, 768),
        ("s8", 1540, 1668),
        ("pred", 1536, 1536),
        ("u16", 98, 9002),
        ("u8", 1026, 1154),
    ]
    texts = [narrow(*case) for case in cases]
    for kind in ("bf16", "s8"):
        texts.append(
            narrow(
                kind,
                1540,
                1668,
                f"  a = {kind}[1540,1668]{{1,0}} add(p, p)\n  t = {kind}[1668,1540]{{1,0}} transpose(a), "
                f"dimensions={{1,0}}\n"
                f"  n = {kind}[1668,1540]{{1,0}} negate(t)\n"
                f"  ROOT r = ({kind}[1668,1540]{{1,0}}, {kind}[1540,1668]{{1,0}}) tuple(n, a)\n",
            )
        )
    assert all(tool.plan(t).segments[0].vector > 1 for t in texts)
    tool.all_agree(texts)


def test_narrow_elements_are_one_access(planner: Any) -> None:
    nvrtc = pytest.importorskip("cupy.cuda").nvrtc
    for kind, access in (("bf16", "v2.u16"), ("s8", "v4.u8")):
        program = nvrtc.createProgram(planner.kernel(narrow(kind, 2048, 2048)).source, "k.cu", (), ())
        nvrtc.compileProgram(program, ("-arch=compute_90", "-fmad=false"))
        made = nvrtc.getPTX(program)
        machine = made if isinstance(made, str) else made.decode()
        accesses = re.findall(r"(?:ld|st)\.global(?:\.nc)?\.(\S+)", machine)
        assert set(accesses) == {access}


@pytest.mark.parametrize(
    ("kind", "rows", "columns", "warps"),
    [
        ("u8", 3001, 2999, 2),
        ("bf16", 3001, 2999, 2),
        ("f32", 3001, 2999, 1),
        ("u8", 3004, 3000, 1),
        ("u8", 501, 499, 1),
    ],
)
def test_two_warps_move_a_row_of_narrow_elements(planner: Any, kind: str, rows: int, columns: int, warps: int) -> None:
    (segment,) = planner.plan(transpose((rows, columns), (1, 0), kind)).segments
    assert segment.part.frame.warps == warps
    assert segment.part.frame.side == 32 * warps * segment.vector


def test_rows_of_two_warps_land_where_they_belong(tool: Any) -> None:
    tool.all_agree([transpose((3001, 2999), (1, 0), "u8"), transpose((2, 1501, 3001), (0, 2, 1), "bf16")])
