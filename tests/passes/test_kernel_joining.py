"""Kernels and their readers become one where that takes less time: what pays, what does not, and what may not be."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_opt
from hlo_opt.analysis.targets import target
from hlo_opt.fusion.decision import CostEstimate
from hlo_opt.fusion.state import FusionState
from hlo_opt.fusion.summary import module_summary
from hlo_opt.ops.sets import launches
from hlo_opt.passes.kernel_joining import WORTH, pays
from hlo_opt.passes.run import run

H100 = target("h100_sxm")
PASSES = "kernel-joining,dce"

PAIR = """HloModule m

pair {{
  x = f32[{n}] parameter(0)
  y = f32[{n}] parameter(1)
  s = f32[{n}] add(x, y)
  d = f32[{n}] subtract(x, y)
  ROOT t = (f32[{n}], f32[{n}]) tuple(s, d)
}}

add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}

ENTRY e {{
  x = f32[{n}] parameter(0)
  y = f32[{n}] parameter(1)
  both = (f32[{n}], f32[{n}]) fusion(x, y), kind=kLoop, calls=pair
  first = f32[{n}] get-tuple-element(both), index=0
  second = f32[{n}] get-tuple-element(both), index=1
  {reader}
}}
"""
PRODUCT = "p = f32[{n}] multiply(first, x)\n  ROOT t = (f32[{n}], f32[{n}], f32[{n}]) tuple(first, second, p)"


def pair(n: int, reader: str = PRODUCT) -> str:
    return PAIR.format(n=n, reader=reader.format(n=n))


def joined(text: str, **options: object) -> hlo_opt.Module:
    made, _ = hlo_opt.fuse(hlo_opt.parse(text), passes=PASSES, simplify="never", **options)
    hlo_opt.verify(made)
    return made


def kernels(made: hlo_opt.Module) -> int:
    return module_summary(made, H100).kernels


@pytest.mark.parametrize("n", [64, 1 << 20])
def test_a_reader_of_one_result_joins_the_kernel(n: int) -> None:
    made = joined(pair(n))
    assert kernels(made) == 1
    if n == 64:
        draw = np.random.default_rng(0)
        given = [draw.normal(size=n).astype(np.float32) for _ in range(2)]
        want = hlo_opt.evaluate(hlo_opt.parse(pair(n)), given)
        for a, b in zip(want, hlo_opt.compile(made, backend="host")(*given), strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_reader_that_needs_another_reader_stays() -> None:
    """The whole sum has to be known before it is read again."""
    reader = (
        "z = f32[] constant(0)\n  r = f32[] reduce(first, z), dimensions={{0}}, to_apply=add\n"
        "  w = f32[{n}] broadcast(r), dimensions={{}}\n  ROOT p = f32[{n}] multiply(second, w)"
    )
    made = joined(pair(1 << 22, reader))
    assert kernels(made) > 1


def test_it_never_costs_time() -> None:
    reader = "p = f32[{n}] reverse(first), dimensions={{0}}\n  ROOT t = (f32[{n}], f32[{n}]) tuple(second, p)"
    for n in (64, 4096, 1 << 20):
        before = module_summary(hlo_opt.parse(pair(n, reader)), H100)
        assert module_summary(joined(pair(n, reader)), H100).est_us <= before.est_us


@pytest.mark.parametrize(
    ("us", "moved", "expected"),
    [(9.7, 100.0, True), (9.9, 100.0, False), (10.05, 51.0, False), (10.05, 50.0, True), (10.2, 0.0, False)],
)
def test_of_what_takes_as_long_the_one_that_moves_less_is_taken(us: float, moved: float, expected: bool) -> None:
    assert pays(CostEstimate(10.0, us, 100.0, moved), WORTH) is expected


def test_what_moves_nothing_does_not_move_less() -> None:
    assert not pays(CostEstimate(10.0, 10.0, 0.0, 0.0), WORTH)


@pytest.mark.parametrize("n", [64, 0])
def test_an_element_of_a_tuple_of_the_program_is_not_read_from_its_first_operand(n: int) -> None:
    reader = (
        'c = f32[{n}] custom-call(x), custom_call_target="c"\n  u = (f32[{n}], f32[{n}]) tuple(first, c)\n'
        "  v = f32[{n}] get-tuple-element(u), index=1\n  p = f32[{n}] negate(v)\n"
        "  ROOT t = (f32[{n}], f32[{n}], f32[{n}]) tuple(first, second, p)"
    )
    assert kernels(joined(pair(n, reader))) == 3


def test_what_is_known_of_kernels_is_what_would_be_found_now() -> None:
    outcome = run(hlo_opt.parse(pair(64)), passes=PASSES, simplify="never")
    state = outcome.context.memory.state(outcome.module, H100)
    left = [i for i in outcome.module.entry.instructions if launches(i)]
    assert len(left) == 1 and state.known.prices, "the joint kernel was not priced"
    again = FusionState(outcome.module, H100)
    for i in left:
        assert state.traits(i) == again.traits(i) and state.lowering(i) == again.lowering(i)
        assert state.kind_of(i) == again.kind_of(i) and state.prices.of(i) == again.prices.of(i)


def test_what_the_user_keeps_apart_stays() -> None:
    assert kernels(joined(pair(64), forbid=[("s", "p")])) == 2


def layers(*of: tuple[int, str]) -> hlo_opt.Module:
    """Kernels of two results of so many elements, each with a kernel of this opcode that reads the first."""
    sizes = dict.fromkeys(n for n, _ in of)
    bodies = [
        f"pair{n} {{\n  x = f32[{n}] parameter(0)\n  s = f32[{n}] add(x, x)\n  d = f32[{n}] negate(x)\n"
        f"  ROOT t = (f32[{n}], f32[{n}]) tuple(s, d)\n}}\n"
        for n in sizes
    ]
    lines = []
    for k, (n, opcode) in enumerate(of):
        lines += [
            f"x{k} = f32[{n}] parameter({k})",
            f"both{k} = (f32[{n}], f32[{n}]) fusion(x{k}), kind=kLoop, calls=pair{n}",
            f"sum{k} = f32[{n}] get-tuple-element(both{k}), index=0",
            f"d{k} = f32[{n}] get-tuple-element(both{k}), index=1",
            f"r{k} = f32[{n}] {opcode}(sum{k})",
        ]
    results = [(f"f32[{n}]", f"{name}{k}") for k, (n, _) in enumerate(of) for name in ("sum", "d", "r")]
    root = f"ROOT t = ({', '.join(shape for shape, _ in results)}) tuple({', '.join(name for _, name in results)})"
    return hlo_opt.parse(
        "HloModule m\n\n" + "\n".join(bodies) + "\nENTRY e {\n  " + "\n  ".join([*lines, root]) + "\n}\n"
    )


def read_apart(made: hlo_opt.Module) -> set[str]:
    """The opcodes of the readers that are kernels by themselves."""
    return {i.opcode for i in made.entry.instructions} & {"exponential", "sine"}


ALIKE = ((4096, "exponential"),) * 3


@pytest.mark.parametrize(("plans", "apart"), [(0, {"exponential", "sine"}), (1, {"sine"}), (2, set())])
def test_of_large_computations_the_pairs_with_most_at_stake_are_tried(plans: int, apart: set[str]) -> None:
    """Three pairs that are alike have more at stake than another one."""
    passes = f"kernel-joining{{max-kernels=7,max-plans={plans}}},dce"
    made = run(layers((4096, "sine"), *ALIKE), passes=passes, simplify="never").module
    assert read_apart(made) == apart


def test_large_values_have_more_at_stake_than_launches() -> None:
    passes = "kernel-joining{max-kernels=7,max-plans=1},dce"
    made = run(layers(*ALIKE, (1 << 24, "sine")), passes=passes, simplify="never").module
    assert read_apart(made) == {"exponential"}


ARGSORT = """HloModule m

less {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  p = s32[] parameter(2)
  q = s32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=LT
}}

ENTRY e {{
  x = f32[7,{n}] parameter(0)
  w = f32[7,{n}] negate(x)
  k = s32[{n}] iota(), iota_dimension=0
  i = s32[7,{n}] broadcast(k), dimensions={{1}}
  s = (f32[7,{n}], s32[7,{n}]) sort(w, i), dimensions={{1}}, is_stable=true, to_apply=less
  g = s32[7,{n}] get-tuple-element(s), index=1
  ROOT t = s32[7,{n}] add(g, g)
}}
"""


def test_a_sort_computes_what_it_reads_and_writes_what_is_read_of_it():
    text = ARGSORT.format(n=33)
    made, _ = hlo_opt.fuse(hlo_opt.parse(text))
    hlo_opt.verify(made)
    assert kernels(made) == 2  # what reads the sort stays a kernel of its own
    (held,) = [c for c in made.computations if any(i.opcode == "sort" for i in c.instructions)]
    assert held.root.opcode == "get-tuple-element" and len(held.parameters) == 1
    x = np.random.default_rng(3).integers(-3, 4, (7, 33)).astype(np.float32)  # many are equal: positions decide
    for form in ("plain", "lanes"):
        (found,) = hlo_opt.compile(made, backend="host", form=form)(x)
        np.testing.assert_array_equal(found, 2 * np.argsort(-x, axis=1, kind="stable"))


def test_a_sort_of_lines_too_long_for_a_block_stays_a_library_call():
    made, _ = hlo_opt.fuse(hlo_opt.parse(ARGSORT.format(n=9000)))
    hlo_opt.verify(made)
    assert any(i.opcode == "sort" for i in made.entry.instructions)


SAME_ROWS = """HloModule m

add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}

later {{
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  k = s32[] parameter(3)
  g = pred[] compare(a, b), direction=GT
  e = pred[] compare(a, b), direction=EQ
  l = pred[] compare(i, k), direction=LT
  n = pred[] and(e, l)
  o = pred[] or(g, n)
  v = f32[] select(o, a, b)
  p = s32[] select(o, i, k)
  ROOT t = (f32[], s32[]) tuple(v, p)
}}

place {{
  x = f32[{n},4096] parameter(0)
  i = s32[{n},4096] iota(), iota_dimension=1
  low = f32[] constant(-inf)
  zero = s32[] constant(0)
  m = (f32[{n}], s32[{n}]) reduce(x, i, low, zero), dimensions={{1}}, to_apply=later
  ROOT p = s32[{n}] get-tuple-element(m), index=1
}}

share {{
  x = f32[{n},4096] parameter(0)
  q = f32[{n},4096] multiply(x, x)
  zero = f32[] constant(0)
  s = f32[{n}] reduce(x, zero), dimensions={{1}}, to_apply=add
  z = f32[{n}] reduce(q, zero), dimensions={{1}}, to_apply=add
  ROOT d = f32[{n}] divide(s, z)
}}

ENTRY e {{
  x = f32[{n},4096] parameter(0)
  first = s32[{n}] fusion(x), kind=kInput, calls=place
  second = f32[{n}] fusion(x), kind=kInput, calls=share
  ROOT t = (s32[{n}], f32[{n}]) tuple(first, second)
}}
"""


def test_kernels_that_fold_the_same_rows_in_different_ways_read_them_once():
    text = SAME_ROWS.format(n=512)
    made = joined(text)
    before, after = (module_summary(m, H100) for m in (hlo_opt.parse(text), made))
    assert (before.kernels, after.kernels) == (2, 1)
    assert after.bytes < 0.51 * before.bytes and after.est_us < before.est_us
    x = np.random.default_rng(5).normal(size=(512, 4096)).astype(np.float32)
    place, share = hlo_opt.compile(made, backend="host")(x)
    np.testing.assert_array_equal(place, x.argmax(1))
    np.testing.assert_allclose(share, x.sum(1) / (x * x).sum(1), rtol=1e-3, atol=1e-4)
