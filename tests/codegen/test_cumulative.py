"""Cumulative windows: sums, products and others along lines of all lengths, in both directions, with what is fused
before and after."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hlo_opt.codegen.lanes import as_loops, may_spread
from hlo_opt.plans.cumulative import MOST_IN_TURN, ROW_THREADS

TILE = ROW_THREADS * 4
REDUCERS = ("add", "multiply", "maximum", "minimum", "and", "or", "xor")
INITS = {"add": "0", "multiply": "1", "maximum": "-5", "minimum": "5", "and": "-1", "or": "0", "xor": "3"}


def layout(rank: int) -> str:
    return "{" + ",".join(str(d) for d in reversed(range(rank))) + "}"


def window(shape: tuple[int, ...], axis: int, reverse: bool = False) -> str:
    pad = f"0_{shape[axis] - 1}" if reverse else f"{shape[axis] - 1}_0"
    sizes = "x".join(str(n) if d == axis else "1" for d, n in enumerate(shape))
    return f"window={{size={sizes} pad={'x'.join(pad if d == axis else '0_0' for d in range(len(shape)))}}}"


def reducer(kind: str, opcode: str) -> str:
    return f"f {{\n  x = {kind}[] parameter(0)\n  y = {kind}[] parameter(1)\n  ROOT z = {kind}[] {opcode}(x, y)\n}}\n"


def cumulative(
    shape: tuple[int, ...], axis: int, kind: str = "f32", opcode: str = "add", init: str = "", *, reverse: bool = False
) -> str:
    """An entry with one such window."""
    dims = f"[{','.join(map(str, shape))}]{layout(len(shape))}"
    first = f"constant({init or INITS[opcode]})"
    return (
        f"HloModule m\n\n{reducer(kind, opcode)}\nENTRY e {{\n  p = {kind}{dims} parameter(0)\n  i = {kind}[] {first}\n"
        f"  ROOT s = {kind}{dims} reduce-window(p, i), {window(shape, axis, reverse)}, to_apply=f\n}}\n"
    )


def test_rows_of_all_lengths(tool: Any) -> None:
    lengths = (1, 4, 7, 31, 32, 33, 64, 100, 128, 132, 256, 500, TILE - 4, TILE - 1, TILE, TILE + 1, TILE + 4, 3 * TILE)
    texts = [cumulative((rows, n), 1, reverse=rows == 5) for n in lengths for rows in (1, 2, 5)]
    assert all(tool.plan(text).kind == "cumulative" for text in texts[3:])
    tool.all_agree(texts)


def test_rows_that_are_not_aligned(tool: Any) -> None:
    """A thread has what lies between aligned places, also in the rows' first and last vectors."""
    cases = [((3, 129), "f32"), ((7, 130), "f32"), ((5, 257), "bf16"), ((2, 3, 4095), "bf16"), ((1, 601), "f16")]
    texts = [cumulative(shape, len(shape) - 1, kind, opcode) for shape, kind in cases for opcode in ("add", "maximum")]
    assert all(tool.plan(text).segments[0].part.is_peeled for text in texts)
    backward = cumulative((7, 130), 1, reverse=True)
    assert not tool.plan(backward).segments[0].part.is_peeled
    tool.all_agree([*texts, backward])


def test_many_rows(tool: Any) -> None:
    shapes = [(rows, n) for rows in (31, 33, 140, 257) for n in (4, 12, 24, 96, 129, 2 * TILE + 8)]
    tool.all_agree([cumulative(shape, 1, reverse=shape[0] == 33) for shape in shapes])


def test_lines_across_memory(tool: Any) -> None:
    lengths = (4, 7, 31, 33, MOST_IN_TURN * 32 - 1, MOST_IN_TURN * 32, MOST_IN_TURN * 32 + 1, 600)
    shapes = [(n, lines) for n in lengths for lines in (2, 3, 31, 32, 33, 70)] + [(3, 40, 5), (2, 300, 33)]
    texts = [cumulative(s, 0 if len(s) == 2 else 1, reverse=s[1] == 33) for s in shapes]
    assert all(tool.plan(text).kind == "cumulative" for text in texts)
    tool.all_agree(texts)


@pytest.mark.parametrize("kind", ["f32", "f64", "bf16", "f16", "s8", "u8", "s16", "s32", "u32", "s64", "u64", "pred"])
@pytest.mark.sweep
def test_reducers_and_types(kind: str, tool: Any) -> None:
    texts = []
    for opcode in REDUCERS:
        if opcode in ("and", "or", "xor") and kind[0] in "fb":
            continue
        init = INITS[opcode].replace("-", "") if kind[0] == "u" else INITS[opcode]
        init = ("false" if opcode in ("or", "xor", "add") else "true") if kind == "pred" else init
        for shape, axis in (((3, 40), 1), ((2, 300), 1), ((50, 3), 0), ((5,), 0)):
            texts.append(cumulative(shape, axis, kind, opcode, init, reverse=opcode in ("minimum", "or")))
    if kind in ("s8", "u8", "s16", "s32", "u32", "s64", "u64", "pred"):
        tool.all_agree(texts)  # integers wrap
    else:
        tool.all_agree([t for t in texts if "multiply" not in t], relative=1e-2 if kind in ("bf16", "f16") else 1e-6)


def test_complex_numbers(tool: Any) -> None:
    shapes = (((3, 40), 1), ((1, 3000), 1), ((50, 3), 0))
    texts = [cumulative(s, axis, kind, init="(0, 0)") for kind in ("c64", "c128") for s, axis in shapes]
    assert {tool.plan(text).kind for text in texts} == {"cumulative"}
    tool.all_agree(texts)


def test_maxima_hand_on_what_is_no_number(tool: Any) -> None:
    text = cumulative((2, 300), 1, opcode="maximum", init="-inf")
    given = np.arange(600, dtype=np.float32).reshape(2, 300)
    given[1, 77] = np.nan
    (got,) = tool.run(text, [given, np.float32(-np.inf)][:1])
    np.testing.assert_array_equal(got, np.maximum.accumulate(given, axis=1))


def test_narrow_sums_are_kept_in_f32(tool: Any) -> None:
    for shape, axis in (((1, 4096), 1), ((4096, 2), 0)):
        (got,) = tool.run(
            cumulative(shape, axis, "bf16"),
            [np.ones(shape, tool.plan(cumulative(shape, axis, "bf16")).region.inputs[0].type.dtype)],
        )
        want = np.cumsum(np.ones(shape, np.float32), axis).astype(got.dtype)
        np.testing.assert_array_equal(got, want)


AFFINE = """f {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  ac = s32[] multiply(a, c)
  ad = s32[] multiply(a, d)
  s = s32[] add(ad, b)
  ROOT t = (s32[], s32[]) tuple(ac, s)
}
"""
"""Maps x -> a * x + b one after another, which do not commute."""


@pytest.mark.parametrize("order", ["{1,0}", "{0,1}"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_reducer_of_two_that_does_not_commute(order: str, axis: int, reverse: bool, tool: Any) -> None:
    """Maps x -> a * x + b one after another, the first one last: the order of elements must be kept."""
    dims, how = "[36,40]", window((36, 40), axis, reverse)
    text = f"""HloModule m

{AFFINE}
ENTRY e {{
  p = s32{dims}{order} parameter(0)
  q = s32{dims}{order} parameter(1)
  one = s32[] constant(1)
  zero = s32[] constant(0)
  ROOT s = (s32{dims}{order}, s32{dims}{order}) reduce-window(p, q, one, zero), {how}, to_apply=f
}}
"""
    assert tool.plan(text).kind == "cumulative"
    p, q = (np.random.default_rng(k).integers(-9, 9, (36, 40)).astype(np.int32) for k in range(2))
    want_p, want_q = p.copy(), q.copy()
    pa, qa, wp, wq = (np.moveaxis(x, axis, 0) for x in (p, q, want_p, want_q))
    for k in range(len(pa)):
        taken = range(k, len(pa)) if reverse else range(k + 1)
        a, b = np.int32(1) * np.ones_like(pa[0]), np.zeros_like(qa[0])
        for j in taken:
            a, b = a * pa[j], a * qa[j] + b
        wp[k], wq[k] = a, b
    got = tool.run(text, [p, q])
    np.testing.assert_array_equal(got[0], want_p)
    np.testing.assert_array_equal(got[1], want_q)


SUM_AND_MAXIMUM = """f {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] add(x, y)
}

g {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] maximum(x, y)
}

"""

FUSED = f"""HloModule m

{SUM_AND_MAXIMUM}ENTRY e {{
  p = f32[SHAPE]{{1,0}} parameter(0)
  v = f32[ROWS]{{0}} parameter(1)
  i = f32[] parameter(2)
  low = f32[] constant(-inf)
  two = f32[] constant(2)
  twos = f32[SHAPE]{{1,0}} broadcast(two), dimensions={{}}
  m = f32[SHAPE]{{1,0}} multiply(p, twos)
  s = f32[SHAPE]{{1,0}} reduce-window(m, i), WINDOW, to_apply=f
  t = f32[SHAPE]{{1,0}} reduce-window(p, low), WINDOW, to_apply=g
  b = f32[SHAPE]{{1,0}} broadcast(v), dimensions={{0}}
  u = f32[SHAPE]{{1,0}} add(s, b)
  w = f32[SHAPE]{{1,0}} subtract(u, t)
  h = s8[SHAPE]{{1,0}} convert(s)
  flat = f32[FLAT]{{0}} reshape(w)
  ROOT r = (f32[FLAT]{{0}}, f32[SHAPE]{{1,0}}, s8[SHAPE]{{1,0}}, f32[SHAPE]{{1,0}}) tuple(flat, t, h, m)
}}
"""


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_what_is_fused_before_and_after(axis: int, reverse: bool, tool: Any) -> None:
    texts = []
    for shape in ((40, 36), (5, 1100), (33, 7)):
        text = FUSED.replace("SHAPE", ",".join(map(str, shape))).replace("ROWS", str(shape[0]))
        text = text.replace("FLAT", str(shape[0] * shape[1]))
        texts.append(text.replace("WINDOW", window(shape, axis, reverse)))
    for text in texts:
        (segment,) = tool.plan(text).segments
        assert segment.kind == "cumulative" and len(segment.folded) == 2 and len(segment.roots) == 4
    tool.all_agree(texts)


def test_beside_other_segments(tool: Any) -> None:
    """A block is as large as the largest that a segment asks for."""
    text = """HloModule m

f {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] add(x, y)
}

ENTRY e {
  p = f32[9,12]{1,0} parameter(0)
  q = f32[3,5000]{1,0} parameter(1)
  o = f32[64,3]{1,0} parameter(2)
  z = f32[] constant(0)
  s = f32[9,12]{1,0} reduce-window(p, z), window={size=1x12 pad=0_0x11_0}, to_apply=f
  t = f32[3]{0} reduce(q, z), dimensions={1}, to_apply=f
  u = f32[64,3]{1,0} reduce-window(o, z), window={size=64x1 pad=63_0x0_0}, to_apply=f
  n = f32[7]{0} iota(), iota_dimension=0
  ROOT r = (f32[9,12]{1,0}, f32[3]{0}, f32[64,3]{1,0}, f32[7]{0}) tuple(s, t, u, n)
}
"""
    found = tool.plan(text)
    assert sorted(s.kind for s in found.segments) == ["cumulative", "cumulative", "loop", "row-reduction"]
    tool.agrees(text, whole=True)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_nvrtc_reads_the_texts(planner: Any, architecture: str) -> None:
    nvrtc = pytest.importorskip("cupy.cuda").nvrtc
    for kind, opcode in (("f32", "add"), ("bf16", "add"), ("s8", "multiply"), ("pred", "or"), ("u64", "maximum")):
        init = "false" if kind == "pred" else "1"
        for shape, axis in (((300, 16), 1), ((300, 4096), 1), ((300, 100), 0)):
            source = planner.kernel(cumulative(shape, axis, kind, opcode, init)).source
            program = nvrtc.createProgram(source, "k.cu", (), ())
            nvrtc.compileProgram(program, (f"-arch={architecture}", "-fmad=false"))


def test_blocks_run_on_several_processors(planner: Any) -> None:
    for shape, axis in (((300, 4096), 1), ((300, 100), 0), ((300, 16), 1)):
        assert may_spread(planner.kernel(cumulative(shape, axis)))


def of_each_other(shape: tuple[int, int], axis: int, *, reverse: bool = False, apart: bool = False) -> str:
    """A maximum of sums, a sum of both, and their difference; `apart`: the maximum goes the other way."""
    dims = f"f32[{shape[0]},{shape[1]}]{{1,0}}"
    along, other = window(shape, axis, reverse), window(shape, axis, reverse != apart)
    return (
        f"HloModule m\n\n{reducer('f32', 'add')}\n{reducer('f32', 'maximum').replace('f {', 'g {')}\nENTRY e {{\n"
        f"  p = {dims} parameter(0)\n  i = f32[] constant(0)\n  low = f32[] constant(-inf)\n"
        f"  s = {dims} reduce-window(p, i), {along}, to_apply=f\n"
        f"  m = {dims} reduce-window(s, low), {other}, to_apply=g\n  b = {dims} add(m, p)\n"
        f"  t = {dims} reduce-window(b, i), {along}, to_apply=f\n  d = {dims} subtract(t, s)\n"
        f"  ROOT r = ({dims}, {dims}) tuple(d, m)\n}}\n"
    )


def test_windows_of_windows(tool: Any) -> None:
    """The second read a window of the first for each element: n * n steps."""
    shapes = [((3, 40), 1), ((2, 1100), 1), ((300, 7), 0), ((40, 70), 0)]
    texts = [of_each_other(shape, axis, reverse=axis == 0) for shape, axis in shapes]
    for text, (shape, axis) in zip(texts, shapes, strict=True):
        plan = tool.plan(text)
        (segment,) = plan.segments
        assert [[w.name for w in stage] for stage in segment.part.stages] == [["s"], ["m"], ["t"]]
        assert f"< {shape[axis]}; ++s" not in tool.kernel(text).source, "no loop over a whole window"
    tool.all_agree(texts, relative=1e-4)


def test_windows_of_windows_the_other_way(tool: Any) -> None:
    """A maximum from the end of sums from the start needs all of them first: not in the same walk."""
    text = of_each_other((6, 40), 1, apart=True)
    parts = [segment.part for segment in tool.plan(text).segments]
    assert all(len(part.stages) == 1 for part in parts if part.kind == "cumulative")
    tool.all_agree([text], relative=1e-4)


@pytest.mark.parametrize(("shape", "axis"), [((20, 252), 1), ((252, 20), 0), ((300, 64), 0)])
def test_lanes_have_no_loops_inside(shape: tuple[int, int], axis: int, planner: Any) -> None:
    """Compilers make no vectors of a loop over lanes with several loops in it, nor of one under a condition: the loop
    over a thread's neighbours stands around it where lines are side by side, or a thread does something long."""
    text = cumulative(shape, axis)
    result = text[text.index("ROOT s = ") + len("ROOT s = ") :].split(" ", 1)[0]
    text = text.replace("ROOT s", "s").replace(
        "to_apply=f\n}\n", f"to_apply=f\n  ROOT r = {result} exponential(s)\n}}\n"
    )
    loops = as_loops(planner.kernel(text))
    assert loops is not None
    for part in loops.split("#pragma omp simd\n")[1:]:
        depth, inside = 0, []
        for line in part.splitlines():
            inside.append(line)
            depth += line.count("{") - line.count("}")
            if not depth:
                break
        assert not any(line.startswith("for (int s") for line in inside), inside
