"""The rewrites of a concatenate give the same results: here of integers, whose sums do not round."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_opt
from hlo_opt.ir import Module, edit
from hlo_opt.report.lint.by_parts import multiply_parts, work_on_parts

PRODUCTS = {
    "left": ("6,7", "5,3,7", "c, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
    "right": ("7,6", "7,5,3", "w, c), lhs_contracting_dims={1}, rhs_contracting_dims={1}"),
    "two dimensions": ("3,6,7", "5,7", "c, w), lhs_contracting_dims={2,1}, rhs_contracting_dims={0,1}"),
    "a batch": (
        "7,5,6",
        "5,3,7",
        "c, w), lhs_batch_dims={0}, rhs_batch_dims={1}, lhs_contracting_dims={1}, rhs_contracting_dims={2}",
    ),
}


def module_of(other: str, result: str, product: str) -> Module:
    return hlo_opt.parse(
        f"HloModule m\nENTRY e {{\n a = s32[5,2,3] parameter(0)\n b = s32[5,4,3] parameter(1)\n"
        f" w = s32[{other}] parameter(2)\n c = s32[5,6,3] concatenate(a, b), dimensions={{1}}\n"
        f" ROOT r = s32[{result}] dot({product}\n}}\n"
    )


def joined(module: Module) -> hlo_opt.ir.Instruction:
    return next(i for i in module.entry.instructions if i.opcode == "concatenate")


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_over_the_joined_dimension_are_a_sum(name: str) -> None:
    before, after = module_of(*PRODUCTS[name]), module_of(*PRODUCTS[name])
    assert not work_on_parts(joined(after))
    assert multiply_parts(joined(after))
    edit.sort(after.entry)
    hlo_opt.verify(after)
    assert joined(after).users.isdisjoint([after.entry.root]) and after.entry.root.opcode == "add"
    draw = np.random.default_rng(1)
    inputs = [draw.integers(-9, 9, p.shape.dimensions, np.int32) for p in before.entry.parameters]
    (expected,), (found,) = hlo_opt.evaluate(before, inputs), hlo_opt.evaluate(after, inputs)
    assert (expected == found).all()


def test_a_product_over_another_dimension_is_left_alone() -> None:
    module = module_of("3,7", "5,6,7", "c, w), lhs_contracting_dims={2}, rhs_contracting_dims={0}")
    before = str(module)
    assert not multiply_parts(joined(module)) and str(module) == before
    assert work_on_parts(joined(module))
