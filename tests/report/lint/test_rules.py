"""Each rule on JAX programs: on one that it speaks of, at its Python line, with a price; and on its twin, of which it
says nothing."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from lint_programs import ADVICE, KEY, PROGRAMS, SILENT, f32, noise_of_split_keys, powers, sums_around, text_of, tiny

from hlo_opt import fuse, parse
from hlo_opt.diag.reason import ReasonSpec
from hlo_opt.passes.run import report_on, run
from hlo_opt.report.lint.base import Finding, rule_specs
from hlo_opt.report.lint.check import FOLDER_RULES, RULES, lint, lint_together
from hlo_opt.report.lint.page import as_page
from hlo_opt.report.page import microseconds

HERE = Path(__file__).resolve().parents[2] / "lint_programs.py"
SAVES = ("LNT103", "LNT104", "LNT106", "LNT114")
"""Rules whose twin computes the same, or as much, in the way that the hint says."""


def found_in(code: str, program: tuple[Any, ...]) -> tuple[list[Finding], float]:
    function, arguments, options = program
    with jax.enable_x64(code == "LNT104"):
        text = text_of(function, arguments, **options)
    report = report_on(run(parse(text)))
    return [f for f in lint(report) if f.code == code], report.after.est_us


def test_every_rule_has_a_page_and_two_programs() -> None:
    assert set(rule_specs()) == {*RULES, *FOLDER_RULES}
    assert set(PROGRAMS) == set(RULES)


@pytest.mark.parametrize("code", RULES)
def test_a_rule_speaks_of_one_program_and_not_of_its_twin(code: str) -> None:
    spoken_of, twin = PROGRAMS[code]
    found, us = found_in(code, spoken_of)
    others, twin_us = found_in(code, twin)
    assert len(found) == 1 and others == []
    (one,) = found
    lines, first = inspect.getsourcelines(spoken_of[0])
    file, _, line = one.source.rpartition(":")
    assert file == str(HERE) and int(line) in range(first, first + len(lines))
    assert (one.us or one.bytes) > 0 and one.message and one.hint
    if code in SAVES:
        assert twin_us < us


@pytest.mark.parametrize("name", ADVICE)
def test_what_a_hint_tells_to_write_takes_less_time(name: str) -> None:
    code, before, after = ADVICE[name]
    found, us = found_in(code, before)
    left, less = found_in(code, after)
    assert len(found) == 1 and found[0].us is not None
    assert less < us and sum(f.us or 0 for f in left if f.saves) < found[0].us / 2
    if found[0].saves:
        assert found[0].us == pytest.approx(us - less, rel=0.05)


def test_the_hint_about_a_reduction_fits_its_dimensions() -> None:
    (around,) = found_in("LNT103", (sums_around, (f32(1000, 1000, 3), f32(1000, 1000, 3)), {}))[0]
    assert "reduce the last ones first" in around.hint
    (columns,) = found_in("LNT103", PROGRAMS["LNT103"][0])[0]
    assert "where the array is made" in columns.hint


def test_random_numbers_are_named_by_the_line_that_draws_most() -> None:
    """Not by the split of keys before it, which mixes the same bits of a few numbers."""
    found = found_in("LNT109", (noise_of_split_keys, (KEY, f32(512, 512)), {}))[0][0]
    lines, first = inspect.getsourcelines(noise_of_split_keys)
    (drawn,) = (first + n for n, line in enumerate(lines) if "uniform" in line)
    assert found.source == f"{HERE}:{drawn}"


LOOP = """
HloModule loop, input_output_alias={ {}: (0, {}, may-alias) }

body {
  s = (s32[], f32[512,512]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[512,512] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  z = f32[] constant(0)
  y = f32[512,512] pad(x, z), padding=1_-1x0_0, metadata={source_file="a.py" source_line=7}
  t = f32[512,512] add(x, y), metadata={source_file="a.py" source_line=8}
  ROOT r = (s32[], f32[512,512]) tuple(j, t)
}

condition {
  s = (s32[], f32[512,512]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT c = pred[] compare(i, n), direction=LT
}

ENTRY e {
  x = f32[512,512] parameter(0)
  i = s32[] constant(0)
  s = (s32[], f32[512,512]) tuple(i, x)
  w = (s32[], f32[512,512]) while(s), condition=condition, body=body
  ROOT r = f32[512,512] get-tuple-element(w), index=1
}
"""


def test_a_donation_that_a_loop_loses_is_named_by_a_line_in_the_loop() -> None:
    found = [f for f in lint(report_on(run(parse(LOOP)))) if f.code == "LNT112"]
    assert len(found) == 1 and found[0].source in ("a.py:7", "a.py:8")


@pytest.mark.parametrize("name", SILENT)
def test_a_rule_is_silent_where_no_change_would_help(name: str) -> None:
    code, program = SILENT[name]
    assert found_in(code, program)[0] == []


ROWS_OF_A_LAYER = """
HloModule rows

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

body {
  x = f32[64,4096]{1,0} parameter(0)
  w = f32[32,4096]{0,1} parameter(1)
  i = s32[] parameter(2)
  zero = f32[] constant(0)
  z = s32[] constant(0)
  square = f32[64,4096]{1,0} multiply(x, x)
  total = f32[64]{0} reduce(square, zero), dimensions={1}, to_apply=sum
  norm = f32[64]{0} rsqrt(total)
  wide = f32[64,4096]{1,0} broadcast(norm), dimensions={0}
  scaled = f32[64,4096]{1,0} multiply(x, wide)
  turned = f32[4096,64]{0,1} transpose(scaled), dimensions={1,0}
  row = f32[1,4096]{1,0} dynamic-slice(w, i, z), dynamic_slice_sizes={1,4096}
  flat = f32[4096]{0} reshape(row)
  beside = f32[4096,64]{0,1} broadcast(flat), dimensions={0}
  ROOT y = f32[4096,64]{0,1} multiply(beside, turned)
}

ENTRY e {
  x = f32[64,4096]{1,0} parameter(0)
  w = f32[32,4096]{0,1} parameter(1)
  i = s32[] parameter(2)
  ROOT f = f32[4096,64]{0,1} fusion(x, w, i), kind=kInput, calls=body
}
"""
"""A norm of rows as in a transformer's loop over layers: what is slow is the row of scales, which lies across memory;
the result is written in another order."""


def test_an_order_that_the_result_is_written_in_is_no_fault_of_the_reduction() -> None:
    report = report_on(run(parse(ROWS_OF_A_LAYER), passes="dce", simplify="never"))
    assert [f for f in lint(report) if f.code == "LNT103"] == []
    before = ROWS_OF_A_LAYER.replace(
        "x = f32[64,4096]{1,0} parameter(0)", "x = f32[4096,64]{1,0} parameter(0)"
    ).replace(
        "square = f32[64,4096]{1,0} multiply(x, x)",
        "rows = f32[64,4096]{1,0} transpose(x), dimensions={1,0}\n  square = f32[64,4096]{1,0} multiply(rows, rows)",
    )
    report = report_on(
        run(parse(before.replace("multiply(x, wide)", "multiply(rows, wide)")), passes="dce", simplify="never")
    )
    assert [f.name for f in lint(report) if f.code == "LNT103"] == ["total"]


@pytest.mark.parametrize("pair", [PROGRAMS["LNT103"], ADVICE["the last dimensions first"][1:]], ids=["last", "apart"])
def test_a_reduction_costs_what_its_advice_would_save(pair: tuple[Any, Any]) -> None:
    (found,), us = found_in("LNT103", pair[0])
    _, advised = found_in("LNT103", pair[1])
    assert found.us == pytest.approx(us - advised, rel=0.02)


def repeated(x: jax.Array) -> jax.Array:
    return jax.lax.fori_loop(0, 3, lambda _, y: powers(jnp.sin(y) @ y), x)


def test_a_loop_inside_another_one_says_how_often_it_runs() -> None:
    messages = [f.message for f in found_in("LNT105", (repeated, (f32(256, 256),), {}))[0]]
    assert any("iterations, and runs 3 times" in message for message in messages)
    assert not any("runs" in f.message for f in found_in("LNT105", PROGRAMS["LNT105"][0])[0])


def test_the_hint_about_a_loop_fits_what_it_launches() -> None:
    (counted,) = found_in("LNT105", PROGRAMS["LNT105"][0])[0]
    assert "`unroll=4` joins the kernels of 4 iterations" in counted.hint and counted.saves
    (unknown,) = found_in("LNT105", (until_large, (f32(256, 256),), {}))[0]
    assert "1 library call in it" in unknown.hint and "unroll" not in unknown.hint and not unknown.saves


def until_large(x: jax.Array) -> jax.Array:
    return jax.lax.while_loop(lambda y: y[0, 0] < 10, lambda y: y @ y, x)


@pytest.mark.parametrize("code", RULES)
def test_a_line_is_that_of_the_cause(code: str) -> None:
    function = PROGRAMS[code][0][0]
    (one,) = found_in(code, PROGRAMS[code][0])[0]
    first = function.__code__.co_firstlineno
    assert first < int(one.source.rpartition(":")[2]) <= first + 8


@pytest.mark.parametrize("spec", [s for c, s in rule_specs().items() if c in RULES], ids=lambda s: s.code)
def test_the_example_of_a_page_shows_the_rule(spec: ReasonSpec) -> None:
    found = [f for f in lint(report_on(run(parse(spec.example)))) if f.code == spec.code]
    assert len(found) == 1
    assert set(found[0].numbers) == spec.fields


def test_the_rewrite_of_a_donation_is_seen_to_help() -> None:
    (one,) = found_in("LNT108", PROGRAMS["LNT108"][0])[0]
    assert "copy is gone" in one.rewrite and "proved" in one.rewrite


def test_shares_are_of_the_time_with_the_copies_that_the_estimate_leaves_out() -> None:
    found, total = found_in("LNT108", PROGRAMS["LNT108"][0])
    copies = sum(f.us or 0.0 for f in found)
    text = str(as_page(found, total))
    assert f"saves {microseconds(copies)} ({100 * copies / (total + copies):.1f} %)" in text
    assert f"and {microseconds(copies)} of copied inputs" in text


def test_sizes_that_are_compiled_again() -> None:
    same = [parse(text_of(tiny, (f32(n),))) for n in (64, 128, 256)]
    (one,) = lint_together([*same, parse(text_of(powers, (f32(64, 64),)))], FOLDER_RULES)
    assert one.numbers["count"] == "3"
    assert lint_together([same[0], same[0]], FOLDER_RULES) == []


def test_a_fused_module_is_not_changed() -> None:
    module = fuse(parse(rule_specs()["LNT108"].example))[0]
    text = str(module)
    lint(report_on(run(module)))
    assert str(module) == text


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0)], ids=["gradient last", "gradient first"])
def test_a_state_is_given_away_and_not_the_gradient(order: tuple[int, ...]) -> None:
    text = rule_specs()["LNT113"].example
    for old, new in zip(("weight", "moment", "gradient"), order, strict=True):
        number = ("weight", "moment", "gradient").index(old)
        text = text.replace(
            f"{old} = f32[1024,1024]{{1,0}} parameter({number})", f"{old} = f32[1024,1024] parameter({new})"
        )
    (one,) = lint(report_on(run(parse(text))), ["LNT113"])
    assert f"donate_argnums=({order[0]}, {order[1]})" in one.hint
