"""Kernels that update an operand in place: when its memory is taken, when it is copied."""

import types
from pathlib import Path

import numpy as np
import pytest

import hlo_opt
from hlo_opt.ir import Module
from hlo_opt.runtime.driver.writer import driver_of
from hlo_opt.runtime.host.library import has_compiler
from hlo_opt.runtime.schedule import build_schedule
from hlo_opt.runtime.schedule.lifetimes import peak_of
from hlo_opt.runtime.schedule.ops import Alias, Copy, Launch

HEAD = """HloModule m

f {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] add(x, y)
}
"""
SCATTER = (
    "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=f"
)


def module_of(body: str) -> Module:
    return hlo_opt.parse(
        f"{HEAD}\nENTRY e {{\n  p = f32[100] parameter(0)\n  i = s32[30] parameter(1)\n  u = f32[30] parameter(2)\n{body}}}\n"
    )


DIES = f"  n = f32[100] negate(p)\n  ROOT s = f32[100] scatter(n, i, u), {SCATTER}\n"
CASES = {
    "of its own": (DIES, True),
    "twice": (
        f"  n = f32[100] negate(p)\n  s = f32[100] scatter(n, i, u), {SCATTER}\n  ROOT t = f32[100] scatter(s, i, u), {SCATTER}\n",
        True,
    ),
    "a parameter": (f"  ROOT s = f32[100] scatter(p, i, u), {SCATTER}\n", False),
    "needed later": (
        f"  n = f32[100] negate(p)\n  s = f32[100] scatter(n, i, u), {SCATTER}\n  ROOT a = f32[100] add(s, n)\n",
        False,
    ),
    "a result": (
        f"  n = f32[100] negate(p)\n  s = f32[100] scatter(n, i, u), {SCATTER}\n  ROOT r = (f32[100], f32[100]) tuple(s, n)\n",
        False,
    ),
    "a constant": (
        f"  z = f32[] constant(3)\n  c = f32[100] constant({{{', '.join(map(str, range(100)))}}})\n  ROOT s = f32[100] scatter(c, i, u), {SCATTER}\n",
        False,
    ),
    "under another name": (
        f"  n = f32[100] negate(p)\n  b = f32[100] bitcast(n)\n  s = f32[100] scatter(b, i, u), {SCATTER}\n  ROOT a = f32[100] add(s, n)\n",
        False,
    ),
}


def inputs() -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    index = generator.integers(-2, 103, 30).astype(np.int32)
    return [generator.integers(0, 9, 100).astype(np.float32), index, generator.integers(0, 9, 30).astype(np.float32)]


@pytest.mark.parametrize("case", CASES)
def test_memory_is_taken_where_nothing_else_needs_it(case: str) -> None:
    body, taken = CASES[case]
    module = module_of(body)
    ops = build_schedule(module).entry.ops
    updated = {op.outputs[output] for op in ops if isinstance(op, Launch) for output, _ in op.kernel.aliases}
    made = [type(op) for op in ops if not isinstance(op, Launch) and not updated.isdisjoint(op.outputs)]
    assert made and set(made) == {Alias if taken else Copy}
    if not has_compiler():
        pytest.skip("no C++ compiler")
    given = inputs()
    before = [a.copy() for a in given]
    executable = hlo_opt.compile(module, backend="host")
    for _ in range(2):
        for got, want in zip(executable(*given), hlo_opt.evaluate(module, given), strict=True):
            np.testing.assert_array_equal(got, want)
    for a, b in zip(given, before, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not executable.report()["fallbacks"]


def test_what_is_taken_is_not_counted_twice() -> None:
    apart = module_of(CASES["a result"][0])
    assert peak_of(build_schedule(module_of(DIES))).bytes < peak_of(build_schedule(apart)).bytes


def test_the_driver_copies_or_takes() -> None:
    for case, text in (("a parameter", "s = p.copy()"), ("of its own", "s = n  # nothing else reads it")):
        schedule = build_schedule(module_of(CASES[case][0]))
        files = {k.symbol: f"{k.symbol}.cu" for k in schedule.kernels}
        assert text in driver_of(schedule, files).text


@pytest.mark.parametrize("case", CASES)
def test_step_by_step_on_a_device(case: str, fake: types.ModuleType) -> None:
    module, given = module_of(CASES[case][0]), inputs()
    executable = hlo_opt.compile(module, "cupy")
    for got, want in zip(executable(*given), hlo_opt.evaluate(module, given), strict=True):
        np.testing.assert_array_equal(got, want)


LOOP = """
body {
  s = (s32[], f32[100], s32[30], f32[30]) parameter(0)
  k = s32[] get-tuple-element(s), index=0
  x = f32[100] get-tuple-element(s), index=1
  i = s32[30] get-tuple-element(s), index=2
  u = f32[30] get-tuple-element(s), index=3
  one = s32[] constant(1)
  n = s32[] add(k, one)
  y = f32[100] scatter(x, i, u), ATTRIBUTES
  d = f32[100] add(y, y)
  z = f32[100] scatter(d, i, u), ATTRIBUTES
  ROOT r = (s32[], f32[100], s32[30], f32[30]) tuple(n, z, i, u)
}
condition {
  s = (s32[], f32[100], s32[30], f32[30]) parameter(0)
  k = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT c = pred[] compare(k, n), direction=LT
}
ENTRY e {
  p = f32[100] parameter(0)
  i = s32[30] parameter(1)
  u = f32[30] parameter(2)
  zero = s32[] constant(0)
  t = (s32[], f32[100], s32[30], f32[30]) tuple(zero, p, i, u)
  l = (s32[], f32[100], s32[30], f32[30]) while(t), condition=condition, body=body
  o = f32[100] get-tuple-element(l), index=1
  ROOT r = (f32[100], f32[100]) tuple(o, p)
}
"""


@pytest.mark.parametrize("backend", ["host", "cupy"])
def test_inside_a_loop(backend: str, fake: types.ModuleType) -> None:
    """On a device the loop is a graph, whose copies are part of it and no launches."""
    if not has_compiler():
        pytest.skip("no C++ compiler")
    module, given = hlo_opt.parse(HEAD + LOOP.replace("ATTRIBUTES", SCATTER)), inputs()
    executable = hlo_opt.compile(module, backend)
    for got, want in zip(executable(*given), hlo_opt.evaluate(module, given), strict=True):
        np.testing.assert_array_equal(got, want)
    if backend == "cupy":
        assert fake.graphs, "the loop ran step by step"


def test_the_emitted_folder_names_each_scatter_once(tmp_path: Path) -> None:
    import json

    hlo_opt.emit(module_of(CASES["twice"][0]), tmp_path / "emitted")
    manifest = json.loads((tmp_path / "emitted" / "manifest.json").read_text())
    assert [row["instruction"] for row in manifest["launches"]] == ["n", "s", "t"] and not manifest["library"]
