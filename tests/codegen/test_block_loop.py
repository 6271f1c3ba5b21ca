"""Kernels of loops that one block owns."""

from __future__ import annotations

from typing import Any

import pytest

from hlo_opt.codegen.emit import emit_kernel
from hlo_opt.codegen.tree import Barrier, DeclaredArray, StrideLoop, walk
from hlo_opt.plans import Plan
from hlo_opt.plans.block_loop import InBlock
from tests.loops import COUPLED, loop
from tests.ops.test_extremes import step
from tests.plans.test_block_loop import POWER, chain, passing, phases
from tests.plans.test_lane_loop import planned


def recurrence(shape: str, window: str, *, earlier: str, later: str) -> str:
    """A loop of rounds of `q = k * q + v` along a dimension, by a cumulative window of both arrays."""
    (factor, sum_), (next_, term) = earlier.split(", "), later.split(", ")
    lines = [
        "i = s32[] constant(1)",
        "o = s32[] constant(0)",
        f"w = ({shape}, {shape}) reduce-window(x1, x2, i, o), window={{{window}}}, to_apply=joined",
        f"y = {shape} get-tuple-element(w), index=1",
    ]
    parameters = "".join(f"  {name} = s32[] parameter({n})\n" for n, name in enumerate("abcd"))
    body = (
        f"  f = s32[] multiply({factor}, {next_})\n  g = s32[] multiply({next_}, {sum_})\n  h = s32[] add(g, {term})\n"
    )
    reducer = f"joined {{\n{parameters}{body}  ROOT t = (s32[], s32[]) tuple(f, h)\n}}\n\n"
    return loop([shape, shape], lines, ["x1", "y"]).replace("body {", reducer + "body {", 1)


CASES = {
    **{name: text for name, text in COUPLED.items() if isinstance(planned(text), Plan)},
    "power": loop(["f32[64]", "f32[64,64]"], POWER, ["y", "x2"], rounds=20),
    "one element, and a sum of it": loop(["f32[64]", "f32[1]", "f32[1]"],
        ["q = f32[64] reverse(x1), dimensions={0}", "v = f32[64] add(x1, q)", "y = f32[1] add(x2, x3)",
            "o = f32[] constant(0)", "e = f32[] reduce(y, o), dimensions={0}, to_apply=sum",
            "b = f32[1] broadcast(e), dimensions={}", "w = f32[1] subtract(x3, b)"], ["v", "y", "w"]),
    "bf16": loop(["bf16[65]"], ["q = bf16[65] reverse(x1), dimensions={0}", "y = bf16[65] add(x1, q)"], ["y"]),
    "pred": loop(["pred[600]"], ["q = pred[600] reverse(x1), dimensions={0}", "y = pred[600] xor(x1, q)"], ["y"]),
    "an array before and after a row of it is written": loop(["f32[5,20]", "f32[5,20]", "f32[20]"],
        ["y = f32[20] reverse(x3), dimensions={0}", "u = f32[1,20] reshape(y)", "o = s32[] constant(0)",
            "d = f32[5,20] dynamic-update-slice(x1, u, x0, o)"], ["d", "x1", "y"]),
    "updates of rows": loop(["f32[8,3]", "s32[40]", "f32[40,3]"],
        ["k = s32[] constant(11)", "ks = s32[40] broadcast(k), dimensions={}", "m = s32[40] remainder(x2, ks)",
            "q = f32[8,3] reverse(x1), dimensions={0}", "y = f32[8,3] scatter(q, m, x3), update_window_dims={1}, "
            "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum"],
                ["y", "x2", "x3"]),
    "updates of elements": loop(["f32[4,5]", "s32[2,5,6]", "f32[5,6]"],
        ["k = s32[] constant(6)", "ks = s32[2,5,6] broadcast(k), dimensions={}", "m = s32[2,5,6] remainder(x2, ks)",
            "q = f32[4,5] reverse(x1), dimensions={0}", "y = f32[4,5] scatter(q, m, x3), update_window_dims={}, "
            "inserted_window_dims={0,1}, scatter_dims_to_operand_dims={1,0}, index_vector_dim=0, to_apply=sum"],
                ["y", "x2", "x3"]),
    "updates of places that 64 bits name": loop(["f32[8]", "f32[8]"],
        ["i = s64[8] iota(), iota_dimension=0", "k = s64[] constant(4294967297)",
            "ks = s64[8] broadcast(k), dimensions={}", "m = s64[8] multiply(i, ks)",
            "q = f32[8] reverse(x1), dimensions={0}", "y = f32[8] scatter(q, m, x2), update_window_dims={}, "
            "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum"],
                ["y", "x2"]),
    "sums up to each": loop(["f32[300]"],
        ["z = f32[] constant(0)", "q = f32[300] reduce-window(x1, z), window={size=300 pad=299_0}, to_apply=sum",
            "h = f32[] constant(0.015625)", "hs = f32[300] broadcast(h), dimensions={}",
                "y = f32[300] multiply(q, hs)"], ["y"], rounds=2),
    "sums from each on": loop(["s32[3,70]"],
        ["z = s32[] constant(0)", "q = s32[3,70] reduce-window(x1, z), window={size=1x70 pad=0_0x0_69}, to_apply=total",
            "y = s32[3,70] add(q, x1)"], ["y"]).replace("body {", "total {\n  a = s32[] parameter(0)\n  "
                "b = s32[] parameter(1)\n  ROOT c = s32[] add(a, b)\n}\n\nbody {", 1),
    "recurrences up to each": recurrence("s32[70]", "size=70 pad=69_0", earlier="a, b", later="c, d"),
    "recurrences from each on": recurrence("s32[9,7]", "size=9x1 pad=0_8x0_0", earlier="c, d", later="a, b"),
    "a test that is written whole": loop(["pred[]", "f32[64]"],
        ["limit = s32[] constant(6)", "q = pred[] compare(n0, limit), direction=LT",
            "p = pred[] dynamic-update-slice(x1, q)", "y = f32[64] reverse(x2), dimensions={0}"], ["p", "y"],
                test=["unread = s32[] constant(3)", "q = pred[] get-tuple-element(t), index=1"],
                given=["g1 = pred[] constant(true)"]),
    "two that change places": loop(["f32[64]", "f32[64]"], ["y = f32[64] reverse(x2), dimensions={0}"], ["y", "x1"]),
    "columns first": loop(["f32[9,7]{0,1}"], ["q = f32[9,7]{0,1} reverse(x1), "
                                              "dimensions={0,1}", "y = f32[9,7]{0,1} add(x1, q)"], ["y"]),
    "a flag that is carried": loop(["f32[64]", "pred[]"],
        ["q = f32[64] reverse(x1), dimensions={0}", "y = f32[64] add(x1, q)", "l = s32[] constant(3)",
            "g = pred[] compare(x0, l), direction=LT"], ["y", "g"], test=["c = pred[] copy(x2)"]),
    "bits of an array that stays are turned": loop(["u32[64]", "u32[64]"],
        ["k = u32[] constant(13)", "ks = u32[64] broadcast(k), dimensions={}", "l = u32[] constant(19)",
            "ls = u32[64] broadcast(l), dimensions={}", "a = u32[64] shift-left(x2, ks)",
            "b = u32[64] shift-right-logical(x2, ls)", "o = u32[64] or(a, b)",
            "q = u32[64] reverse(x1), dimensions={0}", "y = u32[64] add(q, o)"], ["y", "x2"]),
    "no round": loop(["f32[64]"], ["y = f32[64] reverse(x1), dimensions={0}"], ["y"], rounds=0),
    "results that share bytes": loop(["f32[21]", "s4[7,21]"],
        ["y = f32[21] reverse(x1), dimensions={0}", "q = s4[21] convert(y)", "u = s4[1,21] reshape(q)",
            "o = s32[] constant(0)", "d = s4[7,21] dynamic-update-slice(x2, u, n0, o)"], ["y", "d"],
                given=["e = s4[] constant(3)", "g2 = s4[7,21] broadcast(e), dimensions={}"]),
    "a fold that warps share": loop(["s32[3,600]"],
        ["z = s32[] constant(5)", "e = s32[3] reduce(x1, z), dimensions={1}, to_apply=whole",
            "b = s32[3,600] broadcast(e), dimensions={0}", "y = s32[3,600] add(x1, b)"], ["y"]).replace("body {",
                "whole {\n  a = s32[] parameter(0)\n  b = s32[] parameter(1)\n  ROOT c = s32[] add(a, b)\n}\nbody {",
                1),
    "a table and a number that take long": loop(["s32[64]", "s32[8,64]", "s32[]"],
        ["q = s32[64] reverse(x1), dimensions={0}", "v = s32[1,64] dynamic-slice(x2, x0, n0), "
            "dynamic_slice_sizes={1,64}", "u = s32[64] reshape(v)", "h = s32[64] add(q, u)",
                "b = s32[64] broadcast(x3), dimensions={}", "y = s32[64] add(h, b)"], ["y", "x2", "x3"],
                    given=["i = s32[512] iota(), iota_dimension=0", "k = s32[] constant(7)",
                        "ks = s32[512] broadcast(k), dimensions={}", "m = s32[512] remainder(i, ks)",
                            "g2 = s32[8,64] reshape(m)", "l = s32[] constant(3)", "g3 = s32[] remainder(k, l)"]),
    "the place of the least of many": loop(["f32[70]", "s32[]"],
        ["i = s32[70] iota(), iota_dimension=0", "most = f32[] constant(inf)", "o = s32[] constant(0)",
            "f = (f32[], s32[]) reduce(x1, i, most, o), dimensions={0}, to_apply=pick",
                "k = s32[] get-tuple-element(f), index=1", "v = f32[] get-tuple-element(f), index=0",
                    "b = f32[70] broadcast(v), dimensions={}", "q = f32[70] add(x1, b)",
                        "y = f32[70] reverse(q), dimensions={0}"], ["y", "k"]).replace(
                            "body {", step("LT") + "body {", 1),
    "an element where the state says": loop(["f32[64]", "s32[]"],
        ["q = f32[1] dynamic-slice(x1, x2), dynamic_slice_sizes={1}", "h = f32[64] reverse(x1), dimensions={0}",
            "o = f32[1] dynamic-slice(h, x2), dynamic_slice_sizes={1}", "v = f32[1] subtract(q, o)",
                "k = s32[] constant(3)", "p = s32[] add(x2, k)", "y = f32[64] dynamic-update-slice(x1, v, x2)"],
                    ["y", "p"]),
    "windows with elements in common": loop(["f32[64]", "s32[]"],
        ["k = s32[] constant(3)", "p = s32[] add(x2, k)",
            "q = f32[8] dynamic-slice(x1, x2), dynamic_slice_sizes={8}", "v = f32[8] reverse(q), dimensions={0}",
                "a = f32[64] dynamic-update-slice(x1, v, p)", "y = f32[64] dynamic-update-slice(a, q, x0)"],
                    ["y", "p"]),
    "a window of what is read once more": loop(["f32[64]", "s32[]", "f32[64]"],
        ["k = s32[] constant(3)", "p = s32[] add(x2, k)",
            "q = f32[1] dynamic-slice(x3, x2), dynamic_slice_sizes={1}", "y = f32[64] dynamic-update-slice(x1, q, p)",
                "h = f32[64] reverse(y), dimensions={0}"], ["y", "p", "h"]),
    "a window that is carried itself": loop(["f32[4]", "f32[64]"],
        ["q = f32[1] slice(x2), slice={[7:8]}", "v = f32[1] negate(q)",
            "a = f32[4] dynamic-update-slice(x1, v, x0)", "y = f32[64] dynamic-update-slice(x2, x1, x0)"], ["a", "y"]),
    "cells that take turns": chain(5, 2560),
    "larger than the block": loop(["f32[1300]"], ["y = f32[1300] reverse(x1), dimensions={0}"], ["y"], rounds=3),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_state_lies_in_shared_memory(name: str) -> None:
    plan = planned(CASES[name])
    assert isinstance(plan, Plan)
    part, statements = plan.segments[0].part, list(walk(emit_kernel(plan).tree.body))
    assert isinstance(part, InBlock)
    arrays = [s for s in statements if isinstance(s, DeclaredArray)]
    meets = sum(cell.team.meets for cell in part.cells)
    assert len(arrays) == len(part.state) + len(part.arrays) + meets and all(a.shared for a in arrays)
    barriers = sum(isinstance(s, Barrier) for s in statements)
    # one before the rounds, one behind the state
    assert barriers == len(part.phases) + meets + 2 + part.lasting + (name == "windows with elements in common")


def test_they_agree(tool: Any) -> None:
    aliased = "places of results that differ by lane"  # its output holds what was given before the launch
    rounded = ("power", "product", "reduction")  # large numbers, in another order
    tool.all_agree([text for name, text in CASES.items() if name not in (aliased, *rounded)])
    tool.all_agree([CASES[name] for name in rounded], relative=1e-5)


def test_only_a_window_of_the_state_is_written() -> None:
    windows = {name: len(phases(CASES[name]).updates) for name in CASES if "window" in name or "where the" in name}
    assert windows == {
        "an element where the state says": 1,
        "windows with elements in common": 2,
        "a window of what is read once more": 0,
        "a window that is carried itself": 2,
    }
    assert max(c.value.shape.element_count for c in phases(CASES["an element where the state says"]).cells) == 1


def test_what_only_its_own_thread_reads_is_not_written(tool: Any) -> None:
    text = passing(256)
    assert phases(text).cells[0].passes
    tool.agrees(text, relative=1e-5)


def test_the_state_stays_until_all_results_are_computed(tool: Any) -> None:
    """Its last element is in the first result, which another thread writes."""
    lines = [
        "y = f32[64] negate(x1)",
        "q = f32[64] reverse(x1), dimensions={0}",
        "u = f32[1,64] reshape(q)",
        "o = s32[] constant(0)",
        "d = f32[5,64] dynamic-update-slice(x2, u, x0, o)",
    ]
    text = loop(["f32[64]", "f32[5,64]"], lines, ["y", "d"])
    plan = planned(text)
    assert isinstance(plan, Plan) and isinstance(plan.segments[0].part, InBlock) and plan.segments[0].part.lasting
    tool.all_agree([text])


def test_more_elements_than_an_int_counts() -> None:
    whole = f"f32[2,{1 << 31}]"
    lines = [
        "y = f32[64] reverse(x1), dimensions={0}",
        "u = f32[1,64] reshape(y)",
        "o = s32[] constant(0)",
        f"d = {whole} dynamic-update-slice(x2, u, o, x0)",
    ]
    given = ["e = f32[] constant(3)", f"g2 = {whole} broadcast(e), dimensions={{}}"]
    plan = planned(loop(["f32[64]", whole], lines, ["y", "d"], given=given))
    assert isinstance(plan, Plan)
    walks = [s for s in walk(emit_kernel(plan).tree.body) if isinstance(s, StrideLoop)]
    assert {w.kind for w in walks if w.end == 1 << 32} == {"long long"}
    assert {w.kind for w in walks if w.end == 64} == {"int"}
