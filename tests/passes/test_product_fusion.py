"""Products with what comes before and after them in one kernel: where that pays, and what it leaves alone."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_opt
from hlo_opt.analysis.targets import DeviceTarget, InLanes, target
from hlo_opt.passes import product_fusion

PASSES = "priority-fusion,product-fusion,dce"

BODY = """
  x = f32[1024,{k}] parameter(0)
  w = f32[{k},256] parameter(1)
  y = f32[1024,256] parameter(2)
"""
DOT = "d = f32[1024,256] dot({x}, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"


def module(*lines: str, terms: int = 16, x: str = "x") -> str:
    """A module with a product `d` and further lines."""
    before = [line for line in lines if line.startswith("p")]
    after = [line for line in lines if not line.startswith("p")]
    body = "\n  ".join([BODY.format(k=terms).strip(), *before, DOT.format(x=x), *after])
    return f"""HloModule m

sum {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}

ENTRY e {{
  {body}
}}"""


def launched(text: str, device: str | DeviceTarget = "h100_sxm") -> list[str]:
    made, _ = hlo_opt.fuse(hlo_opt.parse(text), passes=PASSES, target=device)
    hlo_opt.verify(made)
    return [i.opcode for i in made.entry.instructions if i.opcode not in ("parameter", "constant", "tuple")]


RESIDUAL = module("ROOT r = f32[1024,256] add(d, y)")
SCALED = module("p = f32[1024,16] multiply(x, x)", "ROOT r = f32[1024,256] add(d, y)", x="p")


SQUARED = module("p = f32[1024,16] multiply(x, x)", "ROOT r = (f32[1024,256]) tuple(d)", x="p")


HEADS = """HloModule m

ENTRY e {
  q = f32[2,64,4,32] parameter(0)
  k = f32[2,64,4,32] parameter(1)
  ROOT s = f32[2,4,64,64] dot(q, k), lhs_batch_dims={0,2}, rhs_batch_dims={0,2}, lhs_contracting_dims={3},
    rhs_contracting_dims={3}
}"""
IN_ORDER = HEADS.replace("64,4,32]", "4,64,32]").replace("_batch_dims={0,2}", "_batch_dims={0,1}")


def test_a_small_product_is_a_kernel_by_itself() -> None:
    assert launched(HEADS) == launched(IN_ORDER) == ["fusion"]
    for text in (HEADS, IN_ORDER):
        assert launched(text.replace("32]", "96]")) == ["dot"]
    parsed = hlo_opt.parse(HEADS)
    made, _ = hlo_opt.fuse(parsed)
    draw = np.random.default_rng(3)
    given = [draw.normal(size=p.shape.dimensions).astype(np.float32) for p in parsed.entry.parameters]
    (want,), (got,) = hlo_opt.evaluate(parsed, given), hlo_opt.compile(made, backend="host")(*given)
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("text", [RESIDUAL, SCALED, SQUARED])
def test_one_kernel(text: str) -> None:
    assert launched(text) == ["fusion"]
    parsed = hlo_opt.parse(text)
    made, _ = hlo_opt.fuse(parsed)
    draw = np.random.default_rng(3)
    given = [draw.normal(size=p.shape.dimensions).astype(np.float32) for p in parsed.entry.parameters]
    (want,), (got,) = hlo_opt.evaluate(parsed, given), hlo_opt.compile(made, backend="host")(*given)
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    "text",
    [
        module("ROOT r = f32[1024,256] add(d, y)", terms=4096),  # most of the time is the product's
        module("s = f32[1024,256] add(d, y)", "ROOT r = (f32[1024,256], f32[1024,256]) tuple(s, d)", terms=256),
        module("z = f32[] constant(0)", "ROOT r = f32[1024] reduce(d, z), dimensions={1}, to_apply=sum", terms=256),
        module("ROOT r = f32[1024,256] dot(d, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}").replace(
            "  y = f32[1024,256] parameter(2)\n", "  v = f32[256,256] parameter(2)\n"
        ),
    ],
)
def test_what_is_left(text: str) -> None:
    assert "dot" in launched(text)


def test_products_that_wait_for_each_other_stay() -> None:
    how = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    text = (
        "HloModule m\n\nENTRY e {\n  a = f32[8,8] parameter(0)\n  b = f32[8,8] parameter(1)\n"
        f"  d = f32[8,8] dot(a, b), {how}\n  w = f32[8,8] dot(b, a), {how}WAITS\n"
        "  ROOT r = (f32[8,8], f32[8,8]) tuple(d, w)\n}\n"
    )
    for waits, products in (("", 0), (", control-predecessors={d}", 2)):
        made, _ = hlo_opt.fuse(hlo_opt.parse(text.replace("WAITS", waits)), passes="product-fusion")
        assert [i.opcode for i in made.entry.instructions].count("dot") == products


STRIDED = """HloModule m

ENTRY e {
  x = f32[8,28,28,64] parameter(0)
  w = f32[64,128] parameter(1)
  s = f32[8,14,14,64] slice(x), slice={[0:8], [0:28:2], [0:28:2], [0:64]}
  d = f32[8,14,14,128] dot(s, w), lhs_contracting_dims={3}, rhs_contracting_dims={0}
  zero = f32[] constant(0)
  zeros = f32[8,14,14,128] broadcast(zero), dimensions={}
  ROOT r = f32[8,14,14,128] maximum(d, zeros)
}"""


def test_all_around_a_product_may_pay_where_nothing_alone_does() -> None:
    """A strided convolution of 1x1 windows and its activation: the library is left once, for both."""
    assert launched(STRIDED) == ["fusion"]
    assert launched(STRIDED.replace("maximum(d, zeros)", "bitcast(d)")) == ["slice", "dot", "bitcast"]


def test_a_processor_has_routines_of_its_own() -> None:
    assert "dot" in launched(RESIDUAL, InLanes.of(target("h100_sxm")))


def test_default_does_it_and_says_what_it_left() -> None:
    made, _ = hlo_opt.fuse(hlo_opt.parse(RESIDUAL))
    assert [i.opcode for i in made.entry.instructions if i.opcode in ("dot", "fusion")] == ["fusion"]
    _, decisions = hlo_opt.fuse(hlo_opt.parse(module("ROOT r = f32[1024,256] add(d, y)", terms=4096)))
    (edge,) = decisions
    assert edge.rule == "product-fusion" and edge.reasons


@pytest.mark.parametrize(
    "text",
    [
        module("ROOT r = f32[1024,256] add(d, y)", terms=4096),
        module("p = f32[1024,4096] multiply(x, x)", "ROOT r = (f32[1024,256]) tuple(d)", terms=4096, x="p"),
    ],
)
@pytest.mark.parametrize("passes", [PASSES, None])
def test_the_price_is_the_cause(text: str, passes: str | None) -> None:
    """That a library runs the product is not why: with the price switched off one kernel is made of both."""
    (edge,) = hlo_opt.fuse(hlo_opt.parse(text), passes=passes)[1]
    assert [r.code for r in edge.cause] == ["FUS408"]
    assert edge.cost is not None and edge.cost.us_saved < 0
    fused, (edge,) = hlo_opt.fuse(hlo_opt.parse(text), passes=passes, what_if=["FUS408"])
    assert edge.fused
    assert fused.entry.instructions and not any(i.opcode == "dot" for i in fused.entry.instructions)


def test_what_saves_too_little_says_how_much_it_would_have_to_save(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product_fusion, "WORTH", 0.01)
    (edge,) = hlo_opt.fuse(hlo_opt.parse(RESIDUAL), passes=PASSES)[1]
    assert [r.code for r in edge.cause] == ["FUS408"] and edge.cost is not None and edge.cost.us_saved > 0
    assert edge.cause[0].short.endswith(" us, not 99 % less")


def test_a_small_product_is_decided_by_price_too() -> None:
    (edge,) = hlo_opt.fuse(hlo_opt.parse(RESIDUAL.replace("1024", "16")), passes=PASSES)[1]
    assert edge.fused and edge.rule == "product-fusion"


DEQUANTIZED = """HloModule m

ENTRY e {{
  x = bf16[{m},1024]{{1,0}} parameter(0)
  w = s8[{w}]{{1,0}} parameter(1)
  s = bf16[{n}]{{0}} parameter(2)
  c = bf16[{w}]{{1,0}} convert(w)
  b = bf16[{w}]{{1,0}} broadcast(s), dimensions={{{own}}}
  d = bf16[{w}]{{1,0}} multiply(c, b)
  ROOT r = bf16[{m},{n}]{{1,0}} dot(x, d), lhs_contracting_dims={{1}}, rhs_contracting_dims={{{deep}}}
}}
"""


@pytest.mark.parametrize("m", [1, 8])
@pytest.mark.parametrize("deep", [0, 1])
def test_weights_are_read_as_they_are_stored(m: int, deep: int) -> None:
    """A small product whose large operand is computed: the kernel that would write that operand is saved."""
    n = 8200
    w = f"1024,{n}" if deep == 0 else f"{n},1024"
    parsed = hlo_opt.parse(DEQUANTIZED.format(m=m, n=n, w=w, own=1 - deep, deep=deep))
    made, _ = hlo_opt.fuse(parsed)
    assert [i.opcode for i in made.entry.instructions if i.opcode != "parameter"] == ["fusion"]
    draw = np.random.default_rng(3)
    given = [draw.integers(-2, 3, p.shape.dimensions).astype(p.shape.type.dtype) for p in parsed.entry.parameters]
    (got,) = hlo_opt.compile(made, backend="host")(*given)
    x, w, s = (a.astype(np.float32) for a in given)
    weights = w * s if deep == 0 else (w.T * s)
    np.testing.assert_array_equal(got, (x @ weights).astype(got.dtype))  # small integers: exact


ACTIVATION = module(
    "p = f32[1024,16] multiply(x, x)",
    "ROOT t = (f32[1024,256], f32[16,8]) tuple(d, g)",
    x="p",
).replace(
    "ROOT t",
    "z = f32[1024,8] parameter(3)\n  g = f32[16,8] dot(p, z), lhs_contracting_dims={0}, rhs_contracting_dims={0}\n  ROOT t",
)


def test_products_that_read_one_operand_compute_it_each_where_that_takes_less_time() -> None:
    assert launched(ACTIVATION) == ["fusion", "fusion"]
    assert len(launched(ACTIVATION.replace("1024", "65536").replace("16", "256"))) == 3  # a library multiplies
    kept = ACTIVATION.replace("tuple(d, g)", "tuple(d, g, p)").replace(
        "f32[16,8]) tuple", "f32[16,8], f32[1024,16]) tuple"
    )
    assert len(launched(kept)) == 3  # it is written anyway
