"""Elementwise functions of CHLO that are left in a module as custom calls `mhlo.NAME`, and values that go between static and dynamic sizes.

Source: xla/mlir_hlo/stablehlo_ext/transforms/chlo_recompose_ops.cpp (names), xla/service/dynamic_padder.cc (PadToStatic, SliceToDynamic).
"""

from __future__ import annotations

from hlo_opt.ir import Instruction, Shape
from hlo_opt.ops.custom_calls.targets import CustomCallSpec, register_custom_call
from hlo_opt.ops.lazy import lazy
from hlo_opt.ops.spec import ShapeError

FUNCTIONS = ("acos", "acosh", "asin", "asinh", "atanh", "cosh", "erf", "sinh", "tan")


def _infer(instruction: Instruction) -> Shape:
    if len(instruction.operands) != 1 or not instruction.operands[0].shape.is_array:
        raise ShapeError("an elementwise function takes one array")
    return instruction.operands[0].shape.without_layout()


for _name in FUNCTIONS:
    register_custom_call(CustomCallSpec(f"mhlo.{_name}", _infer, lazy("custom_calls.math_meaning", "elementwise")))
register_custom_call(CustomCallSpec("PadToStatic", evaluate=lazy("custom_calls.math_meaning", "pad_to_static")))
register_custom_call(CustomCallSpec("SliceToDynamic", evaluate=lazy("custom_calls.math_meaning", "slice_to_dynamic")))
