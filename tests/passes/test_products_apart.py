"""Kernels around a product, as a product and kernels beside it where a processor has a routine for products."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_opt
from hlo_opt.analysis.targets import target
from hlo_opt.ir import Instruction, Module
from hlo_opt.passes.for_kernels import IN_LANES, expanded
from hlo_opt.runtime.host.lanes_schedule import lanes_schedule
from hlo_opt.runtime.schedule import build_schedule

H100 = target("h100_sxm")


def around(dot: str, *lines: str, size: int = 64) -> Module:
    """A fusion with a product of two square matrices."""
    body = "\n  ".join(lines)
    return hlo_opt.parse(f"""HloModule m
f {{
  a = f32[{size},{size}] parameter(0)
  b = f32[{size},{size}] parameter(1)
  c = f32[{size},{size}] parameter(2)
  t = f32[{size},{size}] tanh(a)
  {dot}
  {body}
}}
ENTRY e {{
  x = f32[{size},{size}] parameter(0)
  y = f32[{size},{size}] parameter(1)
  z = f32[{size},{size}] parameter(2)
  ROOT k = f32[{size},{size}] fusion(x, y, z), kind=kLoop, calls=f
}}
""")


def dot(left: str, right: str, size: int = 64, root: str = "") -> str:
    return f"{root}d = f32[{size},{size}] dot({left}, {right}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"


AFTER = "ROOT r = f32[64,64] add(d, c)"
CASES = {
    "after": (around(dot("a", "b"), AFTER), ["dot", "fusion"]),
    "before": (around(dot("t", "b", root="ROOT ")), ["fusion", "dot"]),
    "a value on both sides": (around(dot("t", "b"), "ROOT r = f32[64,64] multiply(d, t)"), ["fusion", "dot", "fusion"]),
    "a square": (around(dot("t", "t"), AFTER), ["fusion", "dot", "fusion"]),
}


def steps(module: Module) -> list[Instruction]:
    return [i for i in module.entry.instructions if i.parameter_number is None]


@pytest.mark.parametrize("name", CASES)
def test_the_product_stands_alone(name: str) -> None:
    module, opcodes = CASES[name]
    before = str(module)
    made = expanded(module, H100, IN_LANES)
    hlo_opt.verify(made)
    assert [i.opcode for i in steps(made)] == opcodes and str(module) == before
    for kernel in steps(made):
        if kernel.opcode == "fusion":
            assert all(p.users for p in kernel.called_by("calls").parameters)
    inputs = [np.random.default_rng(k).uniform(-1, 1, (64, 64)).astype(np.float32) for k in range(3)]
    np.testing.assert_array_equal(*(hlo_opt.evaluate(m, inputs)[0] for m in (made, module)))


def test_a_product_that_is_a_loop_over_elements_stays() -> None:
    module = around(dot("a", "b", 4), "ROOT r = f32[4,4] add(d, c)", size=4)
    assert expanded(module, H100, IN_LANES) is module


def test_only_the_schedule_for_lanes_calls_the_library() -> None:
    module, _ = CASES["after"]
    assert not build_schedule(module).library_calls("library")
    assert lanes_schedule(module).library_calls("library") == {"dot": 1}


def test_a_loop_that_computes_the_operands_of_its_product_again_is_taken_apart() -> None:
    module = around("s = f32[4,4] sine(a)", dot("s", "b", 4), "ROOT r = f32[4,4] add(d, c)", size=4)
    made = expanded(module, H100, IN_LANES)
    assert made is not module and sum(i.opcode == "dot" for i in made.entry.instructions) == 1


def test_a_loop_that_computes_each_operand_element_once_stays() -> None:
    module = hlo_opt.parse("""HloModule m
f {
  p = u8[64,3] parameter(0)
  w = f32[3] parameter(1)
  x = f32[64,3] convert(p)
  d = f32[64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = u8[64] convert(d)
}
ENTRY e {
  a = u8[64,3] parameter(0)
  b = f32[3] parameter(1)
  ROOT k = u8[64] fusion(a, b), kind=kLoop, calls=f
}
""")
    assert expanded(module, H100, IN_LANES) is module


TWO = hlo_opt.parse("""HloModule m
f {
  a = f32[64,64] parameter(0)
  b = f32[64,64] parameter(1)
  c = f32[64,64] parameter(2)
  t = f32[64,64] tanh(a)
  d = f32[64,64] dot(b, t), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  e = f32[64,64] dot(c, t), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  s = f32[64,64] add(d, a)
  r = f32[64,64] add(e, t)
  ROOT k = (f32[64,64], f32[64,64], f32[64,64]) tuple(s, r, t)
}
ENTRY e {
  x = f32[64,64] parameter(0)
  y = f32[64,64] parameter(1)
  z = f32[64,64] parameter(2)
  k = (f32[64,64], f32[64,64], f32[64,64]) fusion(x, y, z), kind=kLoop, calls=f
  k0 = f32[64,64] get-tuple-element(k), index=0
  k1 = f32[64,64] get-tuple-element(k), index=1
  k2 = f32[64,64] get-tuple-element(k), index=2
  n = f32[64,64] negate(k2)
  ROOT r = (f32[64,64], f32[64,64], f32[64,64]) tuple(k0, k1, n)
}
""")


def test_all_products_of_a_kernel_are_taken_out_and_their_operands_computed_once() -> None:
    """As in the gradient of a cell: one array goes into the products for both weights, and to the next round."""
    made = expanded(TWO, H100, IN_LANES)
    hlo_opt.verify(made)
    assert [i.opcode for i in made.entry.instructions].count("dot") == 2
    kernels = [i.called_by("calls") for i in made.entry.instructions if i.opcode == "fusion"]
    assert sum(i.opcode == "tanh" for kernel in kernels for i in kernel.instructions) == 1
    assert not any(i.opcode == "dot" for kernel in kernels for i in kernel.instructions)
    inputs = [np.random.default_rng(k).uniform(-1, 1, (64, 64)).astype(np.float32) for k in range(3)]
    for ours, theirs in zip(*(hlo_opt.evaluate(m, inputs) for m in (made, TWO)), strict=True):
        np.testing.assert_array_equal(ours, theirs)
