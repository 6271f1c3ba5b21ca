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
from hlo_opt.runtime.schedule.ops import AliasOp, Copy, LaunchOp

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


def text_of(body: str) -> str:
    return f"{HEAD}\nENTRY e {{\n  p = f32[100] parameter(0)\n  i = s32[30] parameter(1)\n  u = f32[30] parameter(2)\n{body}}}\n"


def module_of(body: str) -> Module:
    return hlo_opt.parse(text_of(body))


DIES = f"  n = f32[100] negate(p)\n  ROOT s = f32[100] scatter(n, i, u), {SCATTER}\n"
CASES = {
    "of its own": (DIES, True),
    "twice": (
        f"  n = f32[100] negate(p)\n  s = f32[100] scatter(n, i, u), {SCATTER}\n  ROOT t = f32[100] scatter(s, i, u), "
        f"{SCATTER}\n",
        True,
    ),
    "a parameter": (f"  ROOT s = f32[100] scatter(p, i, u), {SCATTER}\n", False),
    "needed later": (
        f"  n = f32[100] negate(p)\n  s = f32[100] scatter(n, i, u), {SCATTER}\n  ROOT a = f32[100] add(s, n)\n",
        False,
    ),
    "a result": (
        f"  n = f32[100] negate(p)\n  s = f32[100] scatter(n, i, u), {SCATTER}\n  ROOT r = (f32[100], f32[100]) "
        f"tuple(s, n)\n",
        False,
    ),
    "a constant": (
        f"  z = f32[] constant(3)\n  c = f32[100] constant({{{', '.join(map(str, range(100)))}}})\n  ROOT s = f32[100] "
        f"scatter(c, i, u), {SCATTER}\n",
        False,
    ),
    "under another name": (
        f"  n = f32[100] negate(p)\n  b = f32[100] bitcast(n)\n  s = f32[100] scatter(b, i, u), {SCATTER}\n  ROOT a = "
        f"f32[100] add(s, n)\n",
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
    updated = {op.outputs[output] for op in ops if isinstance(op, LaunchOp) for output, _ in op.kernel.aliases}
    made = [type(op) for op in ops if not isinstance(op, LaunchOp) and not updated.isdisjoint(op.outputs)]
    assert made and set(made) == {AliasOp if taken else Copy}
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
    for _ in range(2):
        for got, want in zip(executable(*given), hlo_opt.evaluate(module, given), strict=True):
            np.testing.assert_array_equal(got, want)
    if backend == "cupy":
        assert fake.graphs, "the loop ran step by step"


def test_the_emitted_folder_names_each_scatter_once(tmp_path: Path) -> None:
    import json

    hlo_opt.emit(module_of(CASES["twice"][0]), tmp_path / "emitted")
    manifest = json.loads((tmp_path / "emitted" / "manifest.json").read_text())
    assert [row["instruction"] for row in manifest["launches"]] == ["n", "s", "t"] and not manifest["library"]


GIVEN = f"  ROOT s = f32[100] scatter(p, i, u), {SCATTER}\n"


def text_given_away(body: str = GIVEN, aliases: str = "{}: (0, {}, may-alias)") -> str:
    """Of a module whose header says which outputs may have the memory of which parameters."""
    return text_of(body).replace("HloModule m", f"HloModule m, input_output_alias={{ {aliases} }}", 1)


def given_away(body: str = GIVEN, aliases: str = "{}: (0, {}, may-alias)") -> Module:
    return hlo_opt.parse(text_given_away(body, aliases))


def copies(module: Module) -> int:
    return sum(isinstance(op, Copy) for op in build_schedule(module).entry.ops)


@pytest.mark.parametrize(
    ("body", "aliases", "expected"),
    [
        (GIVEN, "{}: (0, {}, may-alias)", 0),
        (GIVEN, "{}: (2, {}, may-alias)", 1),
        (
            f"  s = f32[100] scatter(p, i, u), {SCATTER}\n  ROOT r = (f32[100], f32[100]) tuple(s, p)\n",
            "{0}: (0, {}, may-alias)",
            1,
        ),
        (
            f"  s = f32[100] scatter(p, i, u), {SCATTER}\n  n = f32[100] negate(s)\n  ROOT r = (f32[100], f32[100]) "
            f"tuple(s, n)\n",
            "{1}: (0, {}, may-alias)",
            1,
        ),
        (
            f"  n = f32[100] negate(p)\n  s = f32[100] scatter(p, i, u), {SCATTER}\n  ROOT r = (f32[100], f32[100]) "
            f"tuple(n, s)\n",
            "{1}: (0, {}, must-alias)",
            0,
        ),
    ],
    ids=["taken", "another parameter", "returned as it is", "another result", "read before"],
)
def test_memory_that_the_header_gives_away(body: str, aliases: str, expected: int) -> None:
    module = given_away(body, aliases)
    assert copies(module) == expected
    is_read_before = "{1}" in aliases and "negate(s)" in body  # the copy is the last that reads the input
    assert bool(build_schedule(module).entry.donated) == (not expected or is_read_before)


@pytest.mark.parametrize("backend", ["host", "cupy"])
def test_inputs_stay_as_they_are_unless_they_are_donated(backend: str, fake: types.ModuleType) -> None:
    if not has_compiler():
        pytest.skip("no C++ compiler")
    module, given = given_away(), inputs()
    executable, before = hlo_opt.compile(module, backend), given[0].copy()
    (want,) = hlo_opt.evaluate(module, given)
    for _ in range(2):
        (got,) = executable(*given)
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(given[0], before)
    (got,) = executable(*given, donate=True)
    np.testing.assert_array_equal(got, want)
    assert np.may_share_memory(got, given[0]) == (backend == "host")


def test_a_donated_input_that_is_given_twice_is_copied() -> None:
    if not has_compiler():
        pytest.skip("no C++ compiler")
    body = (
        "  q = f32[100] parameter(3)\n" + GIVEN.replace("ROOT ", "") + "  ROOT a = (f32[100], f32[100]) tuple(s, q)\n"
    )
    module, given = given_away(body, "{0}: (0, {}, may-alias)"), inputs()
    before = given[0].copy()
    both = hlo_opt.compile(module, "host")(*given, given[0], donate=True)
    for got, want in zip(both, hlo_opt.evaluate(module, [*given, before]), strict=True):
        np.testing.assert_array_equal(got, want)


def test_narrow_elements_are_donated_where_they_are_whole_words() -> None:
    """A kernel that adds to an element of 16 bits changes a word."""
    if not has_compiler():
        pytest.skip("no C++ compiler")
    for count, is_taken in ((99, False), (100, True)):
        text = text_given_away().replace("f32", "f16").replace("[100]", f"[{count}]")
        module = hlo_opt.parse(text)
        given = [a.astype(np.float16) if a.dtype == np.float32 else a for a in inputs()]
        given[0] = given[0][:count].copy()
        (want,) = hlo_opt.evaluate(module, given)
        (got,) = hlo_opt.compile(module, "host")(*given, donate=True)
        np.testing.assert_array_equal(got, want)
        assert np.may_share_memory(got, given[0]) == is_taken


def test_arrays_of_a_gpu_stay_there(fake: types.ModuleType) -> None:
    if not has_compiler():
        pytest.skip("no C++ compiler")
    module = given_away()
    executable, (want,) = hlo_opt.compile(module, "cupy"), hlo_opt.evaluate(module, inputs())
    given = [fake.asarray(a) for a in inputs()]
    (kept,) = executable.on_device(*given)
    assert isinstance(kept, fake.ndarray) and not np.may_share_memory(kept, given[0])
    np.testing.assert_array_equal(fake.asnumpy(given[0]), inputs()[0])
    (taken,) = executable.on_device(*given, donate=True)
    assert np.may_share_memory(taken, given[0])
    for got in (kept, taken):
        np.testing.assert_array_equal(fake.asnumpy(got), want)
    with pytest.raises(hlo_opt.EvaluationError, match="in0 is float64"):
        executable.on_device(given[0].astype("float64"), *given[1:])
    with pytest.raises(hlo_opt.EvaluationError, match="takes 3 inputs"):
        executable.on_device(*given[1:])


def test_outputs_on_a_gpu_are_nobody_elses(fake: types.ModuleType) -> None:
    """Not an input, a constant or another output."""
    if not has_compiler():
        pytest.skip("no C++ compiler")
    module = module_of(
        "  c = f32[4] constant({1, 2, 3, 4})\n  n = f32[100] negate(p)\n"
        "  ROOT r = (f32[100], f32[4], f32[100], f32[100]) tuple(p, c, n, n)\n"
    )
    given = [fake.asarray(a) for a in inputs()]
    executable = hlo_opt.compile(module, "cupy")
    for _ in range(2):
        outputs = executable.on_device(*given)
        for got, want in zip(outputs, hlo_opt.evaluate(module, inputs()), strict=True):
            np.testing.assert_array_equal(fake.asnumpy(got), want)
            got[...] = 77
    np.testing.assert_array_equal(fake.asnumpy(given[0]), inputs()[0])


def test_layouts_and_packed_types_on_a_gpu(fake: types.ModuleType) -> None:
    if not has_compiler():
        pytest.skip("no C++ compiler")
    module = hlo_opt.parse(
        "HloModule m\n\nENTRY e {\n  p = f32[3,5]{0,1} parameter(0)\n  q = s4[7] parameter(1)\n  n = f32[3,5]{0,1} "
        "negate(p)\n"
        "  m = s4[7] negate(q)\n  ROOT r = (f32[3,5]{0,1}, s4[7]) tuple(n, m)\n}\n"
    )
    p = np.arange(15, dtype=np.float32).reshape(3, 5)
    q = np.arange(7, dtype=np.uint8)
    outputs = hlo_opt.compile(module, "cupy").on_device(fake.asarray(p), fake.asarray(q))
    np.testing.assert_array_equal(fake.asnumpy(outputs[0]), -p)
    np.testing.assert_array_equal(fake.asnumpy(outputs[1]), (-q) & 15)
