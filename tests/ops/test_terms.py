"""Products and folds written out give what the operations mean."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_opt
from hlo_opt.evaluate.inputs import module_inputs
from hlo_opt.ir import Module, edit
from hlo_opt.ops.terms import MOST_TERMS, Terms

SUM = "sum {{\n  a = {t}[] parameter(0)\n  b = {t}[] parameter(1)\n  ROOT c = {t}[] {step}(a, b)\n}}\n"
DOTS = {
    "rows": ("[4,3]", "[3,5]", "[4,5]", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
    "columns": ("[3,4]", "[5,3]", "[4,5]", "lhs_contracting_dims={0}, rhs_contracting_dims={1}"),
    "batches": (
        "[2,4,3]",
        "[3,2,5]",
        "[2,4,5]",
        "lhs_contracting_dims={2}, rhs_contracting_dims={0}, lhs_batch_dims={0}, rhs_batch_dims={1}",
    ),
    "several": ("[4,3,2]", "[2,3]", "[4]", "lhs_contracting_dims={1,2}, rhs_contracting_dims={1,0}"),
    "numbers": ("[7]", "[7]", "[]", "lhs_contracting_dims={0}, rhs_contracting_dims={0}"),
}
REDUCES = {"one": ("[4,3]", "{1}", "[4]"), "two": ("[2,3,4]", "{0,2}", "[3]"), "all": ("[5]", "{0}", "[]")}


def written(text: str) -> tuple[Module, Module]:
    """A module whose entry is one operation of parameters, and the same with the operation written out."""
    module = hlo_opt.parse(text)
    terms = Terms("e")
    operands = [terms.parameter(p.parameter_number or 0, p.shape) for p in module.entry.parameters]
    made = terms.written_out(module.entry.root, operands)
    assert made is not None
    edit.set_root(terms.computation, made)
    other = Module("m")
    edit.add_computation(other, terms.computation, entry=True)
    return module, hlo_opt.parse(str(other))


def same(text: str) -> None:
    module, other = written(text)
    given = [np.rint(a.astype(np.float64) * 4).astype(a.dtype) for a in module_inputs(module, seed=2)]
    for got, want in zip(hlo_opt.evaluate(other, given), hlo_opt.evaluate(module, given), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("t", ["f32", "bf16", "f64"])
@pytest.mark.parametrize("name", DOTS)
def test_products(name: str, t: str) -> None:
    left, right, made, how = DOTS[name]
    same(
        f"HloModule m\nENTRY e {{\n  x = {t}{left} parameter(0)\n  y = {t}{right} parameter(1)\n  ROOT r = {t}{made} dot(x, y), {how}\n}}\n"
    )


@pytest.mark.parametrize("t", ["f32", "bf16", "s32"])
@pytest.mark.parametrize("step", ["add", "maximum"])
@pytest.mark.parametrize("name", REDUCES)
def test_folds(name: str, step: str, t: str) -> None:
    whole, gone, made = REDUCES[name]
    same(
        f"HloModule m\n{SUM.format(t=t, step=step)}ENTRY e "
        f"{{\n  x = {t}{whole} parameter(0)\n  z = {t}[] parameter(1)\n"
        f"  ROOT r = {t}{made} reduce(x, z), dimensions={gone}, to_apply=sum\n}}\n"
    )


def test_only_small_ones_are_written_out() -> None:
    for size in (MOST_TERMS, MOST_TERMS + 1):
        module = hlo_opt.parse(
            f"HloModule m\nENTRY e {{\n  x = f32[{size}] parameter(0)\n  ROOT r = f32[] dot(x, x), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}\n}}\n"
        )
        terms = Terms("e")
        x = terms.parameter(0, module.entry.parameters[0].shape)
        assert (terms.written_out(module.entry.root, [x, x]) is None) == (size > MOST_TERMS)
        assert terms.written_out(x, []) is None


def test_sums_of_narrow_floats_are_made_in_f32() -> None:
    left, right, made, how = DOTS["rows"]
    _, other = written(
        f"HloModule m\nENTRY e {{\n  x = bf16{left} parameter(0)\n  y = bf16{right} parameter(1)\n  ROOT r = bf16{made} dot(x, y), {how}\n}}\n"
    )
    sums = [i.shape.type.name for i in other.entry.instructions if i.opcode == "add"]
    assert set(sums) == {"f32"} and other.entry.root.shape.type.name == "bf16"
