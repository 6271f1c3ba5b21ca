"""What follows a product becomes part of its call, which the evaluator computes as before."""

import numpy as np
import pytest

import hlo_opt
from hlo_opt.analysis.targets import DeviceTarget, InLanes, target
from hlo_opt.evaluate import evaluate, module_inputs
from hlo_opt.ops.calls.call import call_of
from hlo_opt.ops.calls.strided import product_of
from hlo_opt.passes.for_kernels import expanded
from hlo_opt.passes.product_epilogues import MeasuredEpilogues, ProductEpilogues

H100 = target("h100_sxm")
AFTER_PRODUCTS = (ProductEpilogues(),)

GELU = """
  cube = {t}[6,8]{{1,0}} multiply(square, v)
  part = {t}[6,8]{{1,0}} multiply(cube, spread_a)
  inner = {t}[6,8]{{1,0}} add(v, part)
  scaled = {t}[6,8]{{1,0}} multiply(inner, spread_k)
  h = {t}[6,8]{{1,0}} tanh(scaled)
  up = {t}[6,8]{{1,0}} add(h, spread_one)
  down = {t}[6,8]{{1,0}} multiply(up, spread_half)
  ROOT r = {t}[6,8]{{1,0}} multiply(v, down)"""
NUMBERS = {"a": 0.044715, "k": 0.797884583, "one": 1, "half": 0.5, "zero": 0}


def text_of(rest: str, t: str = "f32", *, bias: str = "[8]", along: str = "1", dot: str = "") -> str:
    """A product, and a kernel that adds a bias and computes `rest` of the sum v."""
    constants = "".join(
        f"  {n} = {t}[] constant({value})\n  spread_{n} = {t}[6,8]{{1,0}} broadcast({n}), dimensions={{}}\n"
        for n, value in NUMBERS.items()
        if f"spread_{n}" in rest
    )
    square = f"  square = {t}[6,8]{{1,0}} multiply(v, v)\n" if "square" in rest else ""
    return f"""HloModule m

body {{
  x = {t}[6,8]{{1,0}} parameter(0)
  b = {t}{bias} parameter(1)
  spread = {t}[6,8]{{1,0}} broadcast(b), dimensions={{{along}}}
  {"" if rest else "ROOT "}v = {t}[6,8]{{1,0}} add(spread, x)
{constants}{square}{rest.format(t=t)}
}}

ENTRY e {{
  l = {t}[6,4]{{1,0}} parameter(0)
  m = {t}[4,8]{{1,0}} parameter(1)
  n = {t}{bias} parameter(2)
  d = {t}[6,8]{{1,0}} dot(l, m), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}{dot}
  ROOT k = {t}[6,8]{{1,0}} fusion(d, n), kind=kLoop, calls=body
}}"""


RELU = "\n  ROOT r = {t}[6,8]{{1,0}} maximum(v, spread_zero)"
HIGHEST = ", operand_precision={highest,highest}"


@pytest.mark.parametrize(
    ("text", "epilogue"),
    [
        (text_of(""), "BIAS"),
        (text_of(RELU), "BIAS_RELU"),
        (text_of(GELU), "BIAS_GELU"),
        (text_of(GELU, "bf16"), "BIAS_GELU"),
        (text_of(RELU, dot=HIGHEST), "BIAS_RELU"),
        (text_of(GELU.replace("inner, spread_k", "spread_k, inner").replace("cube, spread_a", "spread_a, cube")),
         "BIAS_GELU"),
    ],
)  # fmt: skip
def test_the_kernel_after_a_product_is_part_of_its_call(text: str, epilogue: str) -> None:
    module = hlo_opt.parse(text)
    made = expanded(module, target("h100_sxm"), AFTER_PRODUCTS)
    hlo_opt.verify(made)
    root = made.entry.root
    assert root.opcode == "custom-call" and f'"epilogue":"{epilogue}"' in root.attributes["backend_config"].text
    call = call_of(root)
    assert call is not None
    product = product_of(call)
    assert (
        product is not None
        and product.epilogue == epilogue
        and product.is_rounded == ("f32" in text and HIGHEST not in text)
    )
    inputs = module_inputs(module, 0)
    tolerance = 2e-2 if "bf16" in text else 1e-6
    (got,), (want,) = evaluate(hlo_opt.parse(str(made)), inputs), evaluate(module, inputs)
    np.testing.assert_allclose(got.astype("f4"), want.astype("f4"), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "text",
    [
        text_of("", bias="[6]", along="0"),  # a number for each row
        text_of(GELU.replace("cube, spread_a", "cube, spread_half")),  # another function
        text_of(GELU, dot=HIGHEST),  # the library's tanh may be rough
        text_of(RELU.replace("spread_zero", "spread_one")),
        text_of("", dot=", algorithm=dot_bf16_bf16_f32"),
        text_of("").replace("ROOT k", "k").replace("calls=body\n}", "calls=body\n  ROOT t = (f32[6,8], f32[6,8]) "
                                                  "tuple(d, k)\n}"),  # the product is read elsewhere
        text_of("", "f64"),
    ],
)  # fmt: skip
def test_what_the_library_does_not_have_stays_a_kernel(text: str) -> None:
    module = hlo_opt.parse(text)
    hlo_opt.verify(module)
    assert expanded(module, target("h100_sxm"), AFTER_PRODUCTS) is module


SEVERAL = """HloModule m

body {
  x = f32[6,8]{1,0} parameter(0)
  b = f32[8] parameter(1)
  y = f32[6,8]{1,0} parameter(2)
  c = f32[8] parameter(3)
  spread = f32[6,8]{1,0} broadcast(b), dimensions={1}
  v = f32[6,8]{1,0} add(x, spread)
  spread_c = f32[6,8]{1,0} broadcast(c), dimensions={1}
  w = f32[6,8]{1,0} add(y, spread_c)
  n = f32[6,8]{1,0} negate(w)
  ROOT t = (f32[6,8]{1,0}, f32[6,8]{1,0}) tuple(v, n)
}

ENTRY e {
  l = f32[6,4]{1,0} parameter(0)
  m = f32[4,8]{1,0} parameter(1)
  b = f32[8] parameter(2)
  d = f32[6,8]{1,0} dot(l, m), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  s = f32[6,4]{1,0} negate(l)
  f = f32[6,8]{1,0} dot(s, m), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  k = (f32[6,8]{1,0}, f32[6,8]{1,0}) fusion(d, b, f, b), kind=kLoop, calls=body
  k0 = f32[6,8]{1,0} get-tuple-element(k), index=0
  k1 = f32[6,8]{1,0} get-tuple-element(k), index=1
  ROOT r = (f32[6,8]{1,0}, f32[6,8]{1,0}) tuple(k0, k1)
}"""


def test_what_the_device_lacks_stays_a_kernel() -> None:
    module = hlo_opt.parse(text_of(RELU))
    without = MeasuredEpilogues(lambda product: product.epilogue != "BIAS_RELU")
    assert expanded(module, target("h100_sxm"), (without,)) is module


def test_of_several_outputs_those_that_the_library_has() -> None:
    module = hlo_opt.parse(SEVERAL)
    made = expanded(module, target("h100_sxm"), AFTER_PRODUCTS)
    hlo_opt.verify(made)
    assert [i.opcode for i in made.entry.root.operands] == ["custom-call", "fusion"]
    inputs = module_inputs(module, 0)
    for got, want in zip(evaluate(made, inputs), evaluate(module, inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "text",
    [
        SEVERAL.replace("negate(w)", "multiply(w, v)"),  # both follow both products
        SEVERAL.replace("tuple(v, n)", "tuple(v, v)"),
        SEVERAL.replace("negate(w)", "negate(v)"),
    ],
)
def test_what_several_outputs_follow_stays_a_kernel(text: str) -> None:
    module = hlo_opt.parse(text)
    hlo_opt.verify(module)
    assert not any(
        i.opcode == "custom-call" for i in expanded(module, target("h100_sxm"), AFTER_PRODUCTS).entry.instructions
    )


LAYER = """HloModule m
ENTRY e {
  l = bf16[4096,1024]{1,0} parameter(0)
  r = bf16[1024,4096]{1,0} parameter(1)
  b = bf16[4096]{0} parameter(2)
  d = bf16[4096,4096]{1,0} dot(l, r), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  spread = bf16[4096,4096]{1,0} broadcast(b), dimensions={1}
  s = bf16[4096,4096]{1,0} add(d, spread)
  zero = bf16[] constant(0)
  zeros = bf16[4096,4096]{1,0} broadcast(zero), dimensions={}
  ROOT k = bf16[4096,4096]{1,0} maximum(s, zeros)
}
"""


@pytest.mark.parametrize(
    ("device", "simplify", "kernels"),
    [
        (H100, "auto", ["custom-call"]),
        (H100, "never", ["dot", "fusion"]),
        (InLanes.of(H100), "auto", ["dot", "fusion"]),
    ],
    ids=["default", "the graph as it is", "a processor"],
)
def test_the_preset_has_layers_as_calls(device: DeviceTarget, simplify: str, kernels: list[str]) -> None:
    made, _ = hlo_opt.fuse(hlo_opt.parse(LAYER), target=device, simplify=simplify)
    assert [i.opcode for i in made.entry.instructions if i.opcode in ("dot", "fusion", "custom-call")] == kernels
