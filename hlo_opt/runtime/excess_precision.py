"""Products in bf16 that are only summed in f32 are not rounded in between, as `hlo_opt.evaluate.precision` has it for XLA:CPU.

XLA may keep more than bf16 holds (`xla_allow_excess_precision`, on by default), also on a GPU; nothing is computed anew, and the sums come out better.
"""

from __future__ import annotations

from hlo_opt.evaluate.precision import is_library_sum
from hlo_opt.ir import Instruction, Module, edit
from hlo_opt.ir.element_type import BF16, F32
from hlo_opt.ir.walk import executed_computations

_MOVES = frozenset({"bitcast", "broadcast", "copy", "reshape", "transpose"})


def with_excess_precision(module: Module) -> Module:
    """The module itself where nothing is to gain, else a copy in which products that are summed in f32 give f32."""
    if not any(_widened(dot) for dot in _products(module)):
        return module
    copy = edit.clone_module(module)
    for dot in _products(copy):
        for i in (dot, *_widened(dot)) if _widened(dot) else ():
            i.shape = i.shape.with_type(F32)
    return copy


def _products(module: Module) -> list[Instruction]:
    found = [i for c in executed_computations(module) for i in c.instructions if i.opcode == "dot"]
    return [i for i in found if i.shape.element_type is BF16]


def _widened(dot: Instruction) -> list[Instruction]:
    """What only moves the product on its way to conversions that are summed, parameters of fusions among them; empty where something else reads it."""
    found: list[Instruction] = []
    todo = [dot]
    while todo:
        value = todo.pop()
        if value.is_root or not value.users:
            return []
        for user in value.users:
            if user.opcode == "convert" and user.shape.element_type is F32:
                if user.is_root or not user.users or not all(is_library_sum(u) for u in user.users):
                    return []
            elif user.opcode == "fusion":
                inside = user.called_by("calls")
                taken = [p for p, o in zip(inside.parameters, user.operands, strict=True) if o is value]
                found += taken
                todo += taken
            elif user.opcode in _MOVES:
                found.append(user)
                todo.append(user)
            else:
                return []
    return found if len(set(found)) == len(found) else []
