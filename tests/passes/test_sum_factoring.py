"""Factors that wait for other sums are taken out of sums, and scalars out of products: which, and that the values
stay."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_opt

SUM = "sum {{\n  a = {t}[] parameter(0)\n  b = {t}[] parameter(1)\n  ROOT c = {t}[] add(a, b)\n}}\n"


def two(term: str, kind: str = "f32", dimensions: str = "1", kept: str = "8") -> str:
    """A sum of x, and a second sum, of `term`, which may have the first (many), x, g, a scalar's spread (twos) and a
    row's (wide)."""
    whole, row = f"{kind}[8,64]", f"{kind}[{kept}]"
    along = {"1": "0", "0": "1"}[dimensions]
    other = {"8": "64", "64": "8"}[kept]
    return f"""HloModule m

{SUM.format(t=kind)}
ENTRY e {{
  x = {whole} parameter(0)
  g = {whole} parameter(1)
  w = {kind}[{other}] parameter(2)
  zero = {kind}[] constant(0)
  two = {kind}[] constant(2)
  first = {row} reduce(x, zero), dimensions={{{dimensions}}}, to_apply=sum
  many = {whole} broadcast(first), dimensions={{{along}}}
  twos = {whole} broadcast(two), dimensions={{}}
  wide = {whole} broadcast(w), dimensions={{{dimensions}}}
{term.replace("WHOLE", whole)}
  ROOT second = {row} reduce(last, zero), dimensions={{{dimensions}}}, to_apply=sum
}}
"""


def factored(text: str) -> hlo_opt.Module:
    made, _ = hlo_opt.fuse(hlo_opt.parse(text), passes="sum-factoring,cse,dce", simplify="never")
    hlo_opt.verify(made)
    return made


def needs_a_sum(module: hlo_opt.Module) -> bool:
    """Whether a sum waits for another one."""
    late = set()
    for i in module.entry.instructions:
        if any(o in late for o in i.operands):
            if i.opcode == "reduce":
                return True
            late.add(i)
        elif i.opcode == "reduce":
            late.add(i)
    return False


PRODUCT = (
    "  a = WHOLE multiply(g, many)\n  b = WHOLE multiply(a, wide)\n  c = WHOLE negate(b)\n  last = WHOLE "
    "multiply(twos, c)"
)


@pytest.mark.parametrize(("dimensions", "kept"), [("1", "8"), ("0", "64")])
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_products_are_taken_apart(kind: str, dimensions: str, kept: str) -> None:
    text = two(PRODUCT, kind, dimensions, kept)
    made = factored(text)
    assert needs_a_sum(hlo_opt.parse(text)) and not needs_a_sum(made)
    random = np.random.default_rng(2)
    given = [random.integers(-3, 4, p.shape.dimensions).astype(p.shape.type.dtype) for p in made.entry.parameters]
    (want,), (got,) = hlo_opt.evaluate(hlo_opt.parse(text), given), hlo_opt.evaluate(made, given)
    np.testing.assert_array_equal(got, want)  # whole numbers
    (ran,) = hlo_opt.compile(made, backend="host")(*given)
    np.testing.assert_array_equal(ran, want)


@pytest.mark.parametrize(
    "text",
    [
        two("  last = WHOLE add(g, many)"),
        two("  last = WHOLE multiply(many, many)"),
        two("  a = WHOLE subtract(g, many)\n  last = WHOLE multiply(a, many)"),
        two(PRODUCT, "bf16"),
        two(PRODUCT, "s32"),
    ],
    ids=["no product", "nothing left to sum", "the rest waits too", "rounded on the way", "whole numbers"],
)
def test_others_stay(text: str) -> None:
    assert needs_a_sum(factored(text))


def test_what_waits_for_nothing_stays() -> None:
    text = two("  last = WHOLE multiply(twos, g)")
    assert str(factored(text)) == str(hlo_opt.fuse(hlo_opt.parse(text), passes="cse,dce", simplify="never")[0])


def test_a_limit_of_steps_is_kept() -> None:
    made, _ = hlo_opt.fuse(hlo_opt.parse(two(PRODUCT)), passes="sum-factoring", simplify="never", stop_after_step=0)
    assert needs_a_sum(made)


def distances(kind: str = "f32", scaled: str = "x", root: str = "exponential(p)", more: str = "") -> str:
    """A product of 2 x, or of another array, with y, and what reads it."""
    return f"""HloModule m

ENTRY e {{
  x = {kind}[8,16] parameter(0)
  y = {kind}[4,16] parameter(1)
  s = {kind}[] parameter(2)
  other = {kind}[8,16] sine(x)
  twos = {kind}[8,16] broadcast(s), dimensions={{}}
  twice = {kind}[8,16] multiply(twos, {scaled})
  p = {kind}[8,4] dot(twice, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
{more}
  ROOT r = {kind}[8,4] {root}
}}
"""


def multiplies_before(module: hlo_opt.Module) -> bool:
    dots = [i for i in module.entry.instructions if i.opcode == "dot"]
    return any(o.opcode == "multiply" for i in dots for o in i.operands)


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("scaled", ["x", "other"])
def test_a_scalar_moves_out_of_a_product(kind: str, scaled: str) -> None:
    used_twice = (
        "  q = KIND[8,8] dot(other, x), lhs_contracting_dims={1}, rhs_contracting_dims={1}\n"
        "  t = KIND[8,4] slice(q), slice={[0:8], [0:4]}"
    )
    text = distances(kind, scaled, "add(p, t)", used_twice.replace("KIND", kind))
    made = factored(text)
    assert multiplies_before(hlo_opt.parse(text)) and not multiplies_before(made)
    random = np.random.default_rng(2)
    given = [random.integers(-3, 4, p.shape.dimensions).astype(p.shape.type.dtype) for p in made.entry.parameters]
    (want,), (got,) = hlo_opt.evaluate(hlo_opt.parse(text), given), hlo_opt.evaluate(made, given)
    np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize(
    "text",
    [
        distances("bf16"),
        distances().replace("p = f32", "p = f64").replace("r = f32", "r = f64"),
        distances().replace("dot(twice, y)", "dot(twice, twice)").replace("f32[8,4]", "f32[8,8]"),
        distances(scaled="other"),
        distances(root="copy(r0)", more="  r0 = f32[8,4] copy(p)").replace(
            "ROOT r = f32[8,4] copy(r0)", "ROOT r = f32[4,8] transpose(p), dimensions={1,0}"
        ),
        distances().replace(
            "ROOT r = f32[8,4] exponential(p)",
            "e = f32[8,4] exponential(p)\n  ROOT r = (f32[8,4], f32[8,16]) tuple(e, twice)",
        ),
    ],
    ids=[
        "rounded on the way",
        "another type",
        "both operands",
        "the kernel that computes the array multiplies",
        "nobody multiplies after",
        "a result too",
    ],
)
def test_other_scalars_stay(text: str) -> None:
    assert multiplies_before(factored(text))


def deviations(kind: str = "f32", factor: str = "2", spread: str = "many", more: str = "") -> str:
    """Twice an array times something for each row, as in the gradient of a variance."""
    return f"""HloModule m

ENTRY e {{
  x = {kind}[8,64] parameter(0)
  w = {kind}[8] parameter(1)
  s = {kind}[] parameter(2)
  wide = {kind}[8,64] parameter(3)
  two = {kind}[] constant({factor})
  twos = {kind}[8,64] broadcast(two), dimensions={{}}
  twice = {kind}[8,64] multiply(x, twos)
  many = {kind}[8,64] broadcast(w), dimensions={{0}}
  one = {kind}[8,64] broadcast(s), dimensions={{}}
  p = {kind}[8,64] multiply({spread}, twice)
  q = {kind}[8,64] multiply(twice, many)
{more}
  ROOT r = ({kind}[8,64], {kind}[8,64]) tuple(p, {"r0" if more else "q"})
}}
"""


def large_multiplies(module: hlo_opt.Module) -> int:
    return sum(i.opcode == "multiply" and i.shape.element_count > 64 for i in module.entry.instructions)


@pytest.mark.parametrize("kind", ["f32", "f64", "bf16"])
@pytest.mark.parametrize("spread", ["many", "one"])
@pytest.mark.parametrize("factor", ["2", "0.25"])
def test_a_power_of_two_multiplies_the_smaller_factor(kind: str, spread: str, factor: str) -> None:
    text = deviations(kind, factor, spread)
    made = factored(text)
    assert large_multiplies(hlo_opt.parse(text)) == 3 and large_multiplies(made) == 2 - (spread == "many")
    random = np.random.default_rng(2)
    given = [random.standard_normal(p.shape.dimensions).astype(p.shape.type.dtype) for p in made.entry.parameters]
    for want, got in zip(hlo_opt.evaluate(hlo_opt.parse(text), given), hlo_opt.evaluate(made, given), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "text",
    [
        deviations("f16"),
        deviations(factor="3"),
        deviations(factor="1267650600228229401496703205376"),
        deviations(spread="wide"),
        deviations(more="  r0 = f32[8,64] sine(twice)"),
    ],
    ids=["a short range", "no power", "nearly infinite", "by a large one, too", "read by others"],
)
def test_other_factors_stay(text: str) -> None:
    assert "multiply(%x, %twos)" in str(factored(text))
