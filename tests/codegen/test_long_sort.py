"""Sorts in global memory: lines that no block's memory holds, by comparators that no library knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hlo_opt
from hlo_opt.codegen import emit_kernel, long_sort
from hlo_opt.codegen.kernel import Kernel
from hlo_opt.codegen.lanes import as_loops
from hlo_opt.ops.calls.call import call_of
from hlo_opt.plans import plan
from hlo_opt.plans.plan import Plan
from hlo_opt.runtime.host.library import HostLibrary
from hlo_opt.runtime.numpy import from_memory, held_dtype, to_memory
from hlo_opt.runtime.schedule import build_schedule
from hlo_opt.runtime.schedule.ops import CallOp, LaunchOp
from tests.codegen.test_sort import sort, top
from tests.small_modules import H100
from tests.written_kernels import OnlySteps

DIFFERENCE = "d = s32[] subtract(a0, b0)\nz = s32[] constant(0)\ncompare(d, z), direction=LT"
SUMS = "c = f32[] add(a1, a2)\nd = f32[] add(b1, b2)\ncompare(c, d), direction=GT"


@pytest.fixture(params=["merges", "network"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How the host orders lines: by merging, or with the network that a GPU has."""
    if request.param == "network":
        monkeypatch.setattr(long_sort, "Network", OnlySteps)


def long_plan(tool: Any, text: str) -> Plan:
    found = plan(tool.region(text), H100, long_sorts=True)
    assert isinstance(found, Plan), str(found)
    return found


def run(kernel: Kernel, inputs: list[np.ndarray]) -> list[np.ndarray]:
    outputs = [np.full(s.stored_bytes, 0xCD, np.uint8).view(held_dtype(s)) for s in kernel.outputs]
    given = [to_memory(a, s) for a, s in zip(inputs, kernel.inputs, strict=True)]
    HostLibrary([kernel]).launch(kernel, given, outputs)
    return [from_memory(o, s) for o, s in zip(outputs, kernel.outputs, strict=True)][: len(outputs) - 1]


CASES = {
    "one_line": sort("4097", compare=DIFFERENCE),
    "lines": sort("3,5000", ("s32", "f32", "u16"), along=1, compare=DIFFERENCE),
    "apart": sort("2,5001,3", ("s32", "bf16"), along=1, layout="{0,2,1}", compare=DIFFERENCE),
    "two_keys": sort("2,4500", ("s8", "f32", "f32"), along=1, compare=SUMS),
    "power": sort("8192,2", ("s32", "s4"), compare=DIFFERENCE),
    "odd": sort("3,4501", ("s4", "u2", "f4e2m1fn"), along=1, compare="compare(a0, b0), direction=LT"),
    "top": top("3,6000", 70, "f8e5m2"),
}


@pytest.mark.parametrize("name", CASES)
def test_every_form_gives_what_the_interpreter_gives(name: str, planner: Any, way: None) -> None:
    text = CASES[name]
    made = long_plan(planner, text)
    assert made.kind == "long-sort" and made.launch.shared_bytes == 0
    kernel = emit_kernel(made)
    assert as_loops(kernel) is not None
    module = hlo_opt.parse(text)
    generator = np.random.default_rng(4)
    inputs = [generator.integers(0, 60, p.shape.dimensions).astype(p.shape.type.dtype) for p in module.entry.parameters]
    for got, want in zip(run(kernel, inputs), hlo_opt.evaluate(module, inputs), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_comparator_that_is_no_order_still_permutes(planner: Any, way: None) -> None:
    values = np.arange(4500, dtype=np.int32)
    for compare in ("compare(a0, b0), direction=LE", "compare(a0, b0), direction=NE", "constant(true)"):
        (found,) = run(emit_kernel(long_plan(planner, sort("4500", compare=compare))), [values])
        assert sorted(found) == list(values)


def test_backends_take_it_where_no_library_knows_the_comparator(planner: Any, tmp_path: Path) -> None:
    module = hlo_opt.parse(CASES["lines"])
    assert call_of(module.entry.root) is None
    schedule = build_schedule(module)
    (launch,) = [op for _, op in schedule.ops() if isinstance(op, LaunchOp)]
    assert launch.kernel.kind == "long-sort" and len(launch.outputs) == 4
    assert not any(isinstance(op, CallOp) for _, op in schedule.ops())
    inputs = [np.random.default_rng(1).integers(0, 9, (3, 5000)).astype(t) for t in ("int32", "float32", "uint16")]
    executable = hlo_opt.compile(module, "host")
    for got, want in zip(executable(*inputs), hlo_opt.evaluate(module, inputs), strict=True):
        np.testing.assert_array_equal(got, want)
    assert executable.report()["library"] == {} and executable.report()["launches"] == 1
    hlo_opt.emit(module, tmp_path / "out")
    driver = (tmp_path / "out" / "driver.py").read_text()
    assert driver.count("cupy.empty(") == 4 and "del" in driver


def test_libraries_keep_what_they_know(planner: Any) -> None:
    schedule = build_schedule(hlo_opt.parse(sort("2,5000", along=1)))
    assert schedule.library_calls("library") == {"sort": 1} and not schedule.kernels
    assert isinstance(plan(planner.region(CASES["one_line"]), H100), Plan)  # no library knows the comparator
    assert not isinstance(plan(planner.region(sort("2,5000", along=1)), H100), Plan)
    computed = (
        sort("5000", compare=DIFFERENCE)
        .replace("sort(p0)", "sort(n)")
        .replace("  ROOT s", "  n = s32[5000] negate(p0)\n  ROOT s")
    )
    assert not isinstance(plan(planner.region(computed), H100, long_sorts=True), Plan)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
def test_nvrtc_reads_the_texts(planner: Any, architecture: str) -> None:
    nvrtc = pytest.importorskip("cupy.cuda").nvrtc
    texts = [*CASES.values(), sort("9,400000000", ("s32", "f64"), along=1, compare=DIFFERENCE)]
    for text in texts:
        program = nvrtc.createProgram(emit_kernel(long_plan(planner, text)).source, "k.cu", (), ())
        nvrtc.compileProgram(program, (f"-arch={architecture}", "-fmad=false"))


def test_addresses_that_need_64_bits_have_them(planner: Any) -> None:
    source = emit_kernel(long_plan(planner, sort("9,400000000", ("s32",), along=1, compare=DIFFERENCE))).source
    assert "const long long low = (long long)line * 400000000 + first;" in source
    assert not isinstance(plan(planner.region(sort("536870913", compare=DIFFERENCE)), H100, long_sorts=True), Plan)


def test_the_text_of_one(planner: Any) -> None:
    source = emit_kernel(long_plan(planner, sort("2,5000", along=1, compare=DIFFERENCE))).source
    assert source[source.index(" {\n") :] == TEXT


TEXT = """ {
  const int line = blockIdx.x;
  for (int place = threadIdx.x; place < 5000; place += 1024) {
    const int cell = line * 5000 + place;
    scratch0[cell] = place;
  }
  __syncthreads();
  for (int size = 2; size <= 8192; size *= 2) {
    for (int step = size / 2; step > 0; step /= 2) {
      const int mask = step == size / 2 ? size - 1 : step;
      for (int pair = threadIdx.x; pair < 4096; pair += 1024) {
        const int first = 2 * pair - (pair & (step - 1));
        const int second = first ^ mask;
        if (second < 5000) {
          const int low = line * 5000 + first;
          const int high = line * 5000 + second;
          const int place_low = scratch0[low];
          const int place_high = scratch0[high];
          const int x0 = in0[line * 5000 + place_low];
          const int x0_2 = in0[line * 5000 + place_high];
          const int subtract_2 = (int)((unsigned int)x0_2 - (unsigned int)x0);
          const bool compare_4 = subtract_2 < 0;
          const int subtract_2_2 = (int)((unsigned int)x0 - (unsigned int)x0_2);
          const bool compare_4_2 = subtract_2_2 < 0;
          if (compare_4 || (!compare_4_2 && place_high < place_low)) {
            scratch0[low] = place_high;
            scratch0[high] = place_low;
          }
        }
      }
      __syncthreads();
    }
  }
  for (int rank = threadIdx.x; rank < 5000; rank += 1024) {
    const int cell_3 = line * 5000 + rank;
    const int source = scratch0[cell_3];
    out0[line * 5000 + rank] = in0[line * 5000 + source];
  }
}
"""
