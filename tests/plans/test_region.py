from __future__ import annotations

import pytest

from hlo_opt.diag import BackendError
from hlo_opt.ir import Computation, Instruction, Module, Shape, edit
from hlo_opt.ops import OpKind, OpSpec, register, unregister
from hlo_opt.ops.spec import Arity
from hlo_opt.plans import region_of
from hlo_opt.text import parse

NESTED = """HloModule m
leaf {
  x = f32[8]{0} parameter(0)
  y = f32[8]{0} parameter(1)
  s = f32[8]{0} subtract(x, y)
  ROOT t = (f32[8]{0}, f32[8]{0}) tuple(s, x)
}
outer {
  a = f32[8]{0} parameter(1)
  b = f32[8]{0} parameter(0)
  f = (f32[8]{0}, f32[8]{0}) fusion(a, b), kind=kLoop, calls=leaf
  g = f32[8]{0} get-tuple-element(f), index=0
  h = f32[8]{0} get-tuple-element(f), index=1
  ROOT t = (f32[8]{0}, (f32[8]{0}, f32[8]{0})) tuple(g, f)
}
ENTRY e {
  p = f32[8]{0} parameter(0)
  q = f32[8]{0} parameter(1)
  n = f32[8]{0} add(p, p)
  ROOT r = (f32[8]{0}, (f32[8]{0}, f32[8]{0})) fusion(n, q), kind=kLoop, calls=outer
}
"""


def test_nested_fusions_are_inlined() -> None:
    module = parse(NESTED)
    before = str(module)
    region = region_of(module, module.entry.root)
    assert [i.opcode for i in region.computation.instructions if i.opcode in ("fusion", "call")] == []
    assert [r.opcode for r in region.roots] == ["subtract", "subtract", "parameter"]
    assert [p.parameter_number for p in region.parameters] == [0, 1]
    difference = region.roots[0]
    assert [o.parameter_number for o in difference.operands] == [1, 0]
    assert str(module) == before


def test_a_callee_may_be_out_of_order() -> None:
    """As it is while a pass fuses inside it."""
    module = parse(NESTED)
    (leaf,) = [c for c in module.computations if c.name == "leaf"]
    first = next(i for i in leaf.instructions if i.opcode == "subtract")
    late = edit.create(leaf, "late", "negate", first.shape, [first.operands[0]])
    edit.replace_operand(first, 0, late)
    region = region_of(module, module.entry.root)
    assert [o.opcode for o in region.roots[0].operands] == ["negate", "parameter"]


def test_single_operation() -> None:
    module = parse(NESTED)
    add = next(i for i in module.entry.instructions if i.opcode == "add")
    region = region_of(module, add)
    assert len(region.parameters) == 2  # one per operand, in their order
    assert region.computation not in module.computations
    assert region.outputs == (add.shape,)


def _double(module: Module, instruction: Instruction) -> Computation:
    made = Computation("double")
    parameter = edit.create(made, "p", "parameter", instruction.operands[0].shape, parameter_number=0)
    edit.create(made, "r", "add", instruction.shape, [parameter, parameter], root=True)
    return made


def _again(module: Module, instruction: Instruction) -> Computation:
    made = Computation("again")
    parameter = edit.create(made, "p", "parameter", instruction.operands[0].shape, parameter_number=0)
    edit.create(made, "r", instruction.opcode, instruction.shape, [parameter], root=True)
    return made


def _module_with(opcode: str) -> Module:
    module = parse(NESTED)
    add = next(i for i in module.entry.instructions if i.opcode == "add")
    add.opcode = opcode
    edit.set_operands(add, add.operands[:1])
    return module


def test_expansion() -> None:
    register(OpSpec("double-op", OpKind.LINALG, Arity(1, 1), {}, expand=_double))
    try:
        module = _module_with("double-op")
        region = region_of(module, next(i for i in module.entry.instructions if i.opcode == "double-op"))
        assert [i.opcode for i in region.computation.instructions] == ["parameter", "add"]
    finally:
        unregister("double-op")


def test_expansion_without_end() -> None:
    register(OpSpec("again-op", OpKind.LINALG, Arity(1, 1), {}, expand=_again))
    try:
        module = _module_with("again-op")
        with pytest.raises(BackendError, match="does not stop"):
            region_of(module, next(i for i in module.entry.instructions if i.opcode == "again-op"))
    finally:
        unregister("again-op")


def test_tuple_shaped_operation_is_one_root() -> None:
    module = parse(
        """HloModule m
f {
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  ROOT t = (f32[], s32[]) tuple(a, j)
}
ENTRY e {
  p = f32[8,4]{1,0} parameter(0)
  n = s32[8,4]{1,0} iota(), iota_dimension=1
  x = f32[] constant(0)
  y = s32[] constant(0)
  ROOT r = (f32[8]{0}, s32[8]{0}) reduce(p, n, x, y), dimensions={1}, to_apply=f
}
"""
    )
    region = region_of(module, module.entry.root)
    assert len(region.roots) == 1
    assert [str(s) for s in region.outputs] == ["f32[8]{0}", "s32[8]{0}"]
    assert Shape.tuple_of(*region.outputs) == module.entry.root.shape


def test_a_loop_as_root_writes_its_elements() -> None:
    module = parse(
        "HloModule m\n\nc {\n  s = (s32[], f32[4]) parameter(0)\n  n = s32[] get-tuple-element(s), index=0\n"
        "  k = s32[] constant(3)\n  ROOT l = pred[] compare(n, k), direction=LT\n}\n\n"
        "b {\n  s = (s32[], f32[4]) parameter(0)\n  n = s32[] get-tuple-element(s), index=0\n"
        "  x = f32[4] get-tuple-element(s), index=1\n  o = s32[] constant(1)\n  m = s32[] add(n, o)\n"
        "  y = f32[4] add(x, x)\n  ROOT r = (s32[], f32[4]) tuple(m, y)\n}\n\n"
        "f {\n  n = s32[] parameter(0)\n  x = f32[4] parameter(1)\n  i = (s32[], f32[4]) tuple(n, x)\n"
        "  ROOT w = (s32[], f32[4]) while(i), condition=c, body=b\n}\n\n"
        "ENTRY e {\n  n = s32[] parameter(0)\n  x = f32[4] parameter(1)\n"
        "  ROOT k = (s32[], f32[4]) fusion(n, x), kind=kLoop, calls=f\n}\n"
    )
    region = region_of(module, module.entry.root)
    assert [(root.opcode, str(root.shape.type)) for root in region.roots] == [
        ("get-tuple-element", "s32"),
        ("get-tuple-element", "f32"),
    ]
