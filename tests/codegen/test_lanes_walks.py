"""Walks of a block over an array, as loops over its rows."""

from __future__ import annotations

from typing import Any

import pytest

from hlo_opt.analysis.targets import InLanes
from hlo_opt.codegen.emit import emit_kernel
from hlo_opt.codegen.lanes import as_loops
from hlo_opt.codegen.lanes_walks import walk_lines
from hlo_opt.codegen.statements import THREAD
from hlo_opt.codegen.tree import Assign, Let, StrideLoop, walk
from hlo_opt.ir.index_map import Variable
from hlo_opt.ops.code import Name, cell, code
from hlo_opt.plans import Plan
from hlo_opt.plans.choose import plan
from tests.codegen.conftest import region_of_text
from tests.loops import loop
from tests.plans.test_lane_loop import planned
from tests.small_modules import H100


def rolled(shape: str, dimension: int, sizes: list[int], steps: int, name: str, value: str = "x1") -> list[str]:
    """The lines of `jnp.roll` by `steps`."""
    rank = len(sizes)

    def part(low: int, high: int, suffix: str) -> str:
        own = [f"[{low}:{high}]" if d == dimension else f"[0:{sizes[d]}]" for d in range(rank)]
        cut = ",".join(str(high - low if d == dimension else sizes[d]) for d in range(rank))
        return f"{name}{suffix} = f32[{cut}] slice({value}), slice={{{','.join(own)}}}"

    end = sizes[dimension] - steps
    return [
        part(end, sizes[dimension], "a"),
        part(0, end, "b"),
        f"{name} = {shape} concatenate({name}a, {name}b), dimensions={{{dimension}}}",
    ]


def stencil(sizes: list[int], moves: list[tuple[int, int]]) -> str:
    """A loop that adds neighbours: (dimension, steps)."""
    shape = f"f32[{','.join(map(str, sizes))}]"
    lines, last = list[str](), "x1"
    for number, (dimension, steps) in enumerate(moves):
        lines += [*rolled(shape, dimension, sizes, steps, f"q{number}"), f"v{number} = {shape} add({last}, q{number})"]
        last = f"v{number}"
    lines += [
        "h = f32[] constant(0.5)",
        f"b = {shape} broadcast(h), dimensions={{}}",
        f"y = {shape} multiply({last}, b)",
    ]
    return loop([shape], lines, ["y"], rounds=2)


CASES = {
    "a line": stencil([1024], [(0, 1), (0, 1023)]),
    "a line of a prime": stencil([127], [(0, 1), (0, 126)]),
    "further away": stencil([96], [(0, 1), (0, 2), (0, 5), (0, 90)]),
    "rows": stencil([24, 16], [(1, 1), (1, 15), (0, 1), (0, 23)]),
    "rows further away": stencil([40, 20], [(1, 2), (1, 17), (0, 3), (0, 38)]),
    "short rows": stencil([64, 5], [(1, 1), (0, 1), (0, 63)]),
    "three dimensions": stencil([4, 6, 16], [(2, 1), (1, 1), (0, 1)]),
    "a pad": loop(["f32[64]"], ["z = f32[] constant(0)", "p = f32[66] pad(x1, z), padding=1_1",
        "l = f32[64] slice(p), slice={[0:64]}", "m = f32[64] slice(p), slice={[2:66]}", "y = f32[64] add(l, m)"], ["y"],
            rounds=3),
}  # fmt: skip


def test_they_agree(tool: Any) -> None:
    tool.all_agree(list(CASES.values()))


def test_a_row_is_cut_where_a_condition_changes() -> None:
    plan = planned(CASES["a line"])
    assert isinstance(plan, Plan)
    text = as_loops(emit_kernel(plan))
    assert text is not None
    for first, end in ((0, 1), (1, 1023), (1023, 1024)):
        assert f"for (int hlo_lane = {first}; hlo_lane < {end}; ++hlo_lane)" in text
    assert "if (" not in text


def largest_around(kind: str, lanes: int) -> str:
    """A loop that takes the largest of an element and its neighbours."""
    shape, moves = f"{kind}[8,{lanes}]", [(1, 1), (1, lanes - 1), (0, 1)]
    lines, last = list[str](), "x1"
    for number, (dimension, steps) in enumerate(moves):
        lines += [s.replace("f32", kind) for s in rolled(shape, dimension, [8, lanes], steps, f"q{number}")]
        lines.append(f"y{number} = {shape} maximum({last}, q{number})")
        last = f"y{number}"
    return loop([shape], lines, [last], rounds=3)


@pytest.mark.parametrize(
    ("kind", "lanes", "expected"),
    [
        ("f32", 64, [(1, 49), (47, 63)]),
        ("f32", 24, [(1, 17), (7, 23)]),
        ("f32", 18, [(1, 17)]),  # a whole vector
        ("f32", 22, [(1, 21)]),  # the rest is one shorter vector
        ("f32", 600, [(1, 599)]),  # the rest is little of many
        ("u8", 64, [(1, 33), (31, 63)]),
        ("u8", 22, [(1, 21)]),  # less than half a vector
    ],
)
def test_a_part_ends_with_a_whole_vector(kind: str, lanes: int, expected: list[tuple[int, int]]) -> None:
    """Of 16 floats, or of 64 bytes; of half as many where a part is shorter."""
    made = plan(region_of_text(largest_around(kind, lanes)), InLanes.of(H100))
    assert isinstance(made, Plan)
    text = as_loops(emit_kernel(made))
    assert text is not None
    for low, high in expected:
        assert f"for (int hlo_lane = {low}; hlo_lane < {high}; ++hlo_lane)" in text


@pytest.mark.parametrize(("kind", "lanes"), [("f32", 64), ("f32", 24), ("u8", 64), ("bf16", 47)])
def test_lanes_that_run_twice_write_the_same(kind: str, lanes: int, tool: Any) -> None:
    tool.agrees(largest_around(kind, lanes))


PLACE, AT = Variable(0, 63, "place"), Name("place")


def test_lanes_of_a_narrow_product_read_along_rows(tool: Any) -> None:
    lines = ["d = f32[16,4] dot(x2, x1), lhs_contracting_dims={1}, rhs_contracting_dims={0}", "y = f32[16,4] tanh(d)"]
    narrow = loop(["f32[16,4]", "f32[16,16]"], lines, ["y", "x2"])
    tool.agrees(narrow, relative=1e-5)
    made = plan(region_of_text(narrow), InLanes.of(H100))
    assert isinstance(made, Plan)
    text = as_loops(emit_kernel(made))
    assert text is not None
    assert "hlo_lane < 4; " in text and "hlo_lane * 16" not in text  # a lane's place in the first matrix


def element(*names: str, start: Variable | None = None, end: int = 64, stride: int = 32) -> StrideLoop:
    """A walk that reads `names` and writes an array."""
    value = code(" + ".join(["{}"] * len(names)), *map(Name, names))
    body = [Let("float", Name("x"), cell(Name("given"), AT)), Assign(cell(Name("made"), AT), value)]
    return StrideLoop("int", AT, start or Variable(0, stride - 1, THREAD.text), end, stride, body=body)


def test_what_is_a_walk_over_elements() -> None:
    assert walk_lines(element("x"), {"round"}, {}) is not None
    assert walk_lines(element("x", "round"), {"round"}, {}) is not None
    assert walk_lines(element("x", "kept"), {"round"}, {}) is None  # what the thread has found before
    assert walk_lines(element("x", start=Variable(0, 31, "other")), {"round"}, {}) is None
    assert walk_lines(element("x", THREAD.text), {"round"}, {}) is None


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_left_of_the_threads(name: str) -> None:
    plan = planned(CASES[name])
    assert isinstance(plan, Plan)
    kernel = emit_kernel(plan)
    text = as_loops(kernel)
    walks = [s for s in walk(kernel.tree.body) if isinstance(s, StrideLoop)]
    assert text is not None and walks and "hlo_thread" not in text
