"""Sorts inside blocks: which sorts get a kernel, and that it orders as the table does."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hlo_opt
from hlo_opt.codegen import sort as sort_emitter
from hlo_opt.codegen.lanes import as_loops
from hlo_opt.diag import Reason
from hlo_opt.plans import plan
from hlo_opt.runtime.host.library import has_compiler
from tests.small_modules import H100
from tests.written_kernels import OnlySteps


def sort(
    shape: str,
    types: tuple[str, ...] = ("s32",),
    *,
    along: int = 0,
    layout: str = "",
    compare: str = "compare(a0, b0), direction=LT",
    stable: bool = True,
    root: str = "",
) -> str:
    """An entry that sorts parameters of a shape and of some types; `compare` gives the comparator's result from a0, b0,
    a1, b1, ..."""
    parameters = [
        f"  {side}{k} = {t}[] parameter({2 * k + n})" for k, t in enumerate(types) for n, side in enumerate("ab")
    ]
    arrays = [f"{t}[{shape}]{layout}" for t in types]
    result = arrays[0] if len(types) == 1 else f"({', '.join(arrays)})"
    lines = [f"  p{k} = {a} parameter({k})" for k, a in enumerate(arrays)]
    names = ", ".join(f"p{k}" for k in range(len(types)))
    is_root, flag = ("" if root else "ROOT "), (", is_stable=true" if stable else "")
    lines.append(f"  {is_root}s = {result} sort({names}), dimensions={{{along}}}{flag}, to_apply=less")
    if root:
        lines.append(f"  ROOT {root}")
    less = [*parameters, *(f"  {line}" for line in compare.split("\n")[:-1])]
    less.append(f"  ROOT l = pred[] {compare.splitlines()[-1]}")
    return "HloModule m\n\nless {\n" + "\n".join(less) + "\n}\n\nENTRY e {\n" + "\n".join(lines) + "\n}\n"


TOTAL = "compare(a0, b0), direction=GT, type=TOTALORDER"
LENGTHS = (1, 2, 3, 4, 5, 31, 32, 33, 63, 64, 65, 127, 128, 129, 257, 1000, 2047, 2048, 2049, 4095, 4096)


@pytest.fixture(params=["merges", "network"])
def way(tool: Any, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How the lanes form orders lines: by merging, or with the network that a GPU has, and that the plain form has
    always."""
    if request.param == "network":
        if tool.form == "plain":
            pytest.skip("as with merges")
        monkeypatch.setattr(sort_emitter, "Network", OnlySteps)


def test_lines_of_all_lengths(tool: Any, way: None) -> None:
    texts = [sort(f"{rows},{n}", ("s8", "s32"), along=1) for n in LENGTHS for rows in (1, 7 if n < 200 else 2)]
    tool.all_agree(texts)


def test_dimensions_and_layouts(tool: Any, way: None) -> None:
    sizes = ("2,3,5", "40,33,2", "1,70,3", "129,1,4", "3,1,130")
    layouts = ("{2,1,0}", "{0,1,2}", "{1,2,0}")
    tool.all_agree(
        [
            sort(shape, ("s8", "f32"), along=along, layout=layout)
            for shape, along, layout in itertools.product(sizes, range(3), layouts)
        ]
    )


@pytest.mark.parametrize("count", [0, 3])
def test_nothing_to_sort(planner: Any, count: int) -> None:
    for shape in (f"{count},0", f"0,{count}"):
        found = planner.plan(sort(shape, ("s32", "f32"), along=1))
        assert found.kind == "sort" and found.launch.grid == 0
        assert hlo_opt.parse(sort(shape))
        planner.kernel(sort(shape, ("s32", "f32"), along=1))


TYPES = (
    "pred",
    "s4",
    "u4",
    "s8",
    "u8",
    "s16",
    "u16",
    "s32",
    "u32",
    "s64",
    "u64",
    "bf16",
    "f16",
    "f32",
    "f64",
    "f8e4m3fn",
)


def test_types(tool: Any, way: None) -> None:
    tool.all_agree([sort("3,50", (t, "s32"), along=1) for t in TYPES])
    tool.all_agree([sort("3,50", (t,), along=1, compare=TOTAL if t[0] in "bf" else TOTAL[:-17]) for t in TYPES])
    tool.all_agree([sort("50", ("s8", t)) for t in ("c64", "c128", "f8e5m2", "u2")])


def test_equal_elements_stay_in_order_even_where_they_need_not(tool: Any, way: None) -> None:
    text = sort("300", ("s8", "s32", "u16"), stable=False)
    keys = np.random.default_rng(1).integers(0, 3, 300).astype(np.int8)
    tool.agrees(text, inputs=[keys, np.arange(300, dtype=np.int32), np.arange(300, dtype=np.uint16)])


def test_nan_and_zeros_in_total_order(tool: Any, way: None) -> None:
    generator = np.random.default_rng(2)
    keys = generator.choice(np.array([0x7FC00001, 0xFFC00002, 0, 0x80000000, 0x3F800000, 0x7F800000], np.uint32), 99)
    for text in (sort("99", ("f32",), compare=TOTAL), sort("99", ("f32", "s32"), compare=TOTAL)):
        inputs = [keys.view(np.float32), np.arange(99, dtype=np.int32)][: text.count("parameter") // 3]
        found = tool.run(text, inputs)
        want = hlo_opt.evaluate(hlo_opt.parse(text), inputs)
        assert [a.tobytes() for a in found] == [np.asarray(a).tobytes() for a in want]


def test_a_comparator_that_is_no_order_still_permutes(tool: Any, way: None) -> None:
    values = np.arange(100, dtype=np.int32)
    for compare in ("compare(a0, b0), direction=LE", "compare(a0, b0), direction=NE", "constant(true)"):
        (found,) = tool.run(sort("100", compare=compare), [values])
        assert sorted(found) == list(values)


CHAIN = """d0 = s8[] negate(a0)
e0 = s8[] negate(b0)
f = pred[] compare(d0, e0), direction=LT
q = pred[] compare(d0, e0), direction=EQ
g = pred[] compare(a2, b2), direction=GT
h = pred[] and(q, g)
or(f, h)"""


def test_comparators_of_several_operands(tool: Any, way: None) -> None:
    text = sort("5,70", ("s8", "f32", "s16", "pred"), along=1, compare=CHAIN)
    tool.agrees(text, whole=True)
    source = tool.kernel(text).source
    assert source.count("__shared__") == 3 and "keys_x1" not in source and "keys_x3" not in source


def test_results_that_are_picked(tool: Any) -> None:
    root = "t = (f32[4,20]{1,0}, s8[4,20]{1,0}) tuple(y, x)"
    text = sort("4,20", ("s8", "f32"), along=1, layout="{1,0}", root=root).replace(
        "  ROOT t",
        "  x = s8[4,20]{1,0} get-tuple-element(s), index=0\n  y = f32[4,20]{1,0} get-tuple-element(s), index=1\n  ROOT "
        "t",
    )
    assert tool.plan(text).kind == "sort"
    tool.agrees(text)


def test_operands_that_are_computed(tool: Any) -> None:
    text = sort("6,40", ("s32", "s32", "f32"), along=1)
    text = text.replace("sort(p0, p1, p2)", "sort(n, i, c)").replace(
        "  ROOT s",
        "  n = s32[6,40] negate(p0)\n  i = s32[6,40] iota(), iota_dimension=1\n  c = f32[6,40] cosine(p2)\n  ROOT s",
    )
    tool.agrees(text, relative=1e-5)
    assert "keys_negate" in tool.kernel(text).source


def top(shape: str, k: int, kind: str = "f32", *, largest: bool = True, layout: str = "", root: str = "") -> str:
    kept = ",".join([*shape.split(",")[:-1], str(k)])
    result = f"({kind}[{kept}]{layout}, s32[{kept}]{layout})"
    lines = (
        f"  p = {kind}[{shape}]{layout} parameter(0)\n  {'' if root else 'ROOT '}t = {result} topk(p), k={k}, "
        f"largest={str(largest).lower()}\n"
    )
    return f"HloModule m\n\nENTRY e {{\n{lines}{root}}}\n"


def test_the_first_of_each_line(tool: Any, way: None) -> None:
    texts = [top(f"{rows},{n}", k) for rows, n, k in ((1, 1, 1), (3, 7, 2), (3, 7, 7), (50, 64, 8), (2, 4096, 40))]
    texts += [top("9,130", 5, kind) for kind in ("s8", "u16", "bf16", "f64", "pred", "f8e5m2")]
    texts += [top("9,130", 5, largest=False), top("4,5,33", 3, "s8", layout="{0,1,2}"), top("70", 1, "s8")]
    texts.append(top("9,30", 5, "s8", root="  ROOT i = s32[9,5] get-tuple-element(t), index=1\n"))
    tool.all_agree(texts)
    values = np.array([1, np.nan, -0.0, 0.0, -np.nan, np.inf, 0.0, 1], np.float32)
    tool.agrees(top("8", 8), inputs=[values])
    tool.agrees(top("8", 8, largest=False), inputs=[values])
    assert isinstance(plan(tool.region(top("9,4097", 2)), H100), Reason)


def test_what_has_no_such_plan(planner: Any) -> None:
    for text in (
        sort("4097"),
        sort("4096", ("c128", "c128"), compare="compare(a0, b0), direction=NE"),  # 64 KiB
        sort("9", root="n = s32[9] negate(s)"),
    ):
        found = plan(planner.region(text), H100, long_sorts=False)
        assert isinstance(found, Reason) and found.code == "FUS302"


def test_short_lines_share_blocks_and_warps_do_not_wait_for_others(planner: Any) -> None:
    pairs = planner.plan(sort("4096,2", ("bf16", "s32"), along=1))
    assert (pairs.launch.grid, pairs.launch.block, pairs.launch.shared_bytes) == (32, 128, 128 * 2 * 4)
    assert "for (int size" not in planner.kernel(sort("4096,2", along=1)).source
    assert "__syncwarp();" in planner.kernel(sort("99,8", along=1)).source
    assert "__syncwarp();" not in planner.kernel(sort("99,9", along=1)).source
    assert "__syncwarp();" not in planner.kernel(sort("64,99")).source
    assert "positions" not in planner.kernel(sort("99,8", along=1)).source


def test_sorts_are_stable_also_where_they_need_not_be() -> None:
    if not has_compiler():
        pytest.skip("no C++ compiler")
    inputs = [np.random.default_rng(5).integers(0, 4, 50).astype(np.int8), np.arange(50, dtype=np.int32)]
    for stable in (False, True):
        module = hlo_opt.parse(sort("50", ("s8", "s32"), stable=stable))
        wanted = hlo_opt.evaluate(module, inputs)
        np.testing.assert_array_equal(wanted[1], np.argsort(inputs[0], kind="stable"))
        executable = hlo_opt.compile(module, "host")
        for got, want in zip(executable(*inputs), wanted, strict=True):
            np.testing.assert_array_equal(got, want)
        assert not executable.report()["library"] and len(executable.report()["kernels"]) == 1


def test_the_host_needs_no_fibres(planner: Any) -> None:
    for shape, along in (("4096,2", 1), ("7,100", 1), ("2,3000", 1), ("100,7", 0), ("1000,70", 0)):
        assert as_loops(planner.kernel(sort(shape, ("s8", "s32"), along=along)))


JAX = """zero{0} = {t}[] constant(0)
none{0} = {t}[] constant(nan)
same{0} = pred[] compare({0}, zero{0}), direction=EQ
flat{0} = {t}[] select(same{0}, zero{0}, {0})
odd{0} = pred[] compare({0}, {0}), direction=NE
key{0} = {t}[] select(odd{0}, none{0}, flat{0})
"""


def by_key(kind: str, last: str) -> str:
    return "".join(JAX.format(side, t=kind) for side in ("a0", "b0")) + last


@pytest.mark.usefixtures("way")
def test_comparators_of_keys(tool: Any) -> None:
    """JAX's: -0 and 0 are alike, as all NaNs are, and keep their order; both ways, and with other operands."""
    values = np.asarray([0.0, -0.0, np.nan, -np.nan, 1, -1, np.inf, -np.inf, 2, 1] * 7, np.float32)
    less = "compare(keya0, keyb0), direction=LT, type=TOTALORDER"
    for compare in (less, less.replace("LT", "GT"), "compare(keyb0, keya0), direction=LT, type=TOTALORDER"):
        text = sort("70", ("f32",), compare=by_key("f32", compare))
        (got,), (wanted,) = tool.run(text, [values]), hlo_opt.evaluate(hlo_opt.parse(text), [values])
        np.testing.assert_array_equal(got.view(np.int32), np.asarray(wanted).view(np.int32))
    tool.all_agree([sort("5,20", ("bf16", "s32"), along=1, compare=by_key("bf16", less))])
    tool.all_agree([sort("600,8", (t,), along=1, compare=by_key(t, less)) for t in ("f32", "f16")])


def test_keys_are_integers(planner: Any) -> None:
    less = by_key("f32", "compare(keya0, keyb0), direction=LT, type=TOTALORDER")
    source = planner.kernel(sort("5,70", along=1, types=("f32",), compare=less)).source
    body = source[source.index("__shared__ int keys_x0[") :]
    assert body.count("hlo_total_order(") == 1
    made = planner.plan(sort("5,70", along=1, types=("f32",), compare=less))
    assert made.launch.shared_bytes == made.segments[0].part.cells * (4 + 2)


@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_random_sorts(tool: Any, data: st.DataObject) -> None:
    size = st.sampled_from((1, 2, 3, 7, 8, 9, 31, 33, 64, 65, 127, 131))
    dims = data.draw(st.lists(size, min_size=1, max_size=3).filter(lambda d: np.prod(d) <= 20_000))
    along = data.draw(st.integers(0, len(dims) - 1))
    layout = f"{{{','.join(map(str, data.draw(st.permutations(range(len(dims))))))}}}"
    types = tuple(data.draw(st.lists(st.sampled_from(("s8", "bf16", "u16", "f32", "pred")), min_size=1, max_size=4)))
    key = data.draw(st.integers(0, len(types) - 1))
    compare = f"compare(a{key}, b{key}), direction={data.draw(st.sampled_from(('LT', 'GT')))}"
    if types[key] in ("bf16", "f32"):
        compare += ", type=TOTALORDER"
    shape = ",".join(map(str, dims))
    tool.agrees(sort(shape, types, along=along, layout=layout, compare=compare, stable=data.draw(st.booleans())))


@pytest.mark.parametrize("architecture", ["sm_80", "sm_100"])
def test_nvrtc_reads_the_texts(planner: Any, architecture: str) -> None:
    nvrtc = pytest.importorskip("cupy.cuda").nvrtc
    texts = [sort("3,50", (t, "s32"), along=1) for t in TYPES] + [sort("4096,2", along=1), sort("5,3000", along=1)]
    texts += [
        sort("70,5", ("c64", "s8"), compare="compare(a1, b1), direction=LT"),
        sort("5,70", ("s8",) * 3, compare=CHAIN),
    ]
    for text in texts:
        program = nvrtc.createProgram(planner.kernel(text).source, "k.cu", (), ())
        nvrtc.compileProgram(program, (f"-arch={architecture}", "-fmad=false"))


def test_the_text_of_a_small_one(planner: Any) -> None:
    source = planner.kernel(sort("2,6", ("s32", "f32"), along=1)).source
    assert source[source.index(" {\n") :] == TEXT


TEXT = """ {
  __shared__ int keys_x0[12];
  __shared__ unsigned short positions[12];
  {
    const int cell = threadIdx.x;
    if (cell < 12) {
      keys_x0[cell] = in0[cell];
      const int i0 = cell % 6;
      positions[cell] = i0;
    }
  }
  __syncthreads();
  for (int size = 2; size <= 8; size *= 2) {
    for (int step = size / 2; step > 0; step /= 2) {
      const int mask = step == size / 2 ? size - 1 : step;
      if (threadIdx.x < 8) {
        const int line = threadIdx.x / 4;
        const int pair = threadIdx.x % 4;
        const int first = 2 * pair - (pair & (step - 1));
        const int second = first ^ mask;
        if (second < 6) {
          const int low = line * 6 + first;
          const int high = line * 6 + second;
          const int x0_low = keys_x0[low];
          const unsigned short position_low = positions[low];
          const int x0_high = keys_x0[high];
          const unsigned short position_high = positions[high];
          const bool compare_3 = x0_high < x0_low;
          const bool compare_3_2 = x0_low < x0_high;
          if (compare_3 || (!compare_3_2 && position_high < position_low)) {
            keys_x0[low] = x0_high;
            keys_x0[high] = x0_low;
            positions[low] = position_high;
            positions[high] = position_low;
          }
        }
      }
      __syncwarp();
    }
  }
  __syncthreads();
  {
    const int cell_2 = threadIdx.x;
    if (cell_2 < 12) {
      const int source = positions[cell_2];
      out0[cell_2] = keys_x0[cell_2];
      const int i1 = cell_2 / 6;
      out1[cell_2] = in1[i1 * 6 + source];
    }
  }
}
"""
