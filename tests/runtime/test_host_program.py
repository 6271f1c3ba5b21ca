"""Compiled schedules: loops, conditionals and calls over buffers with places, against the interpreter."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import hlo_opt
from hlo_opt.diag import EvaluationError
from hlo_opt.runtime.executable import Executable, compile
from hlo_opt.runtime.host import program as host_program
from hlo_opt.runtime.host.library import has_compiler
from hlo_opt.runtime.host.program import HostProgram
from hlo_opt.runtime.schedule.lifetimes import Arena

pytestmark = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")

LOOP = """HloModule m

inner_body {
  p = (s32[], f32[4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[4] get-tuple-element(p), index=1
  t = f32[4] get-tuple-element(p), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[4] add(x, t)
  ROOT r = (s32[], f32[4], f32[4]) tuple(j, y, t)
}

inner_condition {
  p = (s32[], f32[4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  three = s32[] constant(3)
  ROOT c = pred[] compare(i, three), direction=LT
}

body {
  p = (s32[], f32[4], f32[4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  a = f32[4] get-tuple-element(p), index=1
  b = f32[4] get-tuple-element(p), index=2
  t = f32[4] get-tuple-element(p), index=3
  zero = s32[] constant(0)
  s = (s32[], f32[4], f32[4]) tuple(zero, a, t)
  w = (s32[], f32[4], f32[4]) while(s), condition=inner_condition, body=inner_body
  c = f32[4] get-tuple-element(w), index=1
  u = f32[4] get-tuple-element(w), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT r = (s32[], f32[4], f32[4], f32[4]) tuple(j, b, c, u)
}

condition {
  p = (s32[], f32[4], f32[4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(LAST)
  ROOT c = pred[] compare(i, n), direction=LT
}

ENTRY e {
  x = f32[4] parameter(0)
  t = f32[4] parameter(1)
  zero = s32[] constant(0)
  s = (s32[], f32[4], f32[4], f32[4]) tuple(zero, x, t, t)
  w = (s32[], f32[4], f32[4], f32[4]) while(s), condition=condition, body=body
  a = f32[4] get-tuple-element(w), index=1
  b = f32[4] get-tuple-element(w), index=2
  u = f32[4] get-tuple-element(w), index=3
  ROOT r = (f32[4], f32[4], f32[4], f32[4]) tuple(a, b, u, x)
}
"""


def program(executable: Executable) -> HostProgram:
    """What runs it."""
    made = executable._executor
    assert isinstance(made, HostProgram)
    return made


@pytest.mark.parametrize("last", [0, 1, 2, 5])
def test_loops_that_exchange_and_hand_on(last: int) -> None:
    module = hlo_opt.parse(LOOP.replace("LAST", str(last)))
    x, t = np.arange(4, dtype=np.float32), np.full(4, 10, np.float32)
    executable = compile(module)
    for _ in range(2):  # also on memory that a run has left
        got = executable(x, t)
        for g, w in zip(got, hlo_opt.evaluate(module, [x, t]), strict=True):
            np.testing.assert_array_equal(g, w)
    assert x.tolist() == [0, 1, 2, 3] and t.tolist() == [10] * 4


def test_what_a_loop_hands_on_is_never_copied() -> None:
    executable = compile(hlo_opt.parse(LOOP.replace("LAST", "5").replace("[4]", "[100000]")))
    # two leaves go back and forth, and so does that of the inner loop; the third stays where the caller has it
    assert program(executable).memory["buffers"] < 4.1 * 400_000


def test_steps_are_limited_and_counted() -> None:
    module = hlo_opt.parse(LOOP.replace("LAST", "5"), filename="m.hlo")
    arguments = np.zeros(4, np.float32), np.zeros(4, np.float32)
    compile(module, max_steps=20)(*arguments)
    with pytest.raises(EvaluationError, match=r"goes on after 1 iterations \(10 with") as caught:
        compile(module, max_steps=10)(*arguments)
    assert caught.value.code == "HLO402" and caught.value.line == 29


BRANCH = """HloModule m

half { p = (f32[3], TYPE[]) parameter(0)
  x = f32[3] get-tuple-element(p), index=0
  ROOT t = (f32[3], f32[3]) tuple(x, x) }

double { x = f32[3] parameter(0)
  y = f32[3] add(x, x)
  ROOT t = (f32[3], f32[3]) tuple(y, x) }

ENTRY e {
  s = TYPE[] parameter(0)
  x = f32[3] parameter(1)
  p = (f32[3], TYPE[]) tuple(x, s)
  ROOT c = (f32[3], f32[3]) conditional(s, p, x), BRANCHES
}
"""
PAIR = "true_computation=half, false_computation=double"


@pytest.mark.parametrize(
    ("kind", "branches", "selectors"),
    [("pred", PAIR, [False, True]), ("s32", "branch_computations={half, double}", [0, 1, -1, 7])],
)
def test_branches(kind: str, branches: str, selectors: list[int]) -> None:
    module = hlo_opt.parse(BRANCH.replace("TYPE", kind).replace("BRANCHES", branches))
    executable, x = compile(module), np.arange(3, dtype=np.float32)
    for value in selectors:
        s = np.array(value, np.bool_ if kind == "pred" else np.int32)
        for g, w in zip(executable(s, x), hlo_opt.evaluate(module, [s, x]), strict=True):
            np.testing.assert_array_equal(g, w)


LIBRARY = """HloModule m
ENTRY e {
  x = f32[3,3]{0,1} parameter(0)
  y = f32[3,3]{1,0} parameter(1)
  d = f32[3,3]{0,1} dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT n = f32[3,3]{0,1} negate(d)
}
"""


def test_library_calls_and_layouts() -> None:
    x, y = np.arange(9, dtype=np.float32).reshape(3, 3), np.eye(3, dtype=np.float32) * 2
    np.testing.assert_array_equal(compile(hlo_opt.parse(LIBRARY))(x, y)[0], -2 * x)


def test_a_fault_of_a_library_call_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    executable = compile(hlo_opt.parse(LIBRARY.replace("f32", "s64")))

    def broken(*arguments: object) -> None:
        raise MemoryError("no more")

    monkeypatch.setattr(host_program.Reference, "leaves_of", broken)
    with pytest.raises(MemoryError, match="no more"):
        executable(np.zeros((3, 3), np.int64), np.zeros((3, 3), np.int64))


@pytest.mark.parametrize("threads", ["2", "3", "7"])
def test_a_loop_whose_kernels_processors_share(threads: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLO_OPT_THREADS", threads)
    text = """HloModule m
body {
  s = (s32[], f32[511,513]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(n, one)
  x = f32[511,513] get-tuple-element(s), index=1
  turned = f32[511,513] reverse(x), dimensions={0,1}
  half = f32[] constant(0.5)
  halves = f32[511,513] broadcast(half), dimensions={}
  less = f32[511,513] multiply(turned, halves)
  y = f32[511,513] add(x, less)
  ROOT r = (s32[], f32[511,513]) tuple(next, y)
}
test {
  s = (s32[], f32[511,513]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  most = s32[] constant(12)
  ROOT t = pred[] compare(n, most), direction=LT
}
ENTRY e {
  zero = s32[] constant(0)
  x = f32[511,513] parameter(0)
  s = (s32[], f32[511,513]) tuple(zero, x)
  w = (s32[], f32[511,513]) while(s), condition=test, body=body
  ROOT r = f32[511,513] get-tuple-element(w), index=1
}
"""
    x = wanted = np.random.default_rng(0).uniform(-1, 1, (511, 513)).astype(np.float32)
    for _ in range(12):
        wanted = wanted + wanted[::-1, ::-1] * np.float32(0.5)
    executable = compile(hlo_opt.parse(text))
    for _ in range(5):
        np.testing.assert_array_equal(executable(x)[0], wanted)


def test_runs_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLO_OPT_THREADS", "3")
    text = (
        "HloModule m\nENTRY e {\n  x = f32[2000000] parameter(0)\n  y = f32[2000000] exponential(x)\n  ROOT z = "
        "f32[2000000] add(y, x)\n}\n"
    )
    executable = compile(hlo_opt.parse(text))
    wrong: list[int] = []

    def run(number: int) -> None:
        data = np.full(2_000_000, number, np.float32)
        for _ in range(3):
            got = executable(data)[0]
            if not np.allclose(got, np.exp(number) + number):
                wrong.append(number)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_report_has_memory() -> None:
    executable = compile(hlo_opt.parse(LIBRARY))
    memory = executable.report()["memory"]
    assert memory["inputs"] == 72 and memory["outputs"] == 36 and memory["buffers"] == 64
    assert memory["peak"] == sum(v for k, v in memory.items() if k != "peak")


def test_buffers_of_whole_pages_lie_no_whole_pages_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else loads from one wait for stores into another."""
    body = """HloModule m

less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT
}

body {
  p = (s32[], f32[4096], f32[4096]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[4096] get-tuple-element(p), index=1
  y = f32[4096] get-tuple-element(p), index=2
  z = f32[4096] sort(x), dimensions={0}, to_apply=less
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT r = (s32[], f32[4096], f32[4096]) tuple(j, y, z)
}

condition {
  p = (s32[], f32[4096], f32[4096]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  five = s32[] constant(5)
  ROOT c = pred[] compare(i, five), direction=LT
}

ENTRY e {
  s = (s32[], f32[4096], f32[4096]) parameter(0)
  ROOT w = (s32[], f32[4096], f32[4096]) while(s), condition=condition, body=body
}
"""
    places = set[int]()
    take = Arena.take

    def noted(arena: Arena, count: int) -> int:
        offset = take(arena, count)
        places.update([offset] * (count >= 4 * 4096))
        return offset

    monkeypatch.setattr(Arena, "take", noted)
    compile(hlo_opt.parse(body))
    assert len(places) > 1 and len({place % 4096 for place in places}) == len(places)


SCATTER = """HloModule m

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

body {
  p = (s32[], f32[5000], f32[2]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[5000] get-tuple-element(p), index=1
  u = f32[2] get-tuple-element(p), index=2
  pair = s32[2] broadcast(i), dimensions={}
  y = f32[5000] scatter(x, pair, u), to_apply=add, update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT r = (s32[], f32[5000], f32[2]) tuple(j, y, u)
}

condition {
  p = (s32[], f32[5000], f32[2]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(9)
  ROOT c = pred[] compare(i, n), direction=LT
}

ENTRY e {
  x = f32[5000] parameter(0)
  u = f32[2] parameter(1)
  zero = s32[] constant(0)
  s = (s32[], f32[5000], f32[2]) tuple(zero, x, u)
  w = (s32[], f32[5000], f32[2]) while(s), condition=condition, body=body
  ROOT y = f32[5000] get-tuple-element(w), index=1
}
"""


def test_a_loop_updates_its_state_in_place() -> None:
    module = hlo_opt.parse(SCATTER)
    executable = compile(module)
    x, u = np.arange(5000, dtype=np.float32), np.array([1, 2], np.float32)
    np.testing.assert_array_equal(executable(x, u)[0], hlo_opt.evaluate(module, [x, u])[0])
    assert x[0] == 0
    kernels = program(executable).schedule.kernels
    assert any(k.aliases and k.own for k in kernels)
    # the state lies where the output is wanted, and in no second place
    assert program(executable).memory["buffers"] < 20_000


@pytest.mark.parametrize("sizes", [(1, 1, 1), (6, 16, 384), (7, 17, 385), (50, 1030, 3), (100, 33, 800)])
@pytest.mark.parametrize("turned", [(0, 0, 0), (1, 0, 1), (0, 1, 0), (1, 1, 1)])
def test_products_of_matrices(sizes: tuple[int, int, int], turned: tuple[int, int, int]) -> None:
    """Sizes around the edges of tiles and pieces; contracted dimensions and layouts either way."""
    (m, n, k), (t, u, v) = sizes, turned
    left, right = ((k, m), (n, k)) if t else ((m, k), (k, n))
    text = f"""HloModule m
ENTRY e {{
  x = f32[{left[0]},{left[1]}]{{{u},{1 - u}}} parameter(0)
  y = f32[{right[0]},{right[1]}]{{{v},{1 - v}}} parameter(1)
  ROOT d = f32[{m},{n}]{{{1 - u},{u}}} dot(x, y), lhs_contracting_dims={{{1 - t}}}, rhs_contracting_dims={{{t}}}
}}
"""
    generator = np.random.default_rng(0)
    x = generator.standard_normal(left).astype(np.float32)
    y = generator.standard_normal(right).astype(np.float32)
    want = (x.T if t else x).astype(np.float64) @ (y.T if t else y).astype(np.float64)
    got = compile(hlo_opt.parse(text))(x, y)[0]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.sqrt(k))


def test_a_call_that_nobody_knows_is_shown_in_the_text() -> None:
    text = (
        "HloModule m\n\nENTRY e {\n  p = f32[4]{0} parameter(0)\n  c = f32[4]{0} custom-call(p), "
        'custom_call_target="nope"\n  ROOT n = f32[4]{0} negate(c)\n}\n'
    )
    with pytest.raises(hlo_opt.EvaluationError, match="HLO404") as caught:
        compile(hlo_opt.parse(text, filename="m.hlo"), backend="host")(np.zeros(4, np.float32))
    assert (caught.value.line, caught.value.column) == (5, 3)
