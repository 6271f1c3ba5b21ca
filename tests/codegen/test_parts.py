"""Reductions that several blocks share: which are, that they give what one block gives, and again at the next
launch."""

from __future__ import annotations

import ctypes
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import hlo_opt
from hlo_opt.analysis.targets import target
from hlo_opt.codegen import emit_kernel
from hlo_opt.codegen.lanes import may_spread
from hlo_opt.codegen.threads import is_ordered
from hlo_opt.plans import Plan
from hlo_opt.runtime.host.library import HostLibrary, has_compiler

H100 = target("h100_sxm")
COMBINERS = """HloModule m

add {
  x = KIND[] parameter(0)
  y = KIND[] parameter(1)
  ROOT z = KIND[] add(x, y)
}

most {
  x = KIND[] parameter(0)
  y = KIND[] parameter(1)
  ROOT z = KIND[] maximum(x, y)
}

best {
  a = KIND[] parameter(0)
  i = s32[] parameter(1)
  b = KIND[] parameter(2)
  j = s32[] parameter(3)
  g = pred[] compare(a, b), direction=GT
  e = pred[] compare(a, b), direction=EQ
  l = pred[] compare(i, j), direction=LT
  f = pred[] and(e, l)
  t = pred[] or(g, f)
  v = KIND[] select(t, a, b)
  k = s32[] select(t, i, j)
  ROOT r = (KIND[], s32[]) tuple(v, k)
}

"""
SUM = """ENTRY e {
  p = KIND[A,R,C] parameter(0)
  z = KIND[] constant(INIT)
  n = KIND[A,R,C] negate(p)
  s = KIND[A,C] reduce(n, z), dimensions={1}, to_apply=add
  t = KIND[A,C] reduce(n, z), dimensions={1}, to_apply=most
  u = KIND[A,C] subtract(s, t)
  ROOT r = (KIND[A,C], KIND[A,R,C]) tuple(u, n)
}
"""
ADD = """ENTRY e {
  p = KIND[A,R,C] parameter(0)
  z = KIND[] constant((1, -1))
  ROOT s = KIND[A,C] reduce(p, z), dimensions={1}, to_apply=add
}
"""
ARGMAX = """ENTRY e {
  p = KIND[A,R,C] parameter(0)
  w = KIND[] constant(-7)
  i = s32[] constant(0)
  n = s32[A,R,C] iota(), iota_dimension=1
  ROOT s = (KIND[A,C], s32[A,C]) reduce(p, n, w, i), dimensions={1}, to_apply=best
}
"""


def text(body: str, a: int, r: int, c: int, *, kind: str = "f32", init: int = 0) -> str:
    """A module with sizes filled in: rows where `c` is 1, else columns."""
    made = (COMBINERS if body is not ADD else COMBINERS[: COMBINERS.index("most")]) + body
    for old, new in (("[A,R,C]", f"[{a},{r},{c}]"), ("[A,C]", f"[{a},{c}]"), ("KIND", kind), ("INIT", str(init))):
        made = made.replace(old, new)
    return made


def planned(tool: Any, module: str) -> Plan:
    found: Plan = tool.plan(module)
    return found


@pytest.mark.parametrize(
    ("sizes", "kind", "parts"),
    [
        ((1, 1 << 26, 1), "row-reduction", 264),
        ((3, 1 << 20, 1), "row-reduction", 64),
        ((200, 1 << 20, 1), "row-reduction", 1),
        ((1, 32767, 1), "row-reduction", 1),
        ((1, 32768, 1), "row-reduction", 2),
        ((1, 1 << 20, 64), "column-reduction", 256),
        ((1, 4096, 4096), "column-reduction", 8),
        ((140, 64, 66), "column-reduction", 1),
    ],
)
def test_which_are_shared(planner: Any, sizes: tuple[int, int, int], kind: str, parts: int) -> None:
    found = planned(planner, text(ARGMAX if kind == "" else SUM, *sizes))
    (segment,) = found.segments
    assert (segment.kind, segment.part.parts, found.launch.grid % parts) == (kind, parts, 0)


def test_results_that_all_threads_need_are_not(planner: Any) -> None:
    body = """ENTRY e {
  p = KIND[A,R,C] parameter(0)
  z = KIND[] constant(INIT)
  s = KIND[A,C] reduce(p, z), dimensions={1}, to_apply=most
  b = KIND[A,R,C] broadcast(s), dimensions={0,2}
  ROOT d = KIND[A,R,C] subtract(p, b)
}
"""
    (segment,) = planned(planner, text(body, 1, 1 << 20, 1)).segments
    assert segment.part.parts == 1
    last = "  ROOT t = KIND[A,C] reduce(d, z), dimensions={1}, to_apply=add\n"
    two = body.replace("ROOT d", "d").replace("\n}\n", f"\n{last}}}\n")
    (segment,) = planned(planner, text(two, 1, 1 << 20, 1)).segments
    assert (segment.part.parts, len(segment.part.levels)) == (1, 2)


SIZES = [
    (1, 65536, 1),
    (1, 98304, 1),
    (1, 262147, 1),
    (3, 131101, 1),
    (2, 40000, 3),
    (1, 33000, 7),
    (1, 9001, 40),
    (1, 70001, 2),
]


def test_they_agree(tool: Any) -> None:
    texts = [text(SUM, *sizes, init=init) for sizes in SIZES for init in (0, 3)]
    texts += [text(ARGMAX, *sizes) for sizes in SIZES]
    texts += [
        text(SUM, *sizes, kind=kind) for sizes in ((1, 131072, 1), (1, 20000, 8)) for kind in ("s32", "f64", "u16")
    ]
    texts += [text(ADD, *sizes, kind=kind) for sizes in ((1, 131072, 1), (1, 20000, 8)) for kind in ("c64", "c128")]
    assert sum(any(getattr(s.part, "parts", 1) > 1 for s in planned(tool, t).segments) for t in texts) >= len(texts) - 4
    tool.all_agree(texts)


@pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")
def test_neighbouring_threads_leave_parts_of_columns_side_by_side(planner: Any) -> None:
    """One part would else be a sector of its own, eight times what is read."""
    source = emit_kernel(planned(planner, text(SUM, 1, 1 << 16, 1000))).source
    places = re.findall(r"const int i\d+ = (.*);", source)
    assert places and all("+ lane" in place and "lane *" not in place for place in places)


def test_every_launch_begins_at_zero(planner: Any) -> None:
    module = hlo_opt.parse(text(SUM, 2, 70000, 1))
    executable = hlo_opt.compile(module, backend="host")
    for seed in range(3):
        given = np.random.default_rng(seed).integers(-4, 4, (2, 70000, 1)).astype(np.float32)
        got = executable(given)
        np.testing.assert_array_equal(got[0], (-given).sum(1) - (-given).max(1))


@pytest.mark.parametrize("architecture", ["sm_80", "sm_100"])
def test_nvrtc_reads_the_texts(planner: Any, architecture: str) -> None:
    nvrtc = pytest.importorskip("cupy.cuda").nvrtc
    for body, kind in ((SUM, "f32"), (SUM, "s8"), (ARGMAX, "bf16"), (SUM, "f64"), (ADD, "c64"), (ADD, "c128")):
        for sizes in ((1, 1 << 20, 1), (2, 8192, 512)):
            found = planned(planner, text(body, *sizes, kind=kind))
            program = nvrtc.createProgram(emit_kernel(found).source, "k.cu", (), ())
            nvrtc.compileProgram(program, (f"-arch={architecture}", "-fmad=false"))


TOTALS = """HloModule m

add {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] add(x, y)
}

ENTRY e {
  p = f32[SIZE] parameter(0)
  z = f32[] constant(0)
  ROOT r = f32[LEFT] reduce(p, z), dimensions={0}, to_apply=add
}
"""


@pytest.mark.parametrize(("size", "left"), [("1000003", ""), ("20000,40", "40")])
def test_blocks_may_run_on_several_processors_in_any_order(size: str, left: str, planner: Any) -> None:
    """Each launch of pieces uses the memory that all processors see; a whole launch, its thread's own."""
    if not has_compiler():
        pytest.skip("no C++ compiler")
    kernel = planner.kernel(TOTALS.replace("SIZE", size).replace("LEFT", left))
    grid = kernel.launch.grid
    assert is_ordered(kernel) and may_spread(kernel) and grid > 8 and len(kernel.inputs) == 1
    given = np.random.default_rng(3).normal(size=kernel.inputs[0].dimensions).astype(np.float32)
    library = HostLibrary([kernel])
    launcher = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_longlong, ctypes.c_longlong)(
        library.address(kernel)
    )

    def launched(pieces: list[tuple[int, int]]) -> np.ndarray:
        made = np.full(kernel.outputs[0].dimensions, np.nan, np.float32)
        pointers = (ctypes.c_void_p * 2)(given.ctypes.data, made.ctypes.data)
        with ThreadPoolExecutor(4) as pool:
            assert not any(pool.map(lambda piece: launcher(pointers, *piece), pieces))
        return made

    whole = launched([(0, grid)])
    np.testing.assert_allclose(whole, given.astype(np.float64).sum(axis=0), rtol=1e-4, atol=1e-2)
    for _ in range(3):
        for pieces in ([(grid // 2, grid), (0, grid // 2)], [(k, k + 1) for k in reversed(range(grid))]):
            assert launched(pieces).tobytes() == whole.tobytes()
    assert launched([(0, grid)]).tobytes() == whole.tobytes()


def test_sums_that_meet_in_the_output_stay_in_order(planner: Any) -> None:
    text = """HloModule m
add { x = f32[] parameter(0) y = f32[] parameter(1) ROOT z = f32[] add(x, y) }
ENTRY e {
  p = f32[10] parameter(0)
  i = s32[500,1] parameter(1)
  u = f32[500] parameter(2)
  ROOT s = f32[10] scatter(p, i, u), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add
}
"""
    kernel = planner.kernel(text)
    assert is_ordered(kernel) and not may_spread(kernel)
