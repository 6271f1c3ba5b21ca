"""Loops by lanes whose rounds hold loops: each lane runs its own inner loop, and what brings lanes together there is
found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import hlo_opt
from hlo_opt.plans.lane_obstacle import Obstacle, obstacle
from tests.loops import loop
from tests.plans.test_lane_loop import lanes

STATE = "(f32[64], s32[64], f32[64])"
TAKEN = [
    f"t = {STATE} parameter(0)",
    "x = f32[64] get-tuple-element(t), index=0",
    "k = s32[64] get-tuple-element(t), index=1",
    "u = f32[64] get-tuple-element(t), index=2",
]
ASKED = [
    "two = f32[] constant(2)",
    "twos = f32[64] broadcast(two), dimensions={}",
    "few = s32[] constant(9)",
    "fews = s32[64] broadcast(few), dimensions={}",
    "less = pred[64] compare(x, twos), direction=LT",
    "early = pred[64] compare(k, fews), direction=LT",
    "g = pred[64] and(less, early)",
]
NEW = [
    "b = f32[] constant(0.125)",
    "bs = f32[64] broadcast(b), dimensions={}",
    "sum1 = f32[64] add(u, bs)",
    "new = f32[64] add(x, sum1)",
    "one = s32[] constant(1)",
    "ones = s32[64] broadcast(one), dimensions={}",
    "more = s32[64] add(k, ones)",
]
CHOSEN = ["y = f32[64] select(g, new, x)", "n = s32[64] select(g, more, k)"]
BEFORE = [
    "i = s32[] constant(0)",
    "is = s32[64] broadcast(i), dimensions={}",
    "h = f32[] constant(0.5)",
    "hs = f32[64] broadcast(h), dimensions={}",
    "v = f32[64] multiply(x1, hs)",
    f"s = {STATE} tuple(v, is, x1)",
    f"w1 = {STATE} while(s), condition=again, body=further",
    "e = f32[64] get-tuple-element(w1), index=0",
    "m = s32[64] get-tuple-element(w1), index=1",
]


def nest(
    new: Sequence[str] = NEW,
    chosen: Sequence[str] = CHOSEN,
    before: Sequence[str] = BEFORE,
    after: Sequence[str] = ("q = f32[64] multiply(e, hs)",),
    **more: Any,
) -> str:
    """A loop whose rounds are a loop in which each lane ends by itself. `new`, `chosen`: what an inner round computes;
    `before`, `after`: what an outer one does besides."""
    body = [*TAKEN, *ASKED, *new, *chosen, f"ROOT r = {STATE} tuple(y, n, u)"]
    asked = [*TAKEN, *ASKED, "no = pred[] constant(false)"]
    asked += ["ROOT a = pred[] reduce(g, no), dimensions={0}, to_apply=either"]
    parts = [("further", body), ("again", asked)]
    inner = "\n".join(f"{name} {{\n" + "".join(f"  {line}\n" for line in of) + "}\n" for name, of in parts)
    text = loop(["f32[64]", "s32[64]"], [*before, *after], ["q", "m"], **more)
    return text.replace("body {", f"{inner}\nbody {{", 1)


def found(text: str) -> Obstacle:
    module = hlo_opt.parse(text)
    return obstacle(module, next(i for i in module.entry.instructions if i.opcode == "while"))


def test_each_lane_runs_its_own_inner_loop() -> None:
    part = lanes(nest())
    (inner,) = part.nests
    assert part.trips == 5 and inner.trips is None and part.dimensions == inner.dimensions == (64,)
    assert [(test.opcode, dims) for test, dims in inner.tests] == [("and", (0,))]


def ended() -> str:
    """A nest whose outer loop ends lane by lane, too, or after six rounds."""
    after = [
        "q0 = f32[64] multiply(e, hs)",
        "d = f32[] constant(1)",
        "ds = f32[64] broadcast(d), dimensions={}",
        "go = pred[64] compare(x1, ds), direction=LT",
        "q = f32[64] select(go, q0, x1)",
        "m2 = s32[64] select(go, m, x2)",
    ]
    test = ["d = f32[] constant(1)", "ds = f32[64] broadcast(d), dimensions={}"]
    test += ["go = pred[64] compare(x1, ds), direction=LT", "no = pred[] constant(false)"]
    test += ["some = pred[] reduce(go, no), dimensions={0}, to_apply=either"]
    test += ["limit = s32[] constant(6)", "soon = pred[] compare(x0, limit), direction=LT"]
    test += ["c = pred[] and(some, soon)"]
    return nest(after=after, test=test).replace("tuple(n0, q, m)", "tuple(n0, q, m2)")


def test_a_lane_ends_both_loops_by_itself() -> None:
    part = lanes(ended())
    assert part.trips is None and part.nests[0].trips is None


TURNED = "turned = f32[64] reverse({}), dimensions={{0}}"


@pytest.mark.parametrize(
    ("text", "blamed"),
    [
        pytest.param(nest(after=[TURNED.format("e"), "q = f32[64] multiply(turned, hs)"]), "turned", id="after it"),
        pytest.param(
            nest(before=[*BEFORE[:4], TURNED.format("x1"), "v = f32[64] multiply(turned, hs)", *BEFORE[5:]]),
            "turned",
            id="before it",
        ),
        pytest.param(nest(new=[TURNED.format("x"), *NEW[:3], "new = f32[64] add(turned, sum1)", *NEW[4:]]), "turned",
                     id="in it"),
        pytest.param(nest(new=[*NEW[:2], TURNED.format("u"), "sum1 = f32[64] add(turned, bs)", *NEW[3:]]), "turned",
                     id="in it, from around it"),
        pytest.param(nest(chosen=["y = f32[64] add(new, bs)", CHOSEN[1]]), "a", id="lanes that go on"),
    ],
)  # fmt: skip
def test_what_brings_lanes_together_is_named(text: str, blamed: str) -> None:
    met = found(text).instruction
    assert met is not None and met.name.split(".")[0] == blamed


def test_a_number_of_rounds_from_all_lanes_couples_them() -> None:
    """The inner loop is the same for all lanes, but not what it begins with."""
    before = [
        "zero = f32[] constant(0)",
        "all = f32[] reduce(x1, zero), dimensions={0}, to_apply=sum",
        "u0 = f32[64] broadcast(all), dimensions={}",
        *BEFORE[:5],
        f"s = {STATE} tuple(v, is, u0)",
        *BEFORE[6:],
    ]
    met = found(nest(before=before)).instruction
    assert met is not None and met.name.split(".")[0] in ("all", "u0")


def test_the_default_preset_makes_one_launch_of_a_nest() -> None:
    module = hlo_opt.parse(nest())
    fused, _ = hlo_opt.fuse(module)
    assert [i.opcode for i in fused.entry.instructions if i.opcode in ("while", "fusion")] == ["fusion"]
