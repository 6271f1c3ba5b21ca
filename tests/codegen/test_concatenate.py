"""Concatenates taken apart: which regions are, and that every element lands where it belongs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hlo_opt.plans.plan import Segment
from tests.small_modules import H100


def joined(sizes: list[int], *, major: int = 3, minor: int = 5, layout: str = "{2,1,0}", kind: str = "f32") -> str:
    """An entry that concatenates arrays of these sizes along the middle dimension, and adds something of the result's
    shape."""
    total = sum(sizes)
    lines = [f"  p{n} = {kind}[{major},{size},{minor}]{layout} parameter({n})" for n, size in enumerate(sizes)]
    names = ", ".join(f"p{n}" for n in range(len(sizes)))
    shape = f"{kind}[{major},{total},{minor}]{layout}"
    lines += [
        f"  q = {shape} parameter({len(sizes)})",
        f"  c = {shape} concatenate({names}), dimensions={{1}}",
        f"  ROOT a = {shape} add(c, q)",
    ]
    return "HloModule m\n\nENTRY e {\n" + "\n".join(lines) + "\n}\n"


def segments(tool: Any, text: str) -> list[Segment]:
    return list(tool.plan(text).segments)


@pytest.mark.parametrize(
    ("sizes", "pieces"),
    [
        ([4, 4], [((0, 4), (4, 4))]),
        ([1] * 16, [tuple((k, 1) for k in range(16))]),
        ([2] * 5, [((2 * k, 2),) for k in range(5)]),
        ([1, 7], [((0, 1),), ((1, 7),)]),
        ([3, 0, 3], [((0, 3), (3, 3))]),
        ([1] * 17, None),
        ([5, 0], None),
    ],
)
def test_pieces(planner: Any, sizes: list[int], pieces: list[Any] | None) -> None:
    found = segments(planner, joined(sizes))
    assert [s.kind for s in found] == (["loop"] if pieces is None else ["concatenate"] * len(pieces))
    if pieces is not None:
        assert [s.part.pieces for s in found] == pieces


def test_no_thread_asks_where_it_is(planner: Any) -> None:
    assert "if (" not in planner.kernel(joined([4, 4, 4], major=1, minor=1)).source.split(") {\n", 1)[1]
    assert " % 8" in planner.kernel(joined([1] * 20)).source or "== 0" in planner.kernel(joined([1] * 20)).source


SIZES = [[1, 1], [0, 3], [1, 2, 3], [127, 129], [64, 64], [5, 5, 5, 5, 5], [1] * 7, [13, 1], [2, 2, 2]]


def test_they_agree(tool: Any) -> None:
    texts = [joined(s, major=a, minor=b) for s in SIZES for a, b in ((1, 1), (3, 5))]
    texts += [joined(s, layout=layout) for s in ([4, 4], [3, 2]) for layout in ("{1,2,0}", "{0,1,2}", "{2,0,1}")]
    texts += [joined([3, 3], kind=kind) for kind in ("s8", "bf16", "f64", "c64", "u16")]
    tool.all_agree(texts)


STACK = """HloModule m

ENTRY e {
  p = f32[300]{0} parameter(0)
  q = f32[300,3]{1,0} parameter(1)
  s = f32[300]{0} sine(p)
  c = f32[300]{0} multiply(s, s)
  a = f32[300,1]{1,0} reshape(p)
  b = f32[300,1]{1,0} reshape(s)
  d = f32[300,1]{1,0} reshape(c)
  j = f32[300,3]{1,0} concatenate(a, b, d), dimensions={1}
  r = f32[300,3]{1,0} multiply(j, q)
  f = f32[900]{0} reshape(j)
  n = f32[900]{0} negate(f)
  ROOT t = (f32[300,3]{1,0}, f32[900]{0}) tuple(r, n)
}
"""


def test_what_pieces_share_is_computed_once(tool: Any) -> None:
    (segment,) = segments(tool, STACK)
    assert segment.kind == "concatenate" and segment.roots == (0, 1) and segment.blocks == 3
    assert tool.kernel(STACK).source.count("sinf(") == 1
    tool.agrees(STACK, relative=1e-6)


def test_concatenates_of_one_shape_are_taken_apart_together(tool: Any) -> None:
    text = """HloModule m

ENTRY e {
  p = f32[3,4]{1,0} parameter(0)
  q = f32[3,8]{1,0} parameter(1)
  a = f32[3,12]{1,0} concatenate(p, q), dimensions={1}
  b = f32[3,12]{1,0} concatenate(q, p), dimensions={1}
  ROOT s = f32[3,12]{1,0} subtract(a, b)
}
"""
    (segment,) = segments(tool, text)
    assert segment.part.pieces == ((0, 4), (4, 4), (8, 4))
    tool.agrees(text)


@pytest.mark.parametrize(
    "body",
    [
        # at another place
        "  t = f32[12,3]{1,0} transpose(a), dimensions={1,0}\n  ROOT r = f32[12,3]{1,0} negate(t)\n",
        # no output of its size
        "  z = f32[] constant(0)\n  ROOT r = f32[3]{0} reduce(a, z), dimensions={1}, to_apply=add\n",
        # two along two dimensions
        "  b = f32[3,12]{1,0} concatenate(u, v), dimensions={0}\n  ROOT r = f32[3,12]{1,0} add(a, b)\n",
    ],
)
def test_others_are_not(tool: Any, body: str) -> None:
    text = (
        "HloModule m\n\nadd {\n  x = f32[] parameter(0)\n  y = f32[] parameter(1)\n  ROOT z = f32[] add(x, "
        "y)\n}\n\nENTRY e {\n"
        "  p = f32[3,4]{1,0} parameter(0)\n  q = f32[3,8]{1,0} parameter(1)\n  u = f32[1,12]{1,0} parameter(2)\n  v = "
        "f32[2,12]{1,0} parameter(3)\n"
        f"  a = f32[3,12]{{1,0}} concatenate(p, q), dimensions={{1}}\n{body}}}\n"
    )
    assert "concatenate" not in tool.plan(text).kind
    tool.agrees(text, whole=True)


def test_large_pieces_move_several_elements_together(planner: Any) -> None:
    (segment,) = segments(planner, joined([512, 512], major=16, minor=128))
    assert segment.vector == 4 and segment.blocks == 16 * 512 * 128 // 4 // 128
    odd = segments(planner, joined([511, 512], major=16, minor=127))
    assert [(s.kind, s.vector) for s in odd] == [("loop", 4)]


PAIRS = """HloModule m

ENTRY e {{
  x = {t}[{n},2] parameter(0)
  c = {t}[{n}] parameter(1)
  l = {t}[{n},1] slice(x), slice={{[0:{n}], [0:1]}}
  r = {t}[{n},1] slice(x), slice={{[0:{n}], [1:2]}}
  a = {t}[{n}] reshape(l)
  b = {t}[{n}] reshape(r)
  ac = {t}[{n}] multiply(a, c)
  bc = {t}[{n}] multiply(b, c)
  d = {t}[{n}] subtract(ac, b)
  s = {t}[{n}] add(bc, a)
  ds = {t}[{n},1] reshape(d)
  ss = {t}[{n},1] reshape(s)
  ROOT j = {t}[{n},2] concatenate(ds, ss), dimensions={{1}}
}}
"""


@pytest.mark.parametrize("t", ["f32", "bf16"])
def test_pairs_agree(tool: Any, t: str) -> None:
    few = replace(tool, target=replace(H100, core_count=1))
    text = PAIRS.format(t=t, n=12_000)
    assert [(s.kind, s.vector) for s in segments(few, text)] == [("concatenate", 2 if t == "f32" else 4)]
    few.agrees(text)
    few.agrees(PAIRS.format(t=t, n=12_001))


@pytest.mark.parametrize("architecture", ["sm_80", "sm_100"])
def test_nvrtc_reads_the_texts(planner: Any, architecture: str) -> None:
    nvrtc = pytest.importorskip("cupy.cuda").nvrtc
    large = joined([512, 512], major=16, minor=128, kind="bf16")
    for text in (STACK, large, joined([1, 7]), joined([4, 4], kind="f16")):
        program = nvrtc.createProgram(planner.kernel(text).source, "k.cu", (), ())
        nvrtc.compileProgram(program, (f"-arch={architecture}", "-fmad=false"))


def test_the_text_of_a_small_one(planner: Any) -> None:
    source = planner.kernel(joined([2, 2], major=1, minor=1)).source
    assert source[source.index(" {\n") :] == TEXT


TEXT = """ {
  const int linear = blockIdx.x * 2 + threadIdx.x;
  const float x0 = in0[linear];
  const float x2 = in2[linear];
  const float add_4 = x0 + x2;
  const float x1 = in1[linear];
  const float x2_2 = in2[linear + 2];
  const float add_4_2 = x1 + x2_2;
  out0[linear] = add_4;
  out0[linear + 2] = add_4_2;
}
"""


@pytest.mark.parametrize("kind", ["bf16", "s8"])
@pytest.mark.parametrize("sizes", [(97, 33, 3), (64, 32), (16, 5)])
def test_narrow_pieces_of_all_sizes(kind: str, sizes: tuple[int, ...], tool: Any) -> None:
    rows = 8192  # enough for vectors
    lines = [f"  p{n} = {kind}[{rows},{size}]{{1,0}} parameter({n})\n" for n, size in enumerate(sizes)]
    names = ", ".join(f"p{n}" for n in range(len(sizes)))
    root = f"  ROOT c = {kind}[{rows},{sum(sizes)}]{{1,0}} concatenate({names}), dimensions={{1}}\n"
    tool.agrees(f"HloModule m\n\nENTRY e {{\n{''.join(lines)}{root}}}\n")
