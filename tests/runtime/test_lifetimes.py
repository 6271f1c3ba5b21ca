"""Lifetimes of buffers, the places that they share, and what a schedule thus will hold, known before kernels are
built."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hlo_opt
from hlo_opt.diag import EvaluationError
from hlo_opt.ir import Module
from hlo_opt.runtime.driver.writer import driver_of
from hlo_opt.runtime.host.library import has_compiler
from hlo_opt.runtime.schedule import build_schedule
from hlo_opt.runtime.schedule.lifetimes import ALIGNMENT, Arena, Lifetimes, check_schedule, lifetimes, peak_of
from hlo_opt.runtime.schedule.ops import Copy, Free, LaunchOp, LoopOp, Routine, outputs_of


def test_freed_places_are_taken_again() -> None:
    arena = Arena()
    first, second, third = arena.take(100), arena.take(64), arena.take(1)
    assert (first, second, third) == (0, 128, 192)
    arena.give_back(first)
    assert arena.take(65) == 0
    arena.give_back(second)
    assert arena.take(65) == 256
    assert arena.size == 384 and arena.alive == 128 + 64 + 128


def test_unknown_place() -> None:
    with pytest.raises(KeyError):
        Arena().give_back(0)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 3)), max_size=40))
def test_what_is_alive_lies_apart(steps: list[tuple[int, int]]) -> None:
    arena = Arena()
    alive: dict[int, int] = {}
    for size, back in steps:
        offset = arena.take(size)
        assert offset % ALIGNMENT == 0
        assert all(offset + size <= o or o + s <= offset for o, s in alive.items())
        alive[offset] = max(1, size)
        if back == 0:
            arena.give_back(next(iter(alive)))
            del alive[next(iter(alive))]
    assert arena.size >= sum(alive.values())


def entry_of(text: str) -> tuple[Routine, Lifetimes]:
    entry = build_schedule(hlo_opt.parse(text)).entry
    return entry, lifetimes(entry.ops, entry.shapes)


def names(routine: Routine) -> dict[str, int]:
    return {op.instruction.name: b for op in routine.ops for b in outputs_of(op)}


VIEWS = """HloModule m
ENTRY e {
  p = f32[6]{0} parameter(0)
  a = f32[6]{0} negate(p)
  v = f32[2,3]{1,0} bitcast(a)
  w = f32[3,2]{1,0} bitcast(v)
  b = f32[6]{0} abs(a)
  x = f32[2,3]{1,0} bitcast(p)
  c = f32[3,2]{1,0} negate(w)
  d = f32[2,3]{1,0} negate(x)
  ROOT r = (f32[6]{0}, f32[3,2]{1,0}, f32[2,3]{1,0}) tuple(b, c, d)
}
"""


def test_a_memory_is_needed_under_any_of_its_names() -> None:
    entry, found = entry_of(VIEWS)
    b = names(entry)
    assert [found.root[b[n]] for n in "avwbx"] == [b["a"], b["a"], b["a"], b["b"], entry.inputs[0]]
    assert [buffer for born in found.born for buffer in born] == [b["a"], b["b"], b["c"], b["d"]]
    (last,) = [position for position, dead in enumerate(found.dead) if dead]
    assert found.dead[last] == (b["a"],), "the parameter is the caller's, and results stay"
    assert isinstance(entry.ops[last], Free) and entry.ops[last].instruction.name == "c"


LOOP = """HloModule m
body {
  s = (s32[], f32[9]{0}, f32[9]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  v = f32[9]{0} get-tuple-element(s), index=1
  w = f32[9]{0} get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  x = f32[9]{0} add(v, w)
  ROOT t = (s32[], f32[9]{0}, f32[9]{0}) tuple(j, x, w)
}
condition {
  s = (s32[], f32[9]{0}, f32[9]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(4)
  ROOT l = pred[] compare(i, n), direction=LT
}
ENTRY e {
  p = f32[9]{0} parameter(0)
  z = s32[] constant(0)
  q = f32[9]{0} negate(p)
  t = (s32[], f32[9]{0}, f32[9]{0}) tuple(z, q, p)
  ROOT r = (s32[], f32[9]{0}, f32[9]{0}) while(t), condition=condition, body=body
}
"""


def test_a_loop_shares_what_it_owns_and_what_it_leaves_alone() -> None:
    entry, found = entry_of(LOOP)
    (loop,) = [op for op in entry.ops if isinstance(op, LoopOp)]
    assert (loop.unchanged, loop.owned, loop.updated, loop.copied) == ((2,), (1,), (1,), ())
    assert [found.root[b] for b in loop.outputs] == [loop.outputs[0], loop.inputs[1], loop.inputs[2]]
    apart = lifetimes(entry.ops, entry.shapes, shares_unchanged=False)
    assert [apart.root[b] for b in loop.outputs] == [loop.outputs[0], loop.inputs[1], loop.outputs[2]]
    assert apart.born[entry.ops.index(loop)] == (loop.outputs[0], loop.outputs[2])


V = "f32[1000]{0}"
A = 4000  # bytes of one such array


def peak(body: str, functions: str = "") -> tuple[int, str]:
    module = hlo_opt.parse(f"HloModule m\n{functions}\nENTRY e {{\n  p = {V} parameter(0)\n  {body}\n}}\n")
    found = peak_of(build_schedule(module))
    return found.bytes, "" if found.at is None else found.at.name


HANDED_ON = f"""body {{
  s = (s32[], {V}, {V}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  v = {V} get-tuple-element(s), index=1
  w = {V} get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  x = {V} add(v, w)
  ROOT t = (s32[], {V}, {V}) tuple(j, x, w)
}}
condition {{
  s = (s32[], {V}, {V}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(-1)
  ROOT l = pred[] compare(i, n), direction=NE
}}
"""
WHILE = (
    f"z = s32[] constant(0)\n  t = (s32[], {V}, {V}) tuple(z, p, p)\n"
    f"  w = (s32[], {V}, {V}) while(t), condition=condition, body=body\n  ROOT r = {V} get-tuple-element(w), index=1"
)


def test_buffers_live_from_their_step_to_the_last_use() -> None:
    chain = (
        f"a = {V} negate(p)\n  b = {V} negate(a)\n  c = {V} negate(b)\n  ROOT r = f32[1]{{0}} slice(c), slice={{[0:1]}}"
    )
    assert peak(chain) == (3 * A, "b")  # the input and two of the others
    kept = (
        f"a = {V} negate(p)\n  b = {V} negate(a)\n  c = {V} add(a, b)\n  ROOT r = f32[1]{{0}} slice(c), slice={{[0:1]}}"
    )
    assert peak(kept) == (4 * A, "c")


def test_outputs_count_twice_at_the_end() -> None:
    assert peak(f"ROOT a = {V} negate(p)") == (3 * A, "a")


def test_a_view_keeps_its_memory() -> None:
    body = f"a = {V} negate(p)\n  b = f32[10,100]{{1,0}} bitcast(a)\n  c = {V} negate(p)\n"
    body += (
        "  d = f32[10,100]{1,0} bitcast(c)\n  e = f32[10,100]{1,0} add(b, d)\n  ROOT r = f32[1,1]{1,0} slice(e), "
        "slice={[0:1],[0:1]}"
    )
    assert peak(body) == (4 * A, "e")


def test_a_loop_holds_its_state_and_the_next() -> None:
    found, at = peak(WHILE, HANDED_ON)
    assert 4 * A <= found < 5 * A + 100 and at in ("w", "x", "j")


def test_a_module_that_holds_more_is_refused_before_anything_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    module = hlo_opt.parse(
        f"HloModule m\n\nENTRY e {{\n  p = {V} parameter(0)\n  ROOT r = {V} negate(p)\n}}\n", "m.hlo"
    )
    monkeypatch.setenv("CXX", "/nonexistent/compiler")
    for backend in ("host", "numpy"):
        with pytest.raises(EvaluationError, match=r"negate r: the run would hold 11.7 KiB \(12000 bytes\)") as caught:
            hlo_opt.compile(module, backend=backend, memory_limit=11_999)
        assert (caught.value.code, caught.value.line) == ("HLO402", 5)
    check_schedule(build_schedule(module), 12_000)
    check_schedule(build_schedule(module), None)


@pytest.mark.parametrize("backend", ["numpy", "host"])
def test_an_endless_loop_ends_on_every_backend(backend: str) -> None:
    if backend == "host" and not has_compiler():
        pytest.skip("no C++ compiler")
    module = hlo_opt.parse(f"HloModule m\n{HANDED_ON}\nENTRY e {{\n  p = {V} parameter(0)\n  {WHILE}\n}}\n")
    executable = hlo_opt.compile(module, backend=backend, max_steps=50)
    for _ in range(2):  # the count starts anew with each run
        with pytest.raises(EvaluationError, match="while w: the loop goes on after 50 iterations") as caught:
            executable(np.ones(1000, np.float32))
        assert caught.value.code == "HLO402"
    ending = hlo_opt.parse(
        f"HloModule m\n{HANDED_ON.replace('constant(-1)', 'constant(50)')}\nENTRY e "
        f"{{\n  p = {V} parameter(0)\n  {WHILE}\n}}\n"
    )
    assert hlo_opt.compile(ending, backend=backend, max_steps=50)(np.ones(1000, np.float32))[0][0] == 51


Array = np.ndarray[Any, Any]


def agrees(module: Module, *inputs: Array, backend: str = "host") -> None:
    """What `evaluate` says comes out, twice, and the inputs stay as they are."""
    hlo_opt.verify(module)
    before = [a.copy() for a in inputs]
    executable = hlo_opt.compile(module, backend=backend)
    for _ in range(2):
        for got, want in zip(executable(*inputs), hlo_opt.evaluate(module, inputs), strict=True):
            np.testing.assert_array_equal(got, want)
    for a, b in zip(inputs, before, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not executable.report()["fallbacks"]


SCAN = """HloModule m

body {
  s = (s32[], f32[30,8], f32[30,8], f32[8]) parameter(0)
  k = s32[] get-tuple-element(s), index=0
  h = f32[30,8] get-tuple-element(s), index=1
  g = f32[30,8] get-tuple-element(s), index=2
  x = f32[8] get-tuple-element(s), index=3
  zero = s32[] constant(0)
  one = s32[] constant(1)
  n = s32[] add(k, one)
  y = f32[8] add(x, x)
  r = f32[1,8] reshape(x)
  u = f32[30,8] dynamic-update-slice(h, r, k, zero)
  o = f32[1,8] dynamic-slice(g, n, zero), dynamic_slice_sizes={1,8}
  v = f32[30,8] dynamic-update-slice(g, o, k, zero)
  w = f32[30,8] dynamic-update-slice(v, r, zero, zero)
  ROOT t = (s32[], f32[30,8], f32[30,8], f32[8]) tuple(n, u, w, y)
}

condition {
  s = (s32[], f32[30,8], f32[30,8], f32[8]) parameter(0)
  k = s32[] get-tuple-element(s), index=0
  n = s32[] constant(LAST)
  ROOT c = pred[] compare(k, n), direction=LT
}

ENTRY e {
  g = f32[30,8] parameter(0)
  x = f32[8] parameter(1)
  zero = s32[] constant(0)
  nil = f32[] constant(0)
  h = f32[30,8] broadcast(nil), dimensions={}
  t = (s32[], f32[30,8], f32[30,8], f32[8]) tuple(zero, h, g, x)
  l = (s32[], f32[30,8], f32[30,8], f32[8]) while(t), condition=condition, body=body
  a = f32[30,8] get-tuple-element(l), index=1
  b = f32[30,8] get-tuple-element(l), index=2
  ROOT r = (f32[30,8], f32[30,8], f32[30,8]) tuple(a, b, g)
}
"""


def scan(last: int) -> Module:
    return hlo_opt.parse(SCAN.replace("LAST", str(last)))


def test_a_loop_keeps_its_histories() -> None:
    schedule = build_schedule(scan(20))
    loop = next(s for s in schedule.entry.ops if isinstance(s, LoopOp))
    body = schedule.routines[loop.body]
    assert body.donated == ((1, 1), (2, 2)) and loop.updated == (1, 2) and loop.owned == (1,) and loop.copied == (2,), (
        "the broadcast's memory is the loop's, the parameter's is not"
    )
    updates = [op for op in body.ops if isinstance(op, LaunchOp) and op.kernel.aliases]
    assert len(updates) == 3 and not any(isinstance(op, Copy) for op in body.ops)
    text = driver_of(schedule, {k.symbol: "k.cu" for k in schedule.kernels}).text
    assert sum(line.count(".copy()") for line in text.splitlines() if "_state = " in line) == 1


@pytest.mark.parametrize("last", [0, 1, 2, 20])
@pytest.mark.parametrize("backend", ["host", "cupy"])
def test_loops(backend: str, last: int, fake: types.ModuleType) -> None:
    if not has_compiler():
        pytest.skip("no C++ compiler")
    generator = np.random.default_rng(0)
    given = [generator.integers(0, 9, shape).astype(np.float32) for shape in ((30, 8), (8,))]
    agrees(scan(last), *given, backend=backend)
    if backend == "cupy" and last == 20:
        assert fake.graphs, "the loop ran step by step"


def test_a_value_returned_twice_is_no_single_memory(fake: types.ModuleType) -> None:
    """The second leaf still has the old value when the first one is updated."""
    text = SCAN.replace("tuple(n, u, w, y)", "tuple(n, u, u, y)").replace("LAST", "4")
    module = hlo_opt.parse(text)
    schedule = build_schedule(module)
    loop = next(s for s in schedule.entry.ops if isinstance(s, LoopOp))
    assert (1, 1) not in schedule.routines[loop.body].donated
    if has_compiler():
        for backend in ("host", "cupy"):
            agrees(module, np.ones((30, 8), np.float32), np.arange(8, dtype=np.float32), backend=backend)


def test_nested_loops_hand_their_state_down(fake: types.ModuleType) -> None:
    """The outer loop's history is the inner loop's, which writes a row per step."""
    text = SCAN.replace("ENTRY e", "inner").replace(
        "  g = f32[30,8] parameter(0)\n  x = f32[8] parameter(1)\n  zero = s32[] constant(0)\n  nil = f32[] "
        "constant(0)\n"
        "  h = f32[30,8] broadcast(nil), dimensions={}\n",
        "  q = (s32[], f32[30,8], f32[30,8], f32[8]) parameter(0)\n  j = s32[] get-tuple-element(q), index=0\n  one = "
        "s32[] constant(1)\n"
        "  i = s32[] add(j, one)\n  h = f32[30,8] get-tuple-element(q), index=1\n  g = f32[30,8] get-tuple-element(q), "
        "index=2\n"
        "  x = f32[8] get-tuple-element(q), index=3\n  zero = s32[] constant(0)\n",
    )
    text = text.replace(
        "  ROOT r = (f32[30,8], f32[30,8], f32[30,8]) tuple(a, b, g)\n",
        "  y = f32[8] get-tuple-element(l), index=3\n  ROOT r = (s32[], f32[30,8], f32[30,8], f32[8]) tuple(i, a, b, "
        "y)\n",
    )
    entry = (
        SCAN[SCAN.index("ENTRY e") :]
        .replace("body=body", "body=inner")
        .replace("condition=condition", "condition=outer")
    )
    outer = (
        SCAN[SCAN.index("condition {") : SCAN.index("ENTRY e")].replace("condition {", "outer {").replace("LAST", "3")
    )
    module = hlo_opt.parse(text.replace("LAST", "4") + outer + entry)
    schedule = build_schedule(module)
    loop = next(s for s in schedule.entry.ops if isinstance(s, LoopOp))
    assert schedule.routines[loop.body].donated == ((1, 1), (2, 2), (3, 3))
    if has_compiler():
        for backend in ("host", "cupy"):
            agrees(module, np.ones((30, 8), np.float32), np.arange(8, dtype=np.float32), backend=backend)
