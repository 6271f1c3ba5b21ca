"""Products of small matrices as sums: which, that the values stay, and what a loop over them becomes."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_opt
from hlo_opt.evaluate.inputs import module_inputs
from hlo_opt.fusion.summary import module_summary
from tests.small_modules import H100

BATCHED = "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}"
FORMS = {
    "matrices": ("[50,3,4]", "[50,4,2]", "[50,3,2]", BATCHED),
    "the left turned": (
        "[50,4,3]", "[50,4,2]", "[50,3,2]",
        "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    ),
    "vectors": (
        "[50,4]", "[50,4]", "[50]",
        "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    ),
    "a matrix by a vector": (
        "[50,3,4]", "[50,4]", "[50,3]",
        "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}",
    ),
    "two batches": (
        "[5,10,3,3]", "[5,10,3,3]", "[5,10,3,3]",
        "lhs_batch_dims={0,1}, rhs_batch_dims={0,1}, lhs_contracting_dims={3}, rhs_contracting_dims={2}",
    ),
    "one matrix": ("[4,4]", "[4,4]", "[4,4]", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
}  # fmt: skip


def product(name: str, left: str = "f32", right: str = "f32", made: str = "f32", more: str = "") -> str:
    a, b, c, how = FORMS[name]
    return (
        f"HloModule m\n\nENTRY e {{\n  x = {left}{a} parameter(0)\n  y = {right}{b} parameter(1)\n"
        f"  ROOT r = {made}{c} dot(x, y), {how}{more}\n}}\n"
    )


def written_out(text: str) -> hlo_opt.Module:
    made, _ = hlo_opt.fuse(hlo_opt.parse(text), passes="dot-strength-reduction,dce", simplify="never")
    hlo_opt.verify(made)
    return made


def has_product(module: hlo_opt.Module) -> bool:
    return any(i.opcode == "dot" for i in module.entry.instructions)


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(
    "types",
    ["f32 f32 f32", "f64 f64 f64", "bf16 bf16 bf16", "bf16 bf16 f32", "s32 s32 s32", "s8 s8 s32", "c64 c64 c64"],
)
def test_the_values_stay(name: str, types: str) -> None:
    text = product(name, *types.split())
    made = written_out(text)
    assert not has_product(made)
    given = [np.rint(a.astype(np.complex128 if a.dtype.kind == "c" else np.float64) * 2).astype(a.dtype)
             for a in module_inputs(hlo_opt.parse(text), seed=1)]  # fmt: skip
    (got,), (wanted,) = (hlo_opt.evaluate(m, given) for m in (made, hlo_opt.parse(text)))
    np.testing.assert_array_equal(got, wanted)
    fused, _ = hlo_opt.fuse(hlo_opt.parse(text))
    np.testing.assert_array_equal(hlo_opt.compile(fused, backend="host")(*given)[0], wanted)


@pytest.mark.parametrize(
    "text",
    [
        product("matrices", more=", algorithm=dot_bf16_bf16_f32"),
        product("matrices", "f32", "f32", "bf16"),
        product("matrices").replace("[50,3,4]", "[50,3,16]").replace("[50,4,2]", "[50,16,2]"),
        product("matrices").replace("[50,3,4]", "[50,32,4]").replace("[50,3,2]", "[50,32,2]").replace(",2]", ",4]"),
    ],
    ids=["an algorithm is asked for", "operands are rounded", "many terms", "large results"],
)
def test_others_stay(text: str) -> None:
    assert has_product(written_out(text))


def test_the_source_line_stays() -> None:
    text = product("matrices", more=', metadata={op_name="here" source_file="m.py" source_line=7}')
    made = [i for i in written_out(text).entry.instructions if i.operands]
    assert made and all("m.py" in i.attributes["metadata"].text for i in made)


def test_a_chain_of_small_products_is_one_kernel() -> None:
    lines = ["  m0 = f32[1000,3,3] parameter(0)"]
    lines += [f"  m{k + 1} = f32[1000,3,3] dot(m{k}, m0), {BATCHED}" for k in range(6)]
    text = "HloModule m\n\nENTRY e {\n" + "\n".join(lines).replace("m6 =", "ROOT m6 =") + "\n}\n"
    fused, _ = hlo_opt.fuse(hlo_opt.parse(text))
    assert module_summary(fused, H100).launches == 1
    given = [a * 0.1 for a in module_inputs(hlo_opt.parse(text), seed=3)]
    (got,), (wanted,) = hlo_opt.compile(fused, backend="host")(*given), hlo_opt.evaluate(hlo_opt.parse(text), given)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
