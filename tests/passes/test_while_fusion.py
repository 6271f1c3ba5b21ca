"""Loops as one kernel: which are, what stays outside, and that the graph stays the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import hlo_opt
from hlo_opt.evaluate.inputs import module_inputs
from hlo_opt.fusion.summary import module_summary
from hlo_opt.passes.run import run
from hlo_opt.runtime.host.library import has_compiler
from hlo_opt.runtime.schedule import build_schedule
from tests.loops import COUPLED, LANES, heat, loop, lstm, power
from tests.small_modules import H100

PASSES = "while-fusion,dce"
WITHOUT = "instruction-fusion{may-duplicate=false},priority-fusion,multi-output-fusion,dce"


def fused(text: str, passes: str | None = PASSES) -> hlo_opt.Module:
    made, _ = hlo_opt.fuse(hlo_opt.parse(text), passes=passes)
    hlo_opt.verify(made)
    return made


def has_loop(module: hlo_opt.Module) -> bool:
    return any(i.opcode == "while" for i in module.entry.instructions)


@pytest.mark.parametrize("name", LANES)
def test_lanes_are_one_launch(name: str) -> None:
    made = fused(LANES[name][0])
    assert not has_loop(made)
    assert [i.word("kind") for i in made.entry.instructions if i.opcode == "fusion"] == ["kLoop"]
    assert module_summary(made, H100).launches == 1


UNOWNED = ("sort",)
"""Loops that no block can own: there is no text for a part of a round."""


@pytest.mark.parametrize("name", [n for n in COUPLED if n not in UNOWNED])
def test_lanes_that_need_each_other_are_one_block(name: str) -> None:
    made = fused(COUPLED[name])
    assert not has_loop(made)
    assert module_summary(made, H100).launches == 1


@pytest.mark.parametrize("name", UNOWNED)
def test_what_no_block_can_own_stays_a_loop(name: str) -> None:
    module = hlo_opt.parse(COUPLED[name])
    for passes in (PASSES, None):
        made, _ = hlo_opt.fuse(module, passes=passes)
        assert not any(i.name.startswith("loop_while_fusion") for c in made.computations for i in c.instructions)


@pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")
@pytest.mark.parametrize("name", [*LANES, *COUPLED])
def test_values_stay(name: str) -> None:
    module = hlo_opt.parse(LANES[name][0] if name in LANES else COUPLED[name])
    made, _ = hlo_opt.fuse(module)
    given = module_inputs(module, seed=4)
    for got, want in zip(hlo_opt.compile(made, backend="host")(*given), hlo_opt.evaluate(module, given), strict=True):
        np.testing.assert_allclose(
            got.astype(np.float64), want.astype(np.float64), rtol=2e-2 if want.dtype.itemsize < 4 else 1e-5, atol=1e-4
        )


def test_arrays_of_a_number_are_made_inside() -> None:
    made = fused(LANES["results"][0])
    (kernel,) = (i for i in made.entry.instructions if i.opcode == "fusion")
    assert [o.opcode for o in kernel.operands] == ["parameter"]


def whole(text: str) -> str:
    """The module with the loop's tuple as its result."""
    return text[: text.index("  r1 = ")].replace("  w = ", "  ROOT w = ") + "}\n"


def test_the_whole_tuple_may_be_read() -> None:
    text = whole(LANES["two dimensions"][0])
    made = fused(text)
    assert not has_loop(made) and made.entry.root.opcode == "tuple"
    given = module_inputs(hlo_opt.parse(text), seed=1)
    for got, want in zip(hlo_opt.evaluate(made, given), hlo_opt.evaluate(hlo_opt.parse(text), given), strict=True):
        np.testing.assert_array_equal(got, want)


def test_what_no_round_changes_is_not_handed_on_by_a_kernel() -> None:
    assert has_loop(fused(whole(LANES["rows that are read"][0])))


def started(text: str, state: str, before: Sequence[str], more: str = "") -> str:
    """The module with its whole state as its result, where `before` are the lines of the entry that give the start."""
    entry = ["ENTRY e {", *before, f"  ROOT w = {state} while(s), condition=condition, body=body", "}", ""]
    return text[: text.index("ENTRY")] + more + "\n".join(entry)


ONE = "(s32[], f32[64])"
STARTS = {
    "a parameter": ([f"  s = {ONE} parameter(0)"], ""),
    "an element of a parameter": (
        [f"  p = ({ONE}, f32[2]) parameter(0)", f"  s = {ONE} get-tuple-element(p), index=0"],
        "",
    ),
    "the result of another loop": (
        [f"  p = {ONE} parameter(0)", f"  s = {ONE} while(p), condition=fewer, body=body"],
        f"fewer {{\n  t = {ONE} parameter(0)\n  n = s32[] get-tuple-element(t), index=0\n"
        "  two = s32[] constant(2)\n  ROOT c = pred[] compare(n, two), direction=LT\n}\n",
    ),
    "the result of a conditional": (
        [f"  p = {ONE} parameter(0)", "  b = pred[] parameter(1)",
         f"  s = {ONE} conditional(b, p, p), true_computation=body, false_computation=same"],
        f"same {{\n  ROOT t = {ONE} parameter(0)\n}}\n",
    ),
}  # fmt: skip


@pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")
@pytest.mark.parametrize("name", STARTS)
@pytest.mark.parametrize("rounds", ["one array", "reverse"])
def test_the_loop_may_start_with_any_tuple(name: str, rounds: str) -> None:
    text = started(LANES[rounds][0] if rounds in LANES else COUPLED[rounds], ONE, *STARTS[name])
    module = hlo_opt.parse(text)
    made = fused(text)
    assert not has_loop(made)
    x = np.linspace(-1, 1, 64, dtype=np.float32)
    numbers = {"an element of a parameter": [np.ones(2, np.float32)], "the result of a conditional": [np.True_]}
    given = [np.int32(0), x, *numbers.get(name, [])]
    wanted = hlo_opt.evaluate(module, given)
    for got in (hlo_opt.evaluate(made, given), hlo_opt.compile(made, backend="host")(*given)):
        for one, other in zip(got, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5)


def test_a_start_that_something_waits_for_may_stay_where_no_instruction_puts_it_together() -> None:
    before = [f"  s = {ONE} parameter(0)", "  q = f32[] constant(0), control-predecessors={s}"]
    assert not has_loop(fused(started(LANES["one array"][0], ONE, before)))


def normed(n: int, rounds: int = 200) -> str:
    body = [
        f"u = f32[{n}] multiply(x1, x1)",
        "z = f32[] constant(0)",
        "e = f32[] reduce(u, z), dimensions={0}, to_apply=sum",
        f"b = f32[{n}] broadcast(e), dimensions={{}}",
        f"y = f32[{n}] divide(u, b)",
    ]
    return loop([f"f32[{n}]"], body, ["y"], rounds=rounds)


SHARED = {"power iteration": power(2048), "a plate": heat(256), "a cell": lstm(256), "a kernel and a sum": normed(4096)}


@pytest.mark.parametrize("name", SHARED)
def test_what_is_too_much_for_a_block_is_shared_by_all(name: str) -> None:
    made = fused(SHARED[name], None)
    assert not has_loop(made)
    (kernel,) = build_schedule(made).kernels
    assert kernel.kind == "grid-loop" and kernel.launch.cooperative and kernel.launch.grid <= H100.core_count
    summary = module_summary(made, H100)
    assert summary.launches == 1
    apart = module_summary(fused(SHARED[name], WITHOUT), H100)
    assert summary.est_us < apart.est_us and apart.launches >= 60


LEFT = {
    "much work": loop(["f32[512,512]"], ["y = f32[512,512] dot(x1, x1), lhs_contracting_dims={1}, "
                                         "rhs_contracting_dims={0}"], ["y"]),
    "a large state": loop(["f32[9000000]"], ["y = f32[9000000] reverse(x1), dimensions={0}"], ["y"]),
}  # fmt: skip
"""Where all blocks together would take longer than kernels of their own, and where L2 does not hold what they hand
on."""


@pytest.mark.parametrize("name", LEFT)
def test_what_all_blocks_would_not_do_sooner_stays_a_loop(name: str) -> None:
    assert has_loop(fused(LEFT[name], None))


@pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")
@pytest.mark.parametrize("text", [power(300, 6), heat(120, 6), lstm(120, 6), normed(4096, 6)], ids=list(SHARED))
def test_values_stay_where_all_blocks_share(text: str) -> None:
    module = hlo_opt.parse(text)
    made, _ = hlo_opt.fuse(module)
    assert [k.kind for k in build_schedule(made).kernels] == ["grid-loop"]
    given = module_inputs(module, seed=4)
    for got, want in zip(hlo_opt.compile(made, backend="host")(*given), hlo_opt.evaluate(module, given), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_a_kernel_of_the_loop_is_told_as_fused() -> None:
    module = hlo_opt.parse(LANES["joined state"][0])
    outcome = run(module)
    rules = {(d.producer, d.consumer): d.rule for d in outcome.decide()}
    assert rules["left", "both"] == rules["both", "y"] == "priority-fusion" and "legality" not in rules.values()


@pytest.mark.parametrize(
    "name",
    [
        "cartpole_scan",
        "cartpole_scan_random",
        "cartpole_scan_custom_call",
        "cartpole_scan_arithmetic",
        "cartpole_scan_separate",
        "cartpole_controlled",
    ],
)
def test_a_rollout_is_one_launch(name: str, dumps: Path) -> None:
    module = hlo_opt.parse((dumps / f"{name}.hlo").read_text(encoding="utf-8"))
    made, _ = hlo_opt.fuse(module)
    assert module_summary(made, H100).launches == 1


def test_a_fusion_with_a_loop_that_no_plan_covers_counts_its_rounds() -> None:
    text = LANES["one array"][0]
    counted = []
    for body in (
        text,
        text.replace(
            "y = f32[64] multiply(x1, hs)",
            "q = f32[64] sort(x1), dimensions={0}, to_apply=less\n  y = f32[64] multiply(q, hs)",
        ),
    ):
        entry = body[body.index("ENTRY e") :]
        inside = entry.replace("ENTRY e", "inside")
        outer = (
            f"{body[: body.index('ENTRY e')]}{inside}\nENTRY e "
            f"{{\n  p = f32[64] parameter(0)\n  ROOT f = (f32[64]) fusion(p), kind=kLoop, calls=inside\n}}\n"
        )
        counted.append(module_summary(hlo_opt.parse(outer), H100).launches)
    assert counted[0] == 1 < 10 < counted[1]


WAITING = {
    "something waits for an element": ("  r1 = f32[64] get-tuple-element(w), index=1\n",
        "  r1 = f32[64] get-tuple-element(w), index=1\n  q = f32[64] negate(p1), control-predecessors={r1}\n"),
    "the start waits": ("  s = (s32[], f32[64]) tuple(z, p1)\n",
        "  q = f32[64] negate(p1)\n  s = (s32[], f32[64]) tuple(z, p1), control-predecessors={q}\n"),
    "something waits for the start": ("  s = (s32[], f32[64]) tuple(z, p1)\n",
        "  s = (s32[], f32[64]) tuple(z, p1)\n  q = f32[64] negate(p1), control-predecessors={s}\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", WAITING)
def test_what_the_program_waits_for_stays(name: str) -> None:
    before, after = WAITING[name]
    text = (
        LANES["one array"][0].replace(before, after).replace("(f32[64]) tuple(r1)", "(f32[64], f32[64]) tuple(r1, q)")
    )
    assert after in text and has_loop(fused(text))


@pytest.mark.parametrize("line", ["p1 = f32[64,8] parameter", "y = f32[64,8] add"])
def test_a_state_that_is_given_or_made_in_another_layout_stays(line: str) -> None:
    text = loop(["f32[64,8]"], ["y = f32[64,8] add(x1, x1)"], ["y"])
    assert line in text and not has_loop(fused(text))
    assert has_loop(fused(text.replace(line, line.replace("f32[64,8]", "f32[64,8]{0,1}"))))


def test_a_table_in_another_layout_is_read_by_its_indices_alone() -> None:
    lines = [
        "o = s32[] constant(0)",
        "u = f32[1,8] dynamic-slice(x2, x0, o), dynamic_slice_sizes={1,8}",
        "v = f32[8] reshape(u)",
        "y = f32[8] add(x1, v)",
    ]
    text = loop(["f32[8]", "f32[5,8]"], lines, ["y", "x2"])
    entry = text.index("ENTRY")
    turned = text[:entry] + text[entry:].replace("f32[5,8]", "f32[5,8]{0,1}")  # as in raw dumps of JAX
    made = fused(turned)
    assert not has_loop(made)
    given = module_inputs(hlo_opt.parse(turned), seed=2)
    for got, want in zip(hlo_opt.evaluate(made, given), hlo_opt.evaluate(hlo_opt.parse(turned), given), strict=True):
        np.testing.assert_array_equal(got, want)
    view = "b = f32[8,5] bitcast(x2)\n  c = f32[8,1] slice(b), slice={[0:8], [2:3]}\n  v = f32[8] reshape(c)"
    assert has_loop(fused(turned.replace("v = f32[8] reshape(u)", view)))
