"""Kernels of loops that all blocks of a launch share."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from hlo_opt.codegen.emit import emit_kernel
from hlo_opt.codegen.host_plain import watched_unit
from hlo_opt.codegen.lanes import has_lanes, may_spread
from hlo_opt.codegen.tree import GridBarrier, walk
from hlo_opt.diag import CheckError
from hlo_opt.plans import Launch, Plan
from hlo_opt.plans.grid_loop import BLOCK, InGrid
from hlo_opt.plans.grid_search import with_fewer_meetings
from hlo_opt.runtime.host.library import HostLibrary, built, flags_of, has_compiler, takes, units
from hlo_opt.runtime.host.sanitize import _VOLATILE, WATCHED_FLAGS
from tests.codegen.conftest import Tool, empty, region_of_text
from tests.codegen.test_block_loop import CASES as OF_A_BLOCK
from tests.loops import loop, lstm, power
from tests.plans.test_block_loop import passing
from tests.plans.test_grid_loop import FEW, shared

WHOLE = "whole {\n  a = s32[] parameter(0)\n  b = s32[] parameter(1)\n  ROOT c = s32[] add(a, b)\n}\n"
ROW = ("o = s32[] constant(0)", "d = f32[5,900] dynamic-update-slice(x2, w, x0, o)")
NEAR = ["h = f32[900] abs(x1)", "u = f32[900] reverse(h), dimensions={0}", "y = f32[900] add(h, u)"]


def whole(text: str) -> str:
    """With a sum of integers."""
    return text.replace("sum {", WHOLE + "sum {", 1)


def totals(shape: str, dimensions: str, kept: str, start: int) -> str:
    """Sums of integers that go back into all elements they are of."""
    rest = ",".join(str(d) for d in range(shape.count(",") + 1) if str(d) not in dimensions.split(","))
    lines = [f"z = s32[] constant({start})", f"e = s32[{kept}] reduce(x1, z), dimensions={{{dimensions}}}, "
                                             f"to_apply=whole"]  # fmt: skip
    lines += [f"b = s32[{shape}] broadcast(e), dimensions={{{rest}}}", f"y = s32[{shape}] add(x1, b)"]
    return whole(loop([f"s32[{shape}]"], lines, ["y"]))


CASES = {
    **OF_A_BLOCK,
    "large power": power(200, 3),
    "a cell": lstm(24, 5),
    "one round": loop(["f32[900]"], NEAR, ["y"], rounds=1),
    "an even number of rounds": loop(["f32[900]"], NEAR, ["y"], rounds=6),
    "all to one": totals("3000", "0", "", 0),
    "rows": totals("7,300", "1", "7", 5),
    "columns": totals("300,7", "0", "7", 5),
    "the ends of three": totals("30,7,40", "0,2", "7", 1),
    "products across": loop(["s32[100]", "s32[100,100]"], ["y = s32[100] dot(x1, x2), lhs_contracting_dims={0}, "
                                                           "rhs_contracting_dims={0}"], ["y", "x2"]),
    "products of two dimensions": loop(["s32[9,10]", "s32[9,10,9,10]"],
        ["y = s32[9,10] dot(x2, x1), lhs_contracting_dims={2,3}, rhs_contracting_dims={0,1}"], ["y", "x2"]),
    "products of parts": loop(["s32[50]", "s32[83,50]", "s32[33]"],
        ["j = s32[83] concatenate(x1, x3), dimensions={0}",
            "y = s32[50] dot(j, x2), lhs_contracting_dims={0}, rhs_contracting_dims={0}"], ["y", "x2", "x3"]),
    **{f"results from {source}": loop(["f32[900]", "f32[5,900]"], [*NEAR, f"w = f32[1,900] reshape({source})", *ROW],
        ["y", "d"]) for source in ("x1", "h", "y")},
    "results from both sides": loop(["f32[900]", "f32[5,900]"],
        ["u = f32[900] reverse(x1), dimensions={0}", "y = f32[900] negate(u)",
            "v = f32[900] reverse(x1), dimensions={0}", "g = f32[900] add(y, v)", "w = f32[1,900] reshape(g)", *ROW],
                ["y", "d"]),
    "results of rounds that a value ends": loop(["f32[900]", "f32[5,900]"], [*NEAR, "w = f32[1,900] reshape(u)", *ROW],
        ["y", "d"], test=["s = f32[1] slice(x1), slice={[0:1]}", "v = f32[] reshape(s)", "l = f32[] constant(20)",
            "c = pred[] compare(v, l), direction=LT"],
                given=["k = f32[] constant(3)", "g2 = f32[5,900] broadcast(k), dimensions={}"]),
}  # fmt: skip
ROUNDED = ("power", "product", "reduction", "large power", "a cell")
"""Of numbers that are no small whole ones, in another order."""
ALIASED = "places of results that differ by lane"
"""Its output holds what was given before the launch."""


class Shared(Tool):
    """Makes the kernels of few blocks, whatever they would take."""

    def plan(self, text: str) -> Plan:
        return shared(text, FEW)


@pytest.mark.parametrize("form", ["plain", "lanes"])
def test_they_agree(form: Any) -> None:
    tool = Shared(form)
    tool.all_agree([text for name, text in CASES.items() if name not in (ALIASED, *ROUNDED)])
    tool.all_agree([CASES[name] for name in ROUNDED], relative=1e-5)


def fewer(text: str) -> InGrid | None:
    return with_fewer_meetings(region_of_text(text), FEW)


class Fewer(Tool):
    """Makes the kernels with fewer meetings."""

    def plan(self, text: str) -> Plan:
        region = region_of_text(text)
        part = with_fewer_meetings(region, FEW)
        assert part is not None
        launch = Launch(part.blocks, BLOCK, part.shared_bytes(BLOCK), cooperative=True)
        return Plan(region, launch, (part.segment(BLOCK),))


@pytest.mark.parametrize("form", ["plain", "lanes"])
def test_kernels_with_fewer_meetings_agree(form: Any) -> None:
    texts = [text for text in CASES.values() if fewer(text) is not None]
    assert len(texts) > 5
    Fewer(form).all_agree(texts, relative=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_all_blocks_meet_behind_each_phase(name: str) -> None:
    tool = Shared()
    plan, kernel = tool.plan(CASES[name]), tool.kernel(CASES[name])
    part: Any = plan.segments[0].part
    meetings = sum(isinstance(s, GridBarrier) for s in walk(kernel.tree.body))
    each = len(part.phases) + part.waits
    if part.trips is None:
        each = len(part.phases) + part.lasting + 1
    assert meetings == 1 + each * (1 if part.trips is None or part.trips == 1 else 2)
    assert kernel.launch.cooperative and kernel.kept == 8
    assert has_lanes(kernel) and not may_spread(kernel)


def far(size: int) -> str:
    """A loop whose elements need what other threads wrote, in two arrays of a round."""
    shape = f"f32[{size}]"
    lines = [f"h = {shape} reverse(x1), dimensions={{0}}", f"y = {shape} add(h, x2)", f"w = {shape} subtract(x1, h)"]
    return loop([shape, shape], lines, ["y", "w"])


@pytest.mark.parametrize(("read", "phases"), [("y", 1), ("u", 2)])
@pytest.mark.parametrize("size", [900, 3000])
def test_what_a_thread_has_just_computed_needs_no_meeting(read: str, phases: int, size: int) -> None:
    """A speed, and a place that moves by it: also where the sum reads another thread's."""
    shape = f"f32[{size}]"
    lines = [
        f"h = {shape} reverse(x1), dimensions={{0}}",
        f"y = {shape} add(h, x2)",
        f"u = {shape} reverse(y), dimensions={{0}}",
        f"w = {shape} subtract(x1, {read})",
    ]
    text = loop([shape, shape], lines, ["w", "y"])
    part: Any = Shared().plan(text).segments[0].part
    assert len(part.phases) == phases
    for form in ("plain", "lanes"):
        Shared(form).all_agree([text])


def test_what_only_its_own_thread_reads_is_not_written() -> None:
    text = passing(1000)
    part: Any = Shared().plan(text).segments[0].part
    assert [cell.passes for cell in part.cells] == [True, False, False]
    assert [str(shape) for shape in part.scratch] == ["f32[1000,4]", "f32[1000]", "f32[1000,4]"]
    for form in ("plain", "lanes"):
        Shared(form).all_agree([text], relative=1e-5)


@pytest.mark.parametrize("turns", [2, 3, 4, 5, 8, 9])
@pytest.mark.parametrize("rest", [0, 1, 767])
def test_the_turns_of_a_thread_load_before_they_store(turns: int, rest: int) -> None:
    """Else a thread waits for L2 in each turn: a compiler takes no load past a store to memory that it may be from."""
    threads = FEW.core_count * BLOCK
    text = far(turns * threads - rest)
    for form in ("plain", "lanes"):
        Shared(form).all_agree([text])
    source = Shared().kernel(text).source
    first = source.index("hlo_meet_grid(&arrived0[0]);")
    round_ = source[first : source.index("hlo_meet_grid(&arrived0[0]);", first + 1)]
    for store in re.finditer(r"scratch\d\[place_\d+\] = held_(\w+);|scratch\d\[place_\d+\] = (\w+);", round_):
        load = round_.rindex(" = scratch", 0, store.start())
        between = round_[load : store.start()]
        assert "for (" in between, between


def test_what_threads_hand_on_is_not_promised_to_be_theirs_alone() -> None:
    """A compiler may keep what is read through a restricted pointer over a meeting, which it does not see to write
    there."""
    kernel = Shared().kernel(CASES["rows"])
    assert [(p.name.text, p.alone) for p in kernel.tree.parameters] == [
        ("in0", True),
        ("out0", True),
        ("scratch0", False),
        ("scratch1", False),
        ("scratch2", False),
    ]
    assert "int* scratch0" in kernel.source and "int* __restrict__ out0" in kernel.source


def test_a_launch_leaves_the_count_as_the_next_can_take_it() -> None:
    if not has_compiler():
        pytest.skip("no C++ compiler")
    for name in ("one round", "an even number of rounds", "rows"):  # the numbers of meetings are odd and even
        tool = Shared()
        kernel = tool.kernel(CASES[name])
        library = HostLibrary([kernel], form="plain")
        results = []
        for _ in range(3):
            given = [empty(s) for s in kernel.inputs]
            for array in given:
                array[...] = 1
            outputs = [empty(s) for s in kernel.outputs]
            library.launch(kernel, given, outputs)
            results.append(outputs[0].tobytes())
        assert len(set(results)) == 1


MISTAKES = {
    "no meeting": ("rows", "    hlo_meet_grid(&arrived0[0]);\n    {", "    {", r"and \w+ of out\d\[\d+\] by"),
    "one for some blocks": ("rows", "    hlo_meet_grid(&arrived0[0]);\n    {",
        "    if (blockIdx.x) hlo_meet_grid(&arrived0[0]);\n    {", r"which do not come|and \w+ of out\d\[\d+\] by"),
    "no fence": ("rows", "  if (threadIdx.x == 0) {\n    "
                         "hlo_fence();", "  if (threadIdx.x == 0) {", "before what it wrote is fenced"),
    "nobody waits": ("rows", "while (((before ^", "while (0 && ((before ^", "by two blocks"),
    "no barrier before warps' parts are read": ("rows", "      __syncthreads();\n", "",
        "of shared memory|read before it is written"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_seen(name: str) -> None:
    """By the plain form, or by the watch over races."""
    if not has_compiler():
        pytest.skip("no C++ compiler")
    case, good, bad, message = MISTAKES[name]
    kernel = Shared().kernel(CASES[case])
    assert good in kernel.source
    told = _VOLATILE[0] if takes(_VOLATILE[0][0]) else _VOLATILE[1]
    for source, is_wrong in ((kernel.source, False), (kernel.source.replace(good, bad, 1), True)):
        tried = replace(kernel, source=source)
        path = built(units([tried], watched_unit), (*flags_of("plain"), *WATCHED_FLAGS, *told))
        library = HostLibrary([tried], str(path))
        found = None
        for _ in range(4):  # in another order of blocks each time
            given, outputs = [empty(s) for s in kernel.inputs], [empty(s) for s in kernel.outputs]
            try:
                library.launch(tried, given, outputs)
            except CheckError as error:
                found = found or error
        assert (found is not None) == is_wrong, found
        if found is not None:
            assert re.search(message, found.message), found.message


def test_the_kernel_of_a_plan_is_the_same_every_time() -> None:
    text = CASES["large power"]
    assert emit_kernel(shared(text)).source == emit_kernel(shared(text)).source
