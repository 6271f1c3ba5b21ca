"""Draws are added until every way is gone; what none went is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hlo_opt import evaluate, parse
from hlo_opt.diag import EvaluationError
from hlo_opt.evaluate import module_inputs
from hlo_opt.evaluate.reach import reaching_inputs, ways_of
from hlo_opt.runtime.check.compare import check

DUMPS = Path(__file__).parents[2] / "testdata" / "dumps"


def entry(body: str, before: str = "") -> str:
    return f"HloModule m\n{before}\nENTRY e {{\n{body}\n}}\n"


def test_the_first_draw_is_that_of_the_seed_and_its_outputs_are_the_evaluator_s() -> None:
    module = parse((DUMPS / "huber.hlo").read_text())
    found = reaching_inputs(module, 7)
    first = found.draws[0]
    assert all(a.tobytes() == b.tobytes() for a, b in zip(first.inputs[0], module_inputs(module, 7), strict=True))
    assert all(
        a.tobytes() == b.tobytes() for a, b in zip(first.outputs[0], evaluate(module, first.inputs[0]), strict=True)
    )
    again = reaching_inputs(parse((DUMPS / "huber.hlo").read_text()), 7)
    assert [d.style for d in again.draws] == [d.style for d in found.draws]
    assert [str(w) for w in again.unreached] == [str(w) for w in found.unreached]


def test_every_branch_is_taken() -> None:
    found = reaching_inputs(parse((DUMPS / "choose.hlo").read_text()))
    assert found.unreached == () and {int(np.clip(d.inputs[0][0], 0, 3)) for d in found.draws} == {0, 1, 2, 3}


@pytest.mark.parametrize("name", ["layer_norm", "embed_gradient", "life", "mandelbrot", "segment_sums", "write_rows"])
def test_real_programs_are_reached_but_for_ties(name: str) -> None:
    found = reaching_inputs(parse((DUMPS / f"{name}.hlo").read_text()))
    ways = [w for w in found.unreached if "equal values" not in w.words]
    assert [w.instruction.opcode for w in ways] in (
        [],
        ["scatter"],
    )  # no row can be written out of range where a select comes before


def test_what_no_draw_reaches_is_named_with_its_line() -> None:
    text = entry(
        "  x = f32[4] parameter(0)\n  y = f32[4] sine(x)\n  z = f32[4] cosine(x)\n  s = f32[4] add(y, z)\n  c = f32[4] "
        "constant({9,9,9,9})\n"
        "  p = pred[4] compare(s, c), direction=GT\n  ROOT r = f32[4] select(p, x, y)"
    )
    module = parse(text)
    found = [str(w) for w in reaching_inputs(module).unreached]
    assert found == ["r (line 10) never takes its first choice"]


def test_ways_that_bounds_shut_or_inputs_do_not_decide_are_no_ways() -> None:
    text = entry(
        "  x = f32[4] parameter(0)\n  a = f32[4] abs(x)\n  z = f32[4] constant({0,0,0,0})\n  m = f32[4] maximum(a, z)\n"
        "  i = s32[4] iota(), iota_dimension=0\n  n = s32[4] constant({9,9,9,9})\n  p = pred[4] compare(i, n), "
        "direction=LT\n"
        "  ROOT r = f32[4] select(p, m, z)"
    )
    assert reaching_inputs(parse(text)).unreached == ()


LOOP = """
condition {
  s = (f32[], f32[]) parameter(0)
  a = f32[] get-tuple-element(s), index=0
  b = f32[] get-tuple-element(s), index=1
  ROOT c = pred[] compare(a, b), direction=LT
}

body {
  s = (f32[], f32[]) parameter(0)
  a = f32[] get-tuple-element(s), index=0
  two = f32[] constant(2)
  twice = f32[] multiply(a, two)
  b = f32[] get-tuple-element(s), index=1
  ROOT t = (f32[], f32[]) tuple(twice, b)
}
"""


def test_a_draw_whose_loop_does_not_end_is_left_out() -> None:
    # from 0 or below, doubling never gets anywhere
    text = entry(
        "  x = f32[] parameter(0)\n  one = f32[] constant(1)\n  y = f32[] add(x, one)\n  big = f32[] constant(100)\n"
        "  t = (f32[], f32[]) tuple(y, big)\n  w = (f32[], f32[]) while(t), condition=condition, body=body\n"
        "  p = pred[] compare(x, one), direction=EQ\n  r = f32[] get-tuple-element(w), index=0\n  ROOT s = f32[] "
        "select(p, r, x)",
        LOOP,
    )
    module = parse(text)
    seed = next(s for s in range(50) if module_inputs(module, s)[0] > -1)
    assert all(d.inputs[0][0] > -1 for d in reaching_inputs(module, seed).draws)


def test_a_loop_that_ends_for_a_later_draw_only_is_drawn_until_it_ends() -> None:
    going = "condition {\n  s = (pred[], f32[]) parameter(0)\n  ROOT p = pred[] get-tuple-element(s), index=0\n}\n\n"
    body = "body {\n  ROOT s = (pred[], f32[]) parameter(0)\n}\n"
    text = entry(
        "  p = pred[] parameter(0)\n  x = f32[] parameter(1)\n  t = (pred[], f32[]) tuple(p, x)\n  w = (pred[], f32[]) "
        "while(t), condition=condition, body=body\n  ROOT r = f32[] get-tuple-element(w), index=1",
        going + body,
    )
    module = parse(text)
    seed = next(s for s in range(50) if module_inputs(module, s)[0])
    found = reaching_inputs(module, seed, max_steps=100)
    assert found.draws and not any(draw.inputs[0][0] for draw in found.draws)


def test_a_loop_that_ends_for_no_draw_is_told_with_what_helps() -> None:
    going = "condition {\n  s = f32[] parameter(0)\n  ROOT p = pred[] constant(true)\n}\n\n"
    module = parse(
        entry(
            "  x = f32[] parameter(0)\n  ROOT w = f32[] while(x), condition=condition, body=body",
            going + "body {\n  ROOT s = f32[] parameter(0)\n}\n",
        )
    )
    with pytest.raises(EvaluationError, match=r"HLO402.*w: the loop goes on after 50 iterations") as caught:
        reaching_inputs(module, max_steps=50)
    assert caught.value.hint is not None and "--inputs" in caught.value.hint


def test_modules_for_several_devices_have_inputs_for_each() -> None:
    text = (
        "HloModule m, replica_count=2\n\nsum {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] "
        "add(a, b)\n}\n\n"
        "ENTRY e {\n  x = f32[8] parameter(0)\n  ROOT r = f32[8] all-reduce(x), replica_groups={{0,1}}, "
        "to_apply=sum\n}\n"
    )
    (draw,) = reaching_inputs(parse(text)).draws
    assert len(draw.inputs) == len(draw.outputs) == 2
    assert np.array_equal(draw.outputs[0][0], draw.inputs[0][0] + draw.inputs[1][0])


@pytest.mark.parametrize(
    "body",
    [
        "  x = c64[37] parameter(0)\n  ROOT r = c64[37] sqrt(x)",
        "  x = f32[37] parameter(0)\n  ROOT r = s8[37] convert(x)",
    ],
)
def test_functions_with_rules_for_infinities_and_nan_meet_both(body: str) -> None:
    found = reaching_inputs(parse(entry(body)))
    assert found.unreached == () and np.isfinite(found.draws[0].inputs[0][0]).all()
    assert any(np.isinf(d.inputs[0][0]).any() and np.isnan(d.inputs[0][0]).any() for d in found.draws[1:])


def test_types_without_infinity_are_not_asked_for_one() -> None:
    found = reaching_inputs(parse(entry("  x = f8e4m3fn[37] parameter(0)\n  ROOT r = s8[37] convert(x)")))
    assert found.unreached == ()


@pytest.mark.parametrize("direction", ["left", "right-arithmetic", "right-logical"])
def test_shifts_also_shift_all_bits_out(direction: str) -> None:
    body = f"  x = u8[37] parameter(0)\n  y = u8[37] parameter(1)\n  ROOT r = u8[37] shift-{direction}(x, y)"
    found = reaching_inputs(parse(entry(body)))
    amounts = np.concatenate([d.inputs[0][1] for d in found.draws])
    assert found.unreached == () and (amounts < 8).any() and (amounts >= 8).any()


def test_a_shift_by_what_has_no_other_bits_goes_one_way() -> None:
    body = (
        "  x = u8[37] parameter(0)\n  k = u8[] constant({})\n  y = u8[37] broadcast(k), dimensions={{}}\n  z = u8[37] "
        "and(x, y)\n  ROOT r = u8[37] shift-left(x, z)"
    )
    few, more = (ways_of(parse(entry(body.format(mask)))) for mask in (7, 15))
    assert [sum("bits out" in w for own in ways.values() for w in own) for ways in (few, more)] == [1, 2]


@pytest.mark.parametrize(
    "made", ["s8[8] add(x, y)", "s8[8] subtract(x, y)", "s8[8] multiply(x, y)", "u64[8] add(u, u)"]
)
def test_integers_wrap_around(made: str) -> None:
    parameters = "  x = s8[8] parameter(0)\n  y = s8[8] parameter(1)\n  u = u64[8] parameter(2)\n"
    module = parse(entry(f"{parameters}  w = {made}\n  ROOT r = f32[8] convert(w)"))
    found = reaching_inputs(module)
    assert found.unreached == () and any(d.style.wide for d in found.draws)
    (ways,) = (own for i, own in ways_of(module).items() if i.name == "w")
    assert ways == {"never exceeds its type"}


def test_sums_that_fit_never_wrap_around() -> None:
    body = (
        "  x = s8[8] parameter(0)\n  a = s16[8] convert(x)\n  k = s16[] constant(3)\n"
        "  m = s16[8] broadcast(k), dimensions={}\n  b = s16[8] multiply(a, m)\n  ROOT r = f32[8] convert(b)"
    )
    module = parse(entry(body))
    assert ways_of(module) == {} and len(reaching_inputs(module).draws) == 1


def test_sums_of_what_was_widened_are_tried_with_what_exceeds_the_narrow_type() -> None:
    body = "  x = u8[8] parameter(0)\n  y = u8[8] parameter(1)\n{}  ROOT r = f32[8] convert(s)"
    wide = "  a = u16[8] convert(x)\n  b = u16[8] convert(y)\n  s = u16[8] add(a, b)\n"
    late = "  n = u8[8] add(x, y)\n  s = u16[8] convert(n)\n"
    module = parse(entry(body.format(wide)))
    assert any(d.style.wide for d in reaching_inputs(module).draws)
    assert not check(module, parse(entry(body.format(late))), backend="numpy").ok


def test_nobody_is_told_of_an_index_that_cannot_be_as_large_as_its_type() -> None:
    body = (
        "  x = f32[9] parameter(0)\n  i = s32[4,1] parameter(1)\n  k = s32[] constant(1)\n"
        "  b = s32[4,1] broadcast(k), dimensions={}\n  j = s32[4,1] add(i, b)\n"
        "  ROOT r = f32[4] gather(x, j), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, "
        "index_vector_dim=1, slice_sizes={1}"
    )
    assert [str(way) for way in reaching_inputs(parse(entry(body))).unreached] == []


def test_a_scalar_index_is_out_of_range_once() -> None:
    for seed in range(6):
        found = reaching_inputs(
            parse(
                entry(
                    "  x = f32[64] parameter(0)\n  i = s32[] parameter(1)\n"
                    "  ROOT r = f32[8] dynamic-slice(x, i), dynamic_slice_sizes={8}"
                )
            ),
            seed,
        )
        assert found.unreached == ()


@pytest.mark.parametrize(
    "made",
    ["s32[64] abs(x)", "s32[64] negate(x)", "s32[64] multiply(x, k)", "f32[64] convert(u)", "u8[64] convert(x)"],
)
def test_integers_are_any_of_their_type_where_that_matters(made: str) -> None:
    """A product with a large constant exceeds its type for small numbers too."""
    body = (
        "  x = s32[64] parameter(0)\n  u = u32[64] parameter(1)\n  l = s32[] constant(1664525)\n"
        f"  k = s32[64] broadcast(l), dimensions={{}}\n  ROOT r = {made}"
    )
    found = reaching_inputs(parse(entry(body)))
    drawn = [d.inputs[0]["(u)" in made] for d in found.draws if d.style.wide]
    assert drawn and all(ends.min() == np.iinfo(ends.dtype).min and ends.max() == np.iinfo(ends.dtype).max
                         for ends in drawn)  # fmt: skip


def test_a_float_has_each_number_that_a_byte_has() -> None:
    body = "  x = s8[64] parameter(0)\n  y = s16[64] convert(x)\n  ROOT r = f32[64] convert(y)"
    assert ways_of(parse(entry(body))) == {}


def test_an_index_is_drawn_beyond_both_ends() -> None:
    body = (
        "  x = f32[64] parameter(0)\n  i = s32[] parameter(1)\n  "
        "ROOT r = f32[8] dynamic-slice(x, i), dynamic_slice_sizes={8}"
    )
    drawn = [int(d.inputs[0][1]) for d in reaching_inputs(parse(entry(body))).draws]
    assert min(drawn) < 0 and max(drawn) > 56 and any(0 <= i <= 56 for i in drawn)
