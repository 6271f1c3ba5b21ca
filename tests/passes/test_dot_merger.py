"""Independent products as one: what is merged, that values stay, and what is left alone."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_opt
from hlo_opt.analysis.targets import InLanes
from hlo_opt.evaluate.inputs import module_inputs
from hlo_opt.fusion.summary import module_summary
from hlo_opt.ir import Module
from tests.small_modules import H100

PLAIN = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"


def products(*lines: str, kind: str = "f32") -> str:
    """A module whose products are read by an elementwise operation each; a line has a product's name, shapes of the
    result and operands, operands and dimensions."""
    parameters: dict[str, str] = {}
    body, roots = [], []
    for line in lines:
        name, result, left, right, how = line.split(" ", 4)
        names = []
        for operand in (left, right):
            value, _, shape = operand.partition(":")
            if shape and value not in parameters:
                parameters[value] = f"{value} = {kind}{shape} parameter({len(parameters)})"
            names.append(value)
        body.append(f"{name} = {kind}{result} dot({', '.join(names)}), {how}")
        body.append(f"{name}_used = {kind}{result} negate({name})")
        roots.append((f"{kind}{result}", f"{name}_used"))
    shapes, names = ", ".join(s for s, _ in roots), ", ".join(n for _, n in roots)
    text = "\n  ".join([*parameters.values(), *body, f"ROOT t = ({shapes}) tuple({names})"])
    return f"HloModule m\n\nENTRY e {{\n  {text}\n}}\n"


def merged(text: str) -> Module:
    made, _ = hlo_opt.fuse(hlo_opt.parse(text), passes="dot-merger,dce", simplify="never", target=H100)
    hlo_opt.verify(made)
    return made


def dots(module: Module) -> list[str]:
    return [str(i.shape.dimensions) for i in module.entry.instructions if i.opcode == "dot"]


WEIGHTS = products(f"a [16,64] x:[16,64] w:[64,64] {PLAIN}", f"b [16,32] x:[16,64] v:[64,32] {PLAIN}")
ROWS = products(f"a [16,64] x:[16,64] w:[64,64] {PLAIN}", f"b [24,64] y:[24,64] w:[64,64] {PLAIN}")
EQUAL = products(f"a [16,64] x:[16,64] w:[64,64] {PLAIN}", f"b [16,64] y:[16,64] v:[64,64] {PLAIN}")
TURNED = products(
    "a [64,48]{0,1} x:[16,64] w:[16,48] lhs_contracting_dims={0}, rhs_contracting_dims={0}",
    "b [64,48]{0,1} y:[16,64] v:[16,48] lhs_contracting_dims={0}, rhs_contracting_dims={0}",
)
GRAM = "lhs_contracting_dims={1}, rhs_contracting_dims={1}"
SQUARES = products(f"a [48,48] x:[48,64] x {GRAM}", f"b [48,48] x y:[48,64] {GRAM}")
HEADS = "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={2}"
BATCHES = products(f"a [3,16,32] x:[3,16,64] w:[3,32,64] {HEADS}", f"b [3,16,24] x:[3,16,64] v:[3,24,64] {HEADS}")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (WEIGHTS, "(16, 96)"),
        (ROWS, "(40, 64)"),
        (EQUAL, "(2, 16, 64)"),
        (TURNED, "(2, 64, 48)"),
        (BATCHES, "(3, 16, 56)"),
        (SQUARES, "(48, 96)"),
    ],
    ids=["weights", "rows", "equal", "turned", "batches", "squares"],
)
@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_products_become_one(text: str, wanted: str, kind: str) -> None:
    parsed = hlo_opt.parse(text.replace("f32", kind))
    made = merged(text.replace("f32", kind))
    assert dots(made) == [wanted]
    given = [np.rint(a.astype(np.float32) * 2).astype(a.dtype) for a in module_inputs(parsed, seed=1)]
    for got, want in zip(hlo_opt.evaluate(made, given), hlo_opt.evaluate(parsed, given), strict=True):
        np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32))


CHAIN = products(f"a [64,64] x:[64,64] w:[64,64] {PLAIN}", f"b [64,64] a v:[64,64] {PLAIN}")
LARGE = products(f"a [4096,4096] x:[4096,4096] w:[4096,4096] {PLAIN}", f"b [4096,4096] x v:[4096,4096] {PLAIN}")
SHAPES = products(f"a [16,64] x:[16,64] w:[64,64] {PLAIN}", f"b [16,64] y:[16,48] v:[48,64] {PLAIN}")
ASKED = products(
    f"a [16,64] x:[16,64] w:[64,64] {PLAIN}, operand_precision={{highest,highest}}",
    f"b [16,64] x y:[64,64] {PLAIN}",
)

MARKED = products(
    f'a [16,64] x:[16,64] w:[64,64] {PLAIN}, frontend_attributes={{group="1"}}',
    f"b [16,64] x y:[64,64] {PLAIN}",
)


@pytest.mark.parametrize(
    "text",
    [CHAIN, LARGE, SHAPES, ASKED, MARKED],
    ids=["one needs the other", "large", "other shapes", "another precision", "other frontend attributes"],
)
def test_what_stays(text: str) -> None:
    assert len(dots(merged(text))) == 2


def test_equal_frontend_attributes_stay() -> None:
    marked = 'frontend_attributes={group="1"}'
    made = merged(products(*(f"{n} [16,64] x:[16,64] {n}w:[64,64] {PLAIN}, {marked}" for n in "ab")))
    assert dots(made) == ["(16, 128)"] and str(made).count(marked) == 3  # the product and its two parts


TF32 = f"{PLAIN}, algorithm=dot_tf32_tf32_f32"


@pytest.mark.parametrize("how", [TF32, f'{PLAIN}, metadata={{op_name="layer"}}'], ids=["an algorithm", "a source"])
def test_products_alike_in_what_they_ask_for_become_one_that_asks_for_it(how: str) -> None:
    made = merged(products(f"a [16,64] x:[16,64] w:[64,64] {how}", f"b [16,32] x v:[64,32] {how}"))
    (dot,) = (i for i in made.entry.instructions if i.opcode == "dot")
    assert dot.word("algorithm") == ("dot_tf32_tf32_f32" if how == TF32 else "")


def test_products_of_two_algorithms_stay_two() -> None:
    other = TF32.replace("dot_tf32_tf32_f32", "dot_bf16_bf16_f32")
    for lines in ((TF32, other), (TF32, PLAIN)):
        first, second = lines
        text = products(f"a [16,64] x:[16,64] w:[64,64] {first}", f"b [16,32] x v:[64,32] {second}")
        assert len(dots(merged(text))) == 2


def test_a_processor_has_routines() -> None:
    made, _ = hlo_opt.fuse(hlo_opt.parse(EQUAL), passes="dot-merger,dce", simplify="never", target=InLanes.of(H100))
    assert len(dots(made)) == 2


def test_gates_take_fewer_kernels() -> None:
    gates = [f"g{k} [64,128] x:[64,128] w{k}:[128,128] {PLAIN}" for k in range(4)]
    parsed = hlo_opt.parse(products(*gates))
    apart, _ = hlo_opt.fuse(parsed, preset="xla-2026")
    fused, _ = hlo_opt.fuse(parsed)
    before, after = module_summary(apart, H100), module_summary(fused, H100)
    assert after.launches < before.launches and after.est_us < 0.6 * before.est_us
