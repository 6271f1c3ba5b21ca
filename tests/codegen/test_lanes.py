"""Kernels whose threads do not meet, as lanes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from hlo_opt.codegen.kernel import Kernel
from hlo_opt.codegen.lanes import lanes_unit, may_spread
from hlo_opt.codegen.statements import BLOCK, THREAD
from hlo_opt.codegen.tree import Assign, BlockRange, DeclaredArray, Do, Leave, Let, Neighbours, Statement
from hlo_opt.ir import ELEMENT_TYPES, array
from hlo_opt.ir.index_map import Condition, Variable, add, modulo, multiply
from hlo_opt.ops.code import Code, Name, address, call, cell, code
from hlo_opt.plans.plan import Launch
from hlo_opt.runtime.host.library import HostLibrary, has_compiler
from tests.host_text import run_on_host
from tests.written_kernels import of_tree

IN, OUT = Name("in0"), Name("out0")
NUMBER, READ, AT = Name("s0"), Name("read0"), Name("linear_2")
SIZE, COUNT = 4, 150
THREAD_NUMBER = Variable(0, COUNT - 1, "thread")
needs_compiler = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")


def kernel(symbol: str, body: Sequence[Statement], blocks: int = 4, size: int = 170) -> Kernel:
    shape = array(ELEMENT_TYPES["f32"], size)
    return of_tree(symbol, body, Launch(blocks, 64), [shape], [shape])


def run(made: Kernel) -> np.ndarray[Any, Any]:
    size = made.inputs[0].element_count
    data, out = np.arange(size, dtype=np.float32), np.full(size, -1, np.float32)
    HostLibrary([made]).launch(made, [data], [out])
    return out


def part(
    name: str, first: int, last: int, count: int, offset: int, template: str, *, leaves: bool = True
) -> BlockRange:
    """Some blocks' threads compute an element each; those beyond the last one leave."""
    i = Name(name)
    here = Let("int", i, code("{} * 64 + {} - {}", BLOCK, THREAD, first * 64))
    at = code("{} + {}", i, offset)
    leave = [Leave(code("{} >= {}", i, count))] * leaves
    return BlockRange(first, last, [here, *leave, Assign(cell(OUT, at), code(template, cell(IN, at)))])


@needs_compiler
def test_segments_are_functions_of_their_own() -> None:
    """A thread that leaves one segment does not leave another."""
    made = kernel("segments", [part("i", 0, 2, 100, 0, "{} + 1.0f"), part("j", 2, 4, 70, 100, "{} * 2.0f")])
    text = lanes_unit([made])
    assert "segments_thread_0(" in text and "segments_thread_1(" in text
    want = np.arange(170, dtype=np.float32)
    np.testing.assert_array_equal(run(made), np.where(want < 100, want + 1, want * 2))


@needs_compiler
def test_threads_leave_in_one_segment_of_several() -> None:
    segments = [part("i", 0, 1, 64, 0, "{} + 1.0f", leaves=False), part("j", 1, 3, 70, 64, "{} * 2.0f")]
    segments.append(part("k", 3, 4, 30, 134, "{} - 1.0f"))
    want = np.arange(170, dtype=np.float32)
    want = np.where(want < 64, want + 1, np.where(want < 134, want * 2, np.where(want < 164, want - 1, -1)))
    made = kernel("leave_one", segments)
    np.testing.assert_array_equal(run(made), want)
    launcher = lanes_unit([made]).split('extern "C"')[-1]
    assert launcher.count("leave_one_thread_0(") == 1  # nobody leaves: all blocks in one loop
    assert launcher.count("leave_one_thread_1(") == 2  # the last block by itself


@needs_compiler
def test_atomic_updates_of_one_place_are_all_done() -> None:
    made = kernel("sum", [Do(call("atomicAdd", address(OUT, 0), cell(IN, code("{} * 64 + {}", BLOCK, THREAD))))], 2)
    assert not may_spread(made) and "omp simd" not in lanes_unit([made]).split("namespace kernel_0")[1]
    assert run(made)[0] == np.arange(128).sum() - 1


# ---- neighbouring elements


def vectors(*, digits: int = 0, inner: str = "") -> tuple[list[Statement], Neighbours]:
    """Each thread takes `SIZE` neighbours; digits of the place are used where asked for, and `inner` is a name that is
    mentioned besides."""
    thread = Name("thread")
    own = add(multiply(Variable(0, 2, BLOCK.text), 64), Variable(0, 63, THREAD.text))
    here = Let("int", thread, code("{} * 64 + {}", BLOCK, THREAD), is_index=True, expression=own)
    place = add(multiply(THREAD_NUMBER, SIZE), Variable(0, SIZE - 1, "s0"))

    def at(name: str) -> Let:
        return Let("int", Name(name), code("{} * {} + {}", thread, SIZE, NUMBER), is_index=True, expression=place)

    group = Neighbours(SIZE, NUMBER, [DeclaredArray("float", READ, SIZE)])
    group.reading += [at("linear"), Assign(cell(READ, NUMBER), cell(IN, Name("linear")))]
    row = Name("row")
    known = Variable(place.low, place.high, AT.text)
    value = code("{} + {}", cell(READ, NUMBER), Name(inner) if inner else "1.0f")
    if digits:
        value = code("{} + (float){}", value, row)
        let = Let("int", row, code("{} % {}", AT, digits), is_index=True, expression=modulo(known, digits))
        group.writing += [at("linear_2"), let, Assign(cell(OUT, AT), value)]
    else:
        group.writing += [at("linear_2"), Assign(cell(OUT, AT), value)]
    beyond = Condition(Variable(0, 191, "thread"), COUNT, 191)
    return [here, Leave(Code(code("{} >= {}", thread, COUNT).pieces, says=(beyond,))), group], group


@needs_compiler
@pytest.mark.parametrize("digits", [0, 7, 4, 256, 64])
def test_vectors_are_spread(digits: int) -> None:
    """Neighbouring threads take neighbouring elements, and a digit stays what it is."""
    body, _ = vectors(digits=digits)
    made = kernel(f"vectors_{digits}", body, 3, COUNT * SIZE)
    text = lanes_unit([made])
    assert digits != 64 or "chunk * 64 < " in text
    assert "for (int s0" not in text and "read0[" not in text
    at = np.arange(COUNT * SIZE, dtype=np.float32)
    np.testing.assert_array_equal(run(made), at + 1 + (at % digits if digits else 0))


def changed(change: Any) -> list[Statement]:
    body, group = vectors()
    change(body, group)
    return body


def let(name: str, value: str) -> Let:
    return Let("int", Name(name), code(value))


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(changed(lambda b, g: b.append(Do(code("f()")))), id="something behind"),
        pytest.param(changed(lambda b, g: b.insert(2, Do(code("f()")))), id="something in front"),
        pytest.param(
            changed(lambda b, g: g.bits.append(DeclaredArray("unsigned", Name("bits"), 1))), id="bytes are filled"
        ),
    ],
)
def test_what_is_not_spread(body: list[Statement]) -> None:
    assert "for (int s0 = 0; s0 < 4; ++s0) {" in lanes_unit([kernel("loop_of_vector", body, 3, COUNT * SIZE)])


@needs_compiler
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(vectors(inner="thread")[0], id="the thread's number is used besides"),
        pytest.param(changed(lambda b, g: setattr(b[0], "expression", None)), id="a thread's number that nobody knows"),
        pytest.param(changed(lambda b, g: setattr(g.writing[0], "expression", None)), id="a place that nobody knows"),
    ],
)
def test_elements_of_a_vector_know_their_thread(body: list[Statement]) -> None:
    at = np.arange(COUNT * SIZE)
    uses_thread = any(n.text == "thread" for n in body[2].writing[-1].value.names())  # type: ignore[union-attr]
    made = run(kernel("elements_of_vector", body, 3, COUNT * SIZE))
    np.testing.assert_array_equal(made, at + (at // SIZE if uses_thread else 1.0))


# ---- digits of positions


@pytest.mark.parametrize(("rows", "columns"), [(5, 128), (3, 256), (7, 384), (1, 512), (2, 130), (33, 64), (1030, 512)])
def test_digits_stay_what_they_are(tool: Any, rows: int, columns: int) -> None:
    tool.agrees(
        f"""HloModule m

ENTRY e {{
  p = s32[{rows},{columns}]{{1,0}} parameter(0)
  q = s32[{columns}]{{0}} parameter(1)
  r = s32[{rows}]{{0}} parameter(2)
  a = s32[{rows},{columns}]{{1,0}} broadcast(q), dimensions={{1}}
  b = s32[{rows},{columns}]{{1,0}} broadcast(r), dimensions={{0}}
  c = s32[{rows},{columns}]{{1,0}} add(p, a)
  ROOT d = s32[{rows},{columns}]{{1,0}} subtract(c, b)
}}
"""
    )


def test_a_segment_without_meetings_runs_as_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a segment whose threads meet: as a part of that one, its lanes would divide and gather."""
    body = """f {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY e {
  x = f32[6,900] parameter(0)
  y = f32[40,20] parameter(1)
  c = f32[40] parameter(2)
  z = f32[] constant(0)
  s = f32[6] reduce(x, z), dimensions={1}, to_apply=f
  d = f32[40,20] broadcast(c), dimensions={0}
  v = f32[40,20] multiply(y, d)
  ROOT t = (f32[6], f32[40,20]) tuple(s, v)
}
"""
    generator = np.random.default_rng(0)
    x, y, c = (generator.standard_normal(shape).astype(np.float32) for shape in ((6, 900), (40, 20), 40))
    (sums, scaled), text = run_on_host(body, x, y, c, monkeypatch=monkeypatch)
    np.testing.assert_allclose(sums, x.sum(1), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(scaled, y * c[:, None])
    of_block, launcher = text.split("launch_", 1)
    assert "long long row" in launcher
    assert "out1[" not in of_block[: of_block.index("__global__")]
