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


VECTORS = {
    "rows of a matrix": (
        "[4,24,40]",
        "[4,40]",
        "[4,24]",
        "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}",
    ),
    "columns of a matrix": (
        "[4,24,40]",
        "[4,1,24]",
        "[4,40,1]",
        "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_contracting_dims={2}",
    ),
    "batches in another order": (
        "[5,24,4]",
        "[4,24,5]",
        "[5,4]",
        "lhs_batch_dims={0,2}, rhs_batch_dims={2,0}, lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    ),
    "a batch that is last": (
        "[24,40,4]",
        "[40,4]",
        "[4,24]",
        "lhs_batch_dims={2}, rhs_batch_dims={1}, lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    ),
    "contracted dimensions that lie apart": (
        "[4,24,5,40]",
        "[24,40]",
        "[4,5]",
        "lhs_contracting_dims={1,3}, rhs_contracting_dims={0,1}",
    ),
    "two contracted": ("[24,5,40]", "[40,5]", "[24]", "lhs_contracting_dims={1,2}, rhs_contracting_dims={1,0}"),
}


def state(name: str, kind: str = "f32", turned: bool = False, more: str = "") -> str:
    """A product of a vector and a matrix that is a result as well."""
    matrix, vector, out, how = VECTORS[name]
    if turned:  # the vector first
        how = how.replace("lhs", "ths").replace("rhs", "lhs").replace("ths", "rhs")
        sizes = out.strip("[]").split(",")
        out = out if name != "columns of a matrix" else f"[{sizes[0]},1,{sizes[1]}]"
    first, second = ("v", "s") if turned else ("s", "v")
    return f"""HloModule m

ENTRY e {{
  h = {kind}{matrix} parameter(0)
  u = {kind}{matrix} parameter(1)
  v = {kind}{vector} parameter(2)
  s = {kind}{matrix} add(h, u)
  p = {kind}{out} dot({first}, {second}), {how}{more}
  ROOT r = ({kind}{out}, {kind}{matrix}) tuple(p, s)
}}
"""


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("kind", ["f32", "bf16", "f64"])
@pytest.mark.parametrize("name", VECTORS)
def test_a_product_with_a_vector_is_a_fold(name: str, kind: str, turned: bool) -> None:
    text = state(name, kind, turned)
    made = written_out(text)
    assert not has_product(made)
    given = [np.rint(a.astype(np.float64)).astype(a.dtype) for a in module_inputs(hlo_opt.parse(text), seed=1)]
    for got, want in zip(hlo_opt.evaluate(made, given), hlo_opt.evaluate(hlo_opt.parse(text), given), strict=True):
        np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))


TWO_READERS = """HloModule m

ENTRY e {
  g = f32[24,24,24,24] parameter(0)
  d = f32[24,24] parameter(1)
  direct = f32[24,24] dot(g, d), lhs_contracting_dims={2,3}, rhs_contracting_dims={0,1}
  exchange = f32[24,24] dot(g, d), lhs_contracting_dims={1,3}, rhs_contracting_dims={0,1}
  ROOT r = f32[24,24] subtract(direct, exchange)
}
"""


def test_one_kernel_folds_a_matrix_that_two_products_read() -> None:
    fused, _ = hlo_opt.fuse(hlo_opt.parse(TWO_READERS))
    assert module_summary(fused, H100).launches == 1


def test_a_product_of_a_product_is_a_fold_too() -> None:
    made = written_out(
        "HloModule m\n\nENTRY e {\n  a = f32[64,64] parameter(0)\n  v = f32[64] parameter(1)\n"
        "  d = f32[64] dot(a, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
        "  ROOT r = f32[] dot(d, v), lhs_contracting_dims={0}, rhs_contracting_dims={0}\n}\n"
    )
    assert [i.opcode for i in made.entry.instructions].count("reduce") == 2


@pytest.mark.parametrize("batch", [False, True], ids=["one vector", "a batch of them"])
def test_a_product_of_a_vector_and_itself_is_a_fold(batch: bool) -> None:
    """The squared length of a residual, which the kernel that computes it can fold."""
    size, out, how = ("1000", "", "")
    if batch:
        size, out, how = ("8,1000", "8", "lhs_batch_dims={0}, rhs_batch_dims={0}, ")
    contracted = int(batch)
    fused, _ = hlo_opt.fuse(
        hlo_opt.parse(
            f"HloModule m\n\nENTRY e {{\n  a = f32[{size}] parameter(0)\n  b = f32[{size}] parameter(1)\n"
            f"  r = f32[{size}] subtract(a, b)\n  d = f32[{out}] dot(r, r), {how}lhs_contracting_dims={{{contracted}}}, "
            f"rhs_contracting_dims={{{contracted}}}\n  ROOT t = (f32[{size}], f32[{out}]) tuple(r, d)\n}}\n"
        )
    )
    assert module_summary(fused, H100).launches == 1


def test_the_kernel_that_computes_the_matrix_folds_it() -> None:
    fused, _ = hlo_opt.fuse(hlo_opt.parse(state("rows of a matrix")))
    assert module_summary(fused, H100).launches == 1


def test_a_scatter_takes_in_products_of_rows_of_few_terms() -> None:
    """Scores of a graph's edges: a row of a few features by a vector, which no library computes sooner."""
    text = """HloModule m
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
ENTRY e {
  p = f32[2000,8] parameter(0)
  i = s32[8000,1] parameter(1)
  v = f32[8] parameter(2)
  z = f32[] constant(0)
  n = f32[2000] broadcast(z), dimensions={}
  g = f32[8000,8] gather(p, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1,
    slice_sizes={1,8}
  d = f32[8000] dot(g, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  x = f32[8000] tanh(d)
  ROOT s = f32[2000] scatter(n, i, x), update_window_dims={}, inserted_window_dims={0},
    scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add
}
"""
    assert not has_product(written_out(text))
    fused, _ = hlo_opt.fuse(hlo_opt.parse(text))
    assert module_summary(fused, H100).launches <= 2  # the zeros, and all else


@pytest.mark.parametrize(
    "text",
    [
        state("rows of a matrix", "s32"),
        state("rows of a matrix", more=", algorithm=dot_f32_f32_f32"),
        state("rows of a matrix", "f64").replace("p = f64", "p = f32").replace("r = (f64[4,24]", "r = (f32[4,24]"),
        state("rows of a matrix")
        .replace("f32[4,24,40] parameter(1)", "f32[4,24,40]{1,2,0} parameter(1)")
        .replace("s = f32[4,24,40]", "s = f32[4,24,40]{1,2,0}"),
    ],
    ids=["whole numbers", "an algorithm is asked for", "operands are rounded", "another layout"],
)
def test_other_products_with_vectors_stay(text: str) -> None:
    assert has_product(written_out(text))
